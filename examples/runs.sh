# shellcheck shell=bash
# runs.sh - what the scripts beside it share; sourced by them, with CONFIG set.
#
# STEPS=n [60], DATA=file, RUNS=folder [runs]: other steps, text and place than those of the config.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
LOCKSTEP=${LOCKSTEP:-build/lockstep} RUNS=${RUNS:-runs} STEPS=${STEPS:-60}
TRAIN=("$LOCKSTEP" train "examples/$CONFIG" --set run.threads=1 --set run.steps="$STEPS"
       --set optim.schedule.warmup=5 ${DATA:+--set data.train="$DATA"})

run() { # NAME ARGUMENT...: trains in $RUNS/NAME
    local name=$1
    shift
    "${TRAIN[@]}" --set run.dir="$RUNS/$name" "$@"
}

same() { # NAME NAME: exit status 0 where they are bit-identical
    "$LOCKSTEP" diff "$RUNS/$1" "$RUNS/$2"
}
