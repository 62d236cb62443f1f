#!/usr/bin/env bash
# coverage.sh - how many lines of the library the tests run: builds in build/coverage, runs the tests labelled
# `unit` or `dist` one at a time, prints the share of each layer and the lines that nothing ran.  Fails below 90 %
# in core, autograd, dist or checkpoint.  docs/reliability.md says what is left, and why.
#
#   tests/coverage.sh             everything (half an hour and more: one test at a time)
#   tests/coverage.sh --report    the counters of the last run again
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=cmake/needs.sh
. cmake/needs.sh
build=build/coverage

measure() {
    install_test_needs
    needs gcovr=gcovr
    configure coverage "$build" -DLS_BUILD_TESTS=ON -DLS_MPI="$(has_mpi && echo ON || echo OFF)"
    cmake --build "$build" --parallel 2
    find "$build" -name '*.gcda' -delete
    # A failed test is told of, and the lines are counted all the same: gcov's own work makes some late.
    nice ctest --test-dir "$build" --output-on-failure -j1 --no-tests=error \
        -L '^(unit|dist)$' -LE '^(reference|slow|long|source|install|fuzz)$' || echo "coverage.sh: some tests failed"
}

[ "${1:-}" = --report ] || measure
# The objects of the library in float and in double: a line counts when either ran it.
gcovr --root . --json "$build/coverage.json" "$build/CMakeFiles/ls_objects.dir" "$build/CMakeFiles/ls_f64_objects.dir"
python3 tests/coverage.py "$build/coverage.json"
