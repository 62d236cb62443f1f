#!/usr/bin/env bash
# fake_srun.sh [--OPTION]... COMMAND... - as Slurm's srun, on this host: 4 tasks that believe to be two each on two nodes,
# which are both this one.  Ends the others when one fails, as --kill-on-bad-exit does; the exit status is that task's.
set -u
while [[ ${1:-} == --* ]]; do shift; done
export SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_NODELIST=localhost SLURM_STEP_TASKS_PER_NODE='2(x2)'
pids=()
for task in 0 1 2 3; do
    SLURM_PROCID=$task SLURM_LOCALID=$((task % 2)) "$@" &
    pids+=($!)
done
status=0
for _ in "${pids[@]}"; do
    wait -n && continue
    status=$?
    kill "${pids[@]}" 2>/dev/null
    break
done
wait
exit "$status"
