#!/usr/bin/env bash
# ddp.sh [RANKS] - the same training on one process and on several (2), compared to the last bit.
#
# examples/gpt_tiny.json for 60 steps; RANKS must divide its 4 micro-batches.  STEPS=n, DATA=file: other ones.
# Other launchers start the same ranks: examples/mpi.sh, torchrun.sh, slurm.sbatch, and docs/launching.md.
set -euo pipefail
cd "$(dirname "$0")/.."
LOCKSTEP=${LOCKSTEP:-build/lockstep}
RANKS=${1:-2}

run() { # FOLDER ARGUMENT...
    local folder=$1
    shift
    "$LOCKSTEP" train examples/gpt_tiny.json --set run.dir="$folder" --set run.steps="${STEPS:-60}" \
        --set optim.schedule.warmup=10 ${DATA:+--set data.train="$DATA"} "$@"
}

run runs/ddp-one --set run.threads=1
run runs/ddp-ranks --set run.threads=1 --nproc "$RANKS"
"$LOCKSTEP" diff runs/ddp-one runs/ddp-ranks # exit status 0: bit-identical
echo "look at: the losses of both runs, equal in every digit, and what diff says: identical"
