#!/usr/bin/env bash
#SBATCH --job-name=lockstep
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=2
# launch_srun.sh [COMMAND...] - ranks started by Slurm:
#
#     sbatch examples/launch_srun.sh build/lockstep train examples/gpt_tiny.json
#
# srun tells each task its number and the list of hosts; rank 0 is on the first of them, at a port made of the job's
# number.  The secret is made here and goes to all tasks with the environment.
set -euo pipefail
[ $# -gt 0 ] || set -- build/lockstep train examples/gpt_tiny.json
LOCKSTEP_SECRET=${LOCKSTEP_SECRET:-$(openssl rand -hex 32)}
export LOCKSTEP_SECRET
exec srun --kill-on-bad-exit=1 "$@"
