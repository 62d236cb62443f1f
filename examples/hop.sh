#!/usr/bin/env bash
# hop.sh - a run that changes its strategy and its ranks on the way, and ends in the bits of one that did not.
#
# examples/gpt_fsdp.json, a third of the steps each: DDP on 2 ranks, FSDP on 4, one process.  Each leg ends with a
# checkpoint (--stop-at), and the next goes on from it.  STEPS=n [60], DATA=file, RUNS=folder: other ones.
set -euo pipefail
cd "$(dirname "$0")/.."
LOCKSTEP=${LOCKSTEP:-build/lockstep}
RUNS=${RUNS:-runs} STEPS=${STEPS:-60}

run() { # NAME ARGUMENT...
    local name=$1
    shift
    "$LOCKSTEP" train examples/gpt_fsdp.json --set run.dir="$RUNS/$name" --set run.threads=1 --set run.steps="$STEPS" \
        --set optim.schedule.warmup=5 ${DATA:+--set data.train="$DATA"} "$@"
}

echo "== 2 ranks, DDP, to step $((STEPS / 3))"
run hop --resume never --set parallel.strategy=ddp --nproc 2 --stop-at $((STEPS / 3))
echo "== 4 ranks, FSDP, to step $((STEPS * 2 / 3))"
run hop --set parallel.strategy=fsdp --nproc 4 --stop-at $((STEPS * 2 / 3))
echo "== one process, to step $STEPS"
run hop --set parallel.strategy=single
echo "== the same without a break"
run hop-straight --resume never --set parallel.strategy=single
"$LOCKSTEP" diff "$RUNS/hop" "$RUNS/hop-straight" # exit status 0: bit-identical
echo "look at: which step each leg goes on from, and what diff says: identical"
