#!/bin/sh
# test_dev_shm.sh - ranks that share memory need nothing of /dev/shm and leave nothing there.
#
#     test_dev_shm.sh PROGRAM...
#
# Runs each program with the argument "shm" where /dev/shm is a tmpfs of 1 MiB, less than one
# buffer of theirs, as containers have it; then where there is no /dev/shm at all.  In the
# first it must be empty afterwards, although the programs' ranks were killed.  Needs root and
# a mount namespace of its own; else it is skipped (77).
set -eu

if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
    echo "skipped: dev_shm: needs root and unshare -m"
    exit 77
fi

if [ "${1-}" != inside ]; then
    unshare -m "$0" inside small "$@"
    unshare -m "$0" inside absent "$@"
    exit 0
fi

case $2 in
small)
    mount -t tmpfs -o size=1m tmpfs /dev/shm
    [ "$(df -k --output=size /dev/shm | tail -1)" -eq 1024 ]
    ;;
absent)
    dev=$(mktemp -d)
    mount -t tmpfs tmpfs "$dev"
    for node in null zero full random urandom; do
        : >"$dev/$node"
        mount --bind "/dev/$node" "$dev/$node"
    done
    ln -s /proc/self/fd "$dev/fd"
    mount --move "$dev" /dev
    rmdir "$dev"
    [ ! -e /dev/shm ]
    ;;
esac
where=$2
shift 2
for program; do
    "$program" shm || {
        echo "FAIL: $program shm, /dev/shm $where"
        exit 1
    }
done
[ "$where" != small ] || [ -z "$(ls -A /dev/shm)" ] || {
    echo "FAIL: left in /dev/shm: $(ls -A /dev/shm)"
    exit 1
}
echo "dev_shm: $where: passed"
