# The library's sources by layer (docs/architecture.md).  Paths start at the top folder.
set(LS_SOURCES
  # core
  core/alloc.c
  core/dtype.c
  core/error.c
  core/kernels/elementwise.c
  core/kernels/gemm.c
  core/rng.c
  core/sha256.c
  core/tensor.c
  core/thread.c
  # autograd
  autograd/backward.c
  autograd/boundary.c
  autograd/recompute.c
  autograd/tape.c
  # nn
  # optim
  # data
  # checkpoint
  checkpoint/atomic_file.c
  checkpoint/json_scan.c
  checkpoint/json_text.c
  checkpoint/params.c
  checkpoint/params_match.c
  checkpoint/safetensors.c
  checkpoint/safetensors_dtype.c
  checkpoint/safetensors_header.c
  checkpoint/safetensors_write.c
)

# The command, as a library of its own so that tests reach its parts.
set(LS_CLI_SOURCES
)
