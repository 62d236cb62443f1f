#!/usr/bin/env bash
# ddp.sh [RANKS] - the same training on one process and on several (2), compared to the last bit.
#
# examples/gpt_tiny.json for 60 steps; RANKS must divide its 4 micro-batches.  STEPS=n, DATA=file, RUNS=folder: other
# ones.  Other launchers start the same ranks: examples/mpi.sh, torchrun.sh, slurm.sbatch, and docs/launching.md.
set -euo pipefail
CONFIG=gpt_tiny.json RANKS=${1:-2}
# shellcheck source=examples/runs.sh
. "$(dirname "$0")/runs.sh"

run ddp-one
run ddp-ranks --nproc "$RANKS"
same ddp-one ddp-ranks
echo "look at: the losses of both runs, equal in every digit, and what diff says: identical"
