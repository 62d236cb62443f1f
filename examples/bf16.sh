#!/usr/bin/env bash
# bf16.sh [RANKS] - the same training in f32 and in bf16: losses and time of a step side by side, then bf16 on RANKS (2).
#
# examples/gpt_bf16.json; STEPS=n, DATA=file, RUNS=folder: other ones.
set -euo pipefail
cd "$(dirname "$0")/.."
LOCKSTEP=${LOCKSTEP:-build/lockstep}
RANKS=${1:-2} RUNS=${RUNS:-runs}

run() { # NAME ARGUMENT...
    local name=$1
    shift
    "$LOCKSTEP" train examples/gpt_bf16.json --resume never --set run.dir="$RUNS/$name" --set run.threads=1 \
        --set run.steps="${STEPS:-60}" --set optim.schedule.warmup=5 ${DATA:+--set data.train="$DATA"} "$@"
}

show() { # NAME: loss and time of its last logged step
    echo "$1: $(grep '"loss"' "$RUNS/$1/metrics.jsonl" | tail -n 1 | grep -o '"\(step\|loss\|step_ms\)":[^,]*' | tr '\n' ' ')"
}

run bf16-f32 --set parallel.param_dtype=f32
run bf16-one
run bf16-ranks --nproc "$RANKS"
echo "== f32, and bf16"
show bf16-f32
show bf16-one
echo "== bf16 on one process and on $RANKS"
"$LOCKSTEP" diff "$RUNS/bf16-one" "$RUNS/bf16-ranks" # exit status 0: bit-identical
echo "look at: losses that agree in two or three digits, for bf16 has three; step_ms, which falls where the processor has" \
    "instructions for bf16; and one process and several that are identical"
