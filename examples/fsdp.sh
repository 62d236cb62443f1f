#!/usr/bin/env bash
# fsdp.sh [RANKS] - the same training on one process, under DDP and under FSDP: bits compared, memory of a rank beside it.
#
# examples/gpt_fsdp.json on 2 ranks, or RANKS, which must divide its 4 micro-batches.  STEPS=n, DATA=file, RUNS=folder:
# other ones.  docs/fsdp.md explains what happens.
set -euo pipefail
cd "$(dirname "$0")/.."
LOCKSTEP=${LOCKSTEP:-build/lockstep}
RANKS=${1:-2} RUNS=${RUNS:-runs}

run() { # NAME ARGUMENT...
    local name=$1
    shift
    "$LOCKSTEP" train examples/gpt_fsdp.json --set run.dir="$RUNS/$name" --set run.threads=1 \
        --set run.steps="${STEPS:-60}" --set optim.schedule.warmup=5 ${DATA:+--set data.train="$DATA"} "$@"
}

memory() { # NAME: the last "mem" of its metrics, in bytes
    echo "$1: $(tail -n 1 "$RUNS/$1/metrics.jsonl" | sed 's/.*"mem":{\([^}]*\)}.*/\1/')"
}

run fsdp-one --set parallel.strategy=single
run fsdp-ddp --set parallel.strategy=ddp --nproc "$RANKS"
run fsdp-ranks --nproc "$RANKS"
for name in fsdp-one fsdp-ddp fsdp-ranks; do memory $name; done
"$LOCKSTEP" diff "$RUNS/fsdp-one" "$RUNS/fsdp-ddp"
"$LOCKSTEP" diff "$RUNS/fsdp-one" "$RUNS/fsdp-ranks" # exit status 0: bit-identical
echo "look at: params, grads and optim of a rank, which shrink with the number of ranks, and twice: identical"
