# The library's sources by layer (docs/architecture.md).  Paths start at the top folder.
set(LS_SOURCES
  # core
  core/alloc.c
  core/dtype.c
  core/error.c
  core/exact_sum.c
  core/log.c
  core/rng.c
  core/sha256.c
  core/tensor.c
  core/thread.c
  core/tree_sum.c
  # core: kernels
  core/kernels/attention.c
  core/kernels/columns.c
  core/kernels/dropout.c
  core/kernels/elementwise.c
  core/kernels/gather.c
  core/kernels/gemm.c
  core/kernels/layernorm.c
  core/kernels/reduce.c
  core/kernels/softmax.c
  core/kernels/strided.c
  # autograd
  autograd/backward.c
  autograd/boundary.c
  autograd/recompute.c
  autograd/tape.c
  # autograd: operators
  autograd/ops/activation.c
  autograd/ops/add.c
  autograd/ops/attention.c
  autograd/ops/dropout.c
  autograd/ops/embedding.c
  autograd/ops/layernorm.c
  autograd/ops/linear.c
  # nn
  nn/attention.c
  nn/block.c
  nn/embedding.c
  nn/feedforward.c
  nn/gpt.c
  nn/init.c
  nn/linear.c
  nn/mlp.c
  nn/module.c
  nn/norm.c
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
  cli/cmd_diff.c
  cli/cmd_inspect.c
  cli/compare.c
  cli/exit.c
  cli/files.c
)
