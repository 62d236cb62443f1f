#!/usr/bin/env bash
# hop.sh - a run that changes its strategy and its ranks on the way, and ends in the bits of one that did not.
#
# examples/gpt_fsdp.json, a third of the steps each: DDP on 2 ranks, FSDP on 4, one process.  Each leg ends with a
# checkpoint (--stop-at), and the next goes on from it.  STEPS=n [60], DATA=file, RUNS=folder: other ones.
set -euo pipefail
CONFIG=gpt_fsdp.json
# shellcheck source=examples/runs.sh
. "$(dirname "$0")/runs.sh"

echo "== 2 ranks, DDP, to step $((STEPS / 3))"
run hop --resume never --set parallel.strategy=ddp --nproc 2 --stop-at $((STEPS / 3))
echo "== 4 ranks, FSDP, to step $((STEPS * 2 / 3))"
run hop --set parallel.strategy=fsdp --nproc 4 --stop-at $((STEPS * 2 / 3))
echo "== one process, to step $STEPS"
run hop --set parallel.strategy=single
echo "== the same without a break"
run hop-straight --resume never --set parallel.strategy=single
same hop hop-straight
echo "look at: which step each leg goes on from, and what diff says: identical"
