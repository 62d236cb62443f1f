#!/usr/bin/env bash
# bf16.sh [RANKS] - the same training in f32 and in bf16, losses and times side by side, then bf16 on RANKS (2).
#
# examples/gpt_bf16.json; STEPS=n, DATA=file, RUNS=folder: other ones.
set -euo pipefail
CONFIG=gpt_bf16.json RANKS=${1:-2}
# shellcheck source=examples/runs.sh
. "$(dirname "$0")/runs.sh"

show() { # NAME: loss and time of its last logged step
    echo "$1: $(grep '"loss"' "$RUNS/$1/metrics.jsonl" | tail -n 1 | grep -o '"\(step\|loss\|step_ms\)":[^,]*' | tr '\n' ' ')"
}

run bf16-f32 --resume never --set parallel.param_dtype=f32
run bf16-one --resume never
run bf16-ranks --resume never --nproc "$RANKS"
echo "== f32, and bf16"
show bf16-f32
show bf16-one
echo "== bf16 on one process and on $RANKS"
same bf16-one bf16-ranks
echo "look at: losses that agree in two or three digits, for bf16 has three; step_ms, which falls where the processor has" \
    "instructions for bf16; and one process and several that are identical"
