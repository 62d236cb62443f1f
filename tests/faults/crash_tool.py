"""crash_tool.py - a store, and checkpoint_tool.c that saves into it, for the tests of crashes.

    crash_tool.base(folder)                         a store with step 1
    crash_tool.tool(folder, "load", "store").stdout

TOOL is the script's second argument.
"""
import os
import shutil
import subprocess
import sys

import cli

TOOL = os.path.abspath(sys.argv[2])
LONG = "long" in sys.argv
CALLS = ["openat", "open", "write", "fsync", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir", "close",
         "statfs", "fstatfs", "newfstatat", "fstat", "getdents64"]
FAULTS = {"killed": "signal=KILL", "ENOSPC": "error=ENOSPC", "EIO": "error=EIO"}


def tool(folder, *args):
    return subprocess.run([TOOL, *args], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60)


def base(folder, name="store"):
    """A store with step 1, which a save of step 2 (keep 1) is to replace."""
    store = os.path.join(folder, name)
    shutil.rmtree(store, ignore_errors=True)
    if not os.path.isdir(os.path.join(folder, "base")):
        cli.equal(tool(folder, "save", "base", "1").stdout, "saved 1\n", "the first save")
    shutil.copytree(os.path.join(folder, "base"), store)
    return store


def can_trace():
    """Is there an strace that may hold processes, also others than its children?"""
    if not shutil.which("strace"):
        return False
    return subprocess.run(["sh", "-c", "sleep 5 & strace -qq -o /dev/null -p $! & sleep 0.1; kill %1; wait %2"], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0
