#!/usr/bin/env bash
# readme.sh BUILD WORK - the README's program, as a reader would take it: its text is that of
# examples/mlp_spiral.c, it compiles against the installed tree alone, and it learns.
set -euo pipefail
build=$1 work=$2
top=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/installed" >"$work/install.log"

fail() {
    echo "FAIL $*"
    exit 1
}

# The README's only block of C; the expressions are sed's.
# shellcheck disable=SC2016
sed -n '/^```c$/,/^```$/p' "$top/README.md" | sed '/^```/d' >"$work/program.c"
[ -s "$work/program.c" ] || fail "README.md has no block of C"
diff "$top/examples/mlp_spiral.c" "$work/program.c" || fail "README.md and examples/mlp_spiral.c differ"

pc=$(find "$work/installed" -name lockstep.pc)
export PKG_CONFIG_PATH=${pc%/lockstep.pc}
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Wpedantic -Werror -o "$work/program" "$work/program.c" $(pkg-config --cflags --libs lockstep) -lm
LD_LIBRARY_PATH=${PKG_CONFIG_PATH%/pkgconfig} "$work/program" | tee "$work/output"

accuracy=$(sed -n 's/.*accuracy *\([0-9.]*\) %.*/\1/p' "$work/output" | tail -n1)
awk -v a="$accuracy" 'BEGIN { exit !(a > 95) }' || fail "accuracy $accuracy %, want more than 95"
losses=$(sed -n 's/.*loss *\([0-9.]*\).*/\1/p' "$work/output")
first=$(echo "$losses" | head -n1) last=$(echo "$losses" | tail -n1)
awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < a) }' || fail "the loss went from $first to $last"
