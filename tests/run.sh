#!/usr/bin/env bash
# run.sh - installs what the tests need, builds Lockstep in build/ and runs ctest; arguments go to ctest.
#
#   tests/run.sh                    everything but what is labelled `long`
#   tests/run.sh -R gpt             only tests whose names match
#
# PyTorch, numpy, safetensors, jsonschema, tokenizers, transformers and tensorboard go into a virtual environment,
# build/venv, with pip; set LOCKSTEP_PYTHON to a Python that has them to use that one.  A reference that is missing is reported as
# skipped, by name.  LOCKSTEP_REQUIRE_REFERENCES=1 turns each such skip into a failure, LOCKSTEP_NO_INSTALL=1
# installs nothing (pip is still used when references are required).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=cmake/needs.sh
. cmake/needs.sh

has_module() { "$LOCKSTEP_PYTHON" -c "import $1" 2>/dev/null; }

may_pip() { [ "${LOCKSTEP_NO_INSTALL:-}" != 1 ] || [ "${LOCKSTEP_REQUIRE_REFERENCES:-}" = 1 ]; }

pip_install() { "$LOCKSTEP_PYTHON" -m pip install -q --prefer-binary "$@"; }

# The build for CPUs is a tenth of the plain one, where an index offers it.
install_torch() {
    pip_install torch==2.13.0+cpu 2>/dev/null || pip_install torch==2.13.0 2>/dev/null || pip_install torch
}

install_module() { # MODULE
    echo "installing with pip into build/venv: $1"
    if [ "$1" = torch ]; then install_torch; else pip_install "$1"; fi
}

references() {
    local module
    if [ -z "${LOCKSTEP_PYTHON:-}" ]; then
        if [ ! -x build/venv/bin/python ] && may_pip; then
            python3 -m venv --system-site-packages build/venv || rm -rf build/venv
        fi
        LOCKSTEP_PYTHON=$PWD/build/venv/bin/python
        [ -x "$LOCKSTEP_PYTHON" ] || LOCKSTEP_PYTHON=python3
    fi
    export LOCKSTEP_PYTHON
    for module in numpy torch safetensors jsonschema tokenizers transformers tensorboard; do
        has_module "$module" && continue
        if [ "$LOCKSTEP_PYTHON" = "$PWD/build/venv/bin/python" ] && may_pip && install_module "$module"; then
            continue
        fi
        echo "skipped: references that need Python's $module, which is missing"
    done
}

install_test_needs
mkdir -p build
references
configure release build -DLS_BUILD_TESTS=ON -DLS_MPI="$(has_mpi && echo ON || echo OFF)"
cmake --build build --parallel 2
exec ctest --test-dir build --output-on-failure -j2 --no-tests=error -LE '^long$' "$@"
