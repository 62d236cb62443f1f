#!/usr/bin/env bash
# survive.sh [RANKS] - kills a rank in the middle of a run: the others say who died, and the launcher starts all again
# from the newest checkpoint, to the bits of a run that nothing has disturbed.
#
# examples/gpt_survive.json on 2 ranks, with a checkpoint every 20 steps; STEPS=n [120], DATA=file, RUNS=folder: other
# ones.  The launcher is `lockstep run`; --min-nproc would also go on with fewer ranks (docs/checkpoints.md).
set -euo pipefail
CONFIG=gpt_survive.json RANKS=${1:-2} STEPS=${STEPS:-120}
# shellcheck source=examples/runs.sh
. "$(dirname "$0")/runs.sh"

steps_done() { # of the run that is under way
    grep -c '"loss"' "$RUNS/survive/metrics.jsonl" 2>/dev/null || true
}

rm -rf "$RUNS/survive" "$RUNS/survive-calm"
echo "== $RANKS ranks, and one of them is killed after step 25"
"$LOCKSTEP" run -n "$RANKS" --max-restarts 3 -- "${TRAIN[@]}" --set run.dir="$RUNS/survive" &
launcher=$!
trap 'kill $launcher 2>/dev/null || true' EXIT
until [ "$(steps_done)" -ge 6 ] 2>/dev/null; do # a line each 5 steps
    kill -0 $launcher 2>/dev/null || break
    sleep 0.05
done
read -r -a ranks <<<"$(<"/proc/$launcher/task/$launcher/children")" # the launcher's children
kill -9 "${ranks[-1]}"
wait $launcher
trap - EXIT

echo "== the same, undisturbed"
run survive-calm
same survive survive-calm
echo "look at: the line that names the killed rank and its signal, the step that the second start goes on from, identical"
