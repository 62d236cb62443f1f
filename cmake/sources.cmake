# The library's sources by layer (docs/architecture.md).  Paths start at the top folder.
set(LS_SOURCES
  # core
  core/alloc.c
  core/dtype.c
  core/error.c
  core/exact_sum.c
  core/gz.c
  core/json.c
  core/json_print.c
  core/json_scan.c
  core/log.c
  core/rng.c
  core/sha256.c
  core/strbuf.c
  core/tensor.c
  core/thread.c
  core/tree_sum.c
  # core: kernels
  core/kernels/adam.c
  core/kernels/attention.c
  core/kernels/dropout.c
  core/kernels/elementwise.c
  core/kernels/gather.c
  core/kernels/gemm.c
  core/kernels/layernorm.c
  core/kernels/reduce.c
  core/kernels/rmsnorm.c
  core/kernels/rope.c
  core/kernels/row_squares.c
  core/kernels/softmax.c
  core/kernels/strided.c
  # autograd
  autograd/backward.c
  autograd/boundary.c
  autograd/op.c
  autograd/profile.c
  autograd/recompute.c
  autograd/tape.c
  # autograd: operators
  autograd/ops/activation.c
  autograd/ops/add.c
  autograd/ops/attention.c
  autograd/ops/concat.c
  autograd/ops/contiguous.c
  autograd/ops/cross_entropy.c
  autograd/ops/dropout.c
  autograd/ops/embedding.c
  autograd/ops/head_cross_entropy.c
  autograd/ops/layernorm.c
  autograd/ops/linear.c
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
  # nn
  nn/attention.c
  nn/block.c
  nn/embedding.c
  nn/feedforward.c
  nn/gpt.c
  nn/grad_sum.c
  nn/init.c
  nn/linear.c
  nn/mlp.c
  nn/module.c
  nn/norm.c
  # optim
  optim/grad_norm.c
  optim/optimizer.c
  optim/schedule.c
  # data
  data/dataset.c
  data/sampler.c
  data/text.c
  data/token_file.c
  data/tokenizer.c
  data/utf8.c
  # checkpoint
  checkpoint/atomic_file.c
  checkpoint/json_scan.c

  checkpoint/params.c
  checkpoint/params_match.c
  checkpoint/safetensors.c
  checkpoint/safetensors_dtype.c
  checkpoint/safetensors_header.c
  checkpoint/safetensors_write.c
)

# The command, as a library of its own so that tests reach its parts.
set(LS_CLI_SOURCES
  cli/args.c
  cli/cmd_bench.c
  cli/cmd_diff.c
  cli/cmd_eval.c
  cli/cmd_init.c
  cli/cmd_inspect.c
  cli/cmd_train.c
  cli/compare.c
  cli/compute.c
  cli/config.c
  cli/config_docs.c
  cli/config_print.c
  cli/config_rules.c
  cli/config_table.c
  cli/evaluate.c
  cli/exit.c
  cli/files.c
  cli/metrics.c
  cli/model.c
  cli/open_checkpoint.c
  cli/progress.c
  cli/run_dir.c
  cli/train.c
  cli/trainer.c
)
