#!/usr/bin/env bash
# mpi.sh [COMMAND...] - ranks started by Open MPI's or MPICH's mpirun.
#
#     examples/mpi.sh build/lockstep train examples/gpt_tiny.json
#     HOSTS=a,b RANKS=4 examples/mpi.sh COMMAND...
#
# Over several hosts a build with -DLS_MPI=ON talks through MPI; any other meets by TCP at MASTER [the first host] and
# PORT [29500], and then needs LOCKSTEP_SECRET.
set -euo pipefail
[ $# -gt 0 ] || set -- build/lockstep train "$(dirname "$0")/gpt_tiny.json"
if [ -z "${HOSTS:-}" ]; then
    exec mpirun -n "${RANKS:-2}" "$@"
fi
export LOCKSTEP_SECRET=${LOCKSTEP_SECRET:-$(openssl rand -hex 32)}
export MASTER_ADDR=${MASTER:-${HOSTS%%[,:]*}} MASTER_PORT=${PORT:-29500}
if mpirun --version 2>&1 | grep -q 'Open MPI\|Open RTE'; then # it hands down only what is named; MPICH hands down all
    exec mpirun -n "${RANKS:-2}" --host "$HOSTS" -x LOCKSTEP_SECRET -x MASTER_ADDR -x MASTER_PORT "$@"
fi
exec mpirun -n "${RANKS:-2}" -hosts "$HOSTS" "$@"
