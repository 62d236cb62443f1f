#!/usr/bin/env bash
# torchrun.sh [COMMAND...] - ranks started by torchrun: on this host, or on several.
#
#     examples/torchrun.sh build/lockstep train examples/gpt_tiny.json
#
#     on each of 2 hosts, with the same secret and the address of the first:
#     LOCKSTEP_SECRET=... NODES=2 NODE=0 MASTER=10.0.0.1 examples/torchrun.sh COMMAND...
#
# RANKS [2] for each host.  torchrun's own store takes PORT [29500], rank 0 the next free one.
set -euo pipefail
[ $# -gt 0 ] || set -- build/lockstep train "$(dirname "$0")/gpt_tiny.json"
if [ "${NODES:-1}" = 1 ]; then
    exec torchrun --standalone --no-python --nproc-per-node="${RANKS:-2}" "$@"
fi
: "${LOCKSTEP_SECRET:?export the same value on every host, for instance from: openssl rand -hex 32}"
exec torchrun --no-python --nnodes="$NODES" --node-rank="${NODE:?which host this is, from 0}" \
    --master-addr="${MASTER:?the address of host 0}" --master-port="${PORT:-29500}" --nproc-per-node="${RANKS:-2}" "$@"
