#!/usr/bin/env bash
# compare_variants.sh FILE PROGRAM... - test_ops_f32 with the kernels of each instruction set: all within the
# bounds against FILE, all with the same bits.
set -euo pipefail
file=$1 first=
shift
for program in "$@"; do
    case $program in
    *avx2) grep -qw avx2 /proc/cpuinfo || { echo "skipped: no AVX2 here"; continue; } ;;
    esac
    output=$("$program" "$file") || { echo "$output"; exit 1; }
    bits=$(grep '^bits ' <<<"$output")
    echo "${program##*/}: $bits"
    [ "${first:=$bits}" = "$bits" ] || { echo "FAIL: the variants differ"; exit 1; }
done
