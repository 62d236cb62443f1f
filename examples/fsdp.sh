#!/usr/bin/env bash
# fsdp.sh [RANKS] - the same training on one process, under DDP and under FSDP: bits compared, a rank's memory beside it.
#
# examples/gpt_fsdp.json on 2 ranks, or RANKS, which must divide its 4 micro-batches.  STEPS=n [60], DATA=file,
# RUNS=folder: other ones.  docs/fsdp.md explains what happens.
set -euo pipefail
CONFIG=gpt_fsdp.json RANKS=${1:-2}
# shellcheck source=examples/runs.sh
. "$(dirname "$0")/runs.sh"

memory() { # NAME: the last "mem" of its metrics, in bytes
    echo "$1: $(tail -n 1 "$RUNS/$1/metrics.jsonl" | sed 's/.*"mem":{\([^}]*\)}.*/\1/')"
}

run fsdp-one --set parallel.strategy=single
run fsdp-ddp --set parallel.strategy=ddp --nproc "$RANKS"
run fsdp-ranks --nproc "$RANKS"
for name in fsdp-one fsdp-ddp fsdp-ranks; do memory $name; done
same fsdp-one fsdp-ddp
same fsdp-one fsdp-ranks
echo "look at: params, grads and optim of a rank, which shrink with the number of ranks, and twice: identical"
