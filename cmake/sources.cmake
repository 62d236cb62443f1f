# The library's sources by layer (docs/architecture.md).  Paths start at the top folder.
set(LS_SOURCES
  # core
  core/alloc.c
  core/dtype.c
  core/error.c
  core/gz.c
  core/kernels/elementwise.c
  core/kernels/gemm.c
  core/rng.c
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
  data/dataset.c
  data/sampler.c
  data/text.c
  data/token_file.c
  data/tokenizer.c
  data/utf8.c
  # checkpoint
)

# The command, as a library of its own so that tests reach its parts.
set(LS_CLI_SOURCES
)
