#!/usr/bin/env python3
"""check_launchers.py torchrun|mpirun PROGRAM - the whole table of collectives under somebody else's launcher.

PROGRAM is test_collective; it joins by what the launcher's environment says.  Under torchrun a second time with a
secret, by TCP, on a port behind that of the agent's store; and once more so that the first attempt fails and the
launcher starts all of them again.
"""
import os
import shutil
import subprocess
import sys

LAUNCHER, PROGRAM = sys.argv[1:3]
RANKS = 3  # halving wants a power of two: the table passes over it; then 4 with all

RESTARTED = """
if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && [ "$RANK" = 1 ]; then exit 9; fi
exec "$0" env thin
"""


def torchrun(n, *command):
    return [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone", f"--nproc-per-node={n}", *command]


def mpirun(n, *command):
    return ["mpirun", "-n", str(n), *command]


MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_plm_rsh_agent": "/bin/false",
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def run(command, n, **variables):
    """All n ranks pass, and say how they were joined."""
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=200)
    passed = done.stdout.count(" 0 failures")
    over = [line for line in done.stdout.splitlines() if line.startswith(f"{n} ranks over ")]
    ok = done.returncode == 0 and passed == n and len(over) == 1
    print(f"{'ok' if ok else 'FAIL'}: {' '.join(command[-6:])}: {over}", flush=True)
    if not ok:
        print(done.stdout[-3000:], done.stderr[-3000:])
    return ok


def have_torchrun():
    return subprocess.run([sys.executable, "-c", "import torch.distributed.run"], capture_output=True).returncode == 0


def main():
    if LAUNCHER == "torchrun":
        if not have_torchrun():
            print("torchrun: skipped: no Python with torch (LOCKSTEP_PYTHON)")
            return 77
        again = torchrun(2, "--max-restarts=1", "sh", "-c", RESTARTED, PROGRAM)
        again.remove("--max-restarts=1")
        again.insert(again.index("--no-python"), "--max-restarts=1")
        ok = [run(torchrun(RANKS, PROGRAM, "env"), RANKS), run(torchrun(4, PROGRAM, "env"), 4),
              run(torchrun(2, PROGRAM, "env", "thin"), 2, LOCKSTEP_SECRET="a secret of this job"), run(again, 2)]
    else:
        if not shutil.which("mpirun"):
            print("mpirun: skipped: not installed")
            return 77
        ok = [run(mpirun(RANKS, PROGRAM, "env"), RANKS, **MPI_AS_ROOT), run(mpirun(4, PROGRAM, "env"), 4, **MPI_AS_ROOT)]
    return 0 if all(ok) else 1


sys.exit(main())
