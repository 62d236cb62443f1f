# The library's sources by layer (docs/architecture.md).  Paths start at the top folder.
set(LS_SOURCES
  # core
  core/alloc.c
  core/dtype.c
  core/error.c
  core/kernels/elementwise.c
  core/kernels/gemm.c
  core/kernels/reduce.c
  core/kernels/rmsnorm.c
  core/kernels/rope.c
  core/kernels/softmax.c
  core/kernels/strided.c
  core/rng.c
  core/tensor.c
  core/thread.c
  # autograd
  autograd/backward.c
  autograd/boundary.c
  autograd/op.c
  autograd/ops/concat.c
  autograd/ops/contiguous.c
  autograd/ops/cross_entropy.c
  autograd/ops/log_softmax.c
  autograd/ops/matmul.c
  autograd/ops/mean.c
  autograd/ops/mul.c
  autograd/ops/permute.c
  autograd/ops/reshape.c
  autograd/ops/rmsnorm.c
  autograd/ops/rope.c
  autograd/ops/scale.c
  autograd/ops/slice.c
  autograd/ops/softmax.c
  autograd/ops/sum.c
  autograd/ops/swiglu.c
  autograd/recompute.c
  autograd/tape.c
  # nn
  # optim
  # data
  # checkpoint
)

# The command, as a library of its own so that tests reach its parts.
set(LS_CLI_SOURCES
)
