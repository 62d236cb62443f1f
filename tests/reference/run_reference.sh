#!/usr/bin/env bash
# run_reference.sh SCRIPT [ARGUMENTS] - one reference script with the Python that has the references: $LOCKSTEP_PYTHON,
# else build/venv's (LOCKSTEP_VENV), else python3.  Exit 77 means skipped, unless LOCKSTEP_REQUIRE_REFERENCES=1.
set -uo pipefail
python=${LOCKSTEP_PYTHON:-${LOCKSTEP_VENV:-}/bin/python}
command -v "$python" >/dev/null || python=python3
PYTHONDONTWRITEBYTECODE=1 "$python" "$@"
status=$?
if [ $status = 77 ] && [ "${LOCKSTEP_REQUIRE_REFERENCES:-}" = 1 ]; then
    echo "LOCKSTEP_REQUIRE_REFERENCES=1: a skipped reference is a failure"
    status=1
fi
exit $status
