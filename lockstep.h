/*
 * lockstep.h - the whole public interface; examples/mlp_spiral.c and
 * examples/collectives_demo.c use it.
 *
 * In reading order, each with its own header:
 *
 *     core/        what everything stands on: errors, memory, threads, tensors, random numbers
 *     autograd/    the tape that records operators, and the operators
 *     nn/          modules with named parameters: layers, GPT, MLP
 *     optim/       optimizers, schedules, the gradient norm
 *     data/        text, tokenizers, sequences of tokens, tables
 *     checkpoint/  parameters in safetensors files, Hugging Face's directories
 *     dist/comm/   ranks, how they meet, and the operations between them
 *     dist/        training on many ranks: DDP, FSDP
 *
 * Rules that hold everywhere.  Functions return an ls_status, or a pointer that is NULL on
 * failure; ls_error_message() says what was found and what was wanted.  The library never
 * prints, exits or aborts.  Arguments are borrowed and stay the caller's unless a docstring
 * says that they are taken.  Shapes are written (rows,columns), arrays are row-major, sizes
 * count elements unless named bytes.  An object belongs to one thread at a time.
 */
#ifndef LS_LOCKSTEP_H
#define LS_LOCKSTEP_H

/* A C++ program includes this header; those below are plain C. */
#ifdef __cplusplus
extern "C" {
#endif

#include "core/alloc.h"
#include "core/compute.h"
#include "core/error.h"
#include "core/exact_sum.h"
#include "core/rng.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "core/trace.h"

#include "autograd/ops.h"
#include "autograd/tape.h"

#include "nn/gpt.h"
#include "nn/grad_sum.h"
#include "nn/kv_cache.h"
#include "nn/layers.h"
#include "nn/mlp.h"
#include "nn/module.h"
#include "nn/working.h"

#include "optim/grad_norm.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

#include "data/bpe_train.h"
#include "data/dataset.h"
#include "data/fingerprint.h"
#include "data/sampler.h"
#include "data/table.h"
#include "data/text.h"
#include "data/token_file.h"
#include "data/token_format.h"
#include "data/tokenizer.h"

#include "checkpoint/hf.h"
#include "checkpoint/load.h"
#include "checkpoint/params.h"
#include "checkpoint/save.h"
#include "checkpoint/store.h"
#include "checkpoint/view.h"

#include "dist/comm/comm.h"
#include "dist/comm/join.h"
#include "dist/comm/local_world.h"
#include "dist/comm/rendezvous.h"

#include "dist/ddp.h"
#include "dist/fsdp.h"
#include "dist/shard.h"
#include "dist/strategy.h"

#ifdef __cplusplus
}
#endif

#endif
