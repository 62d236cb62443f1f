# The library's sources by layer (docs/architecture.md).  Paths start at the top folder.
set(LS_SOURCES
  # core
  core/alloc.c
  core/dtype.c
  core/error.c
  core/exact_sum.c
  core/kernels/elementwise.c
  core/kernels/gemm.c
  core/log.c
  core/rng.c
  core/tensor.c
  core/thread.c
  core/tree_sum.c
  # autograd
  autograd/backward.c
  autograd/boundary.c
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
