#!/usr/bin/env python3
"""campaign.py LOCKSTEP [--seed S] [--rounds N | --round K] [--kind NAME] [--workers W] [--jsonl FILE]
- real trainings, a fault at a random moment of each, and a judge.

A round trains a small model on 2 to 4 ranks, under DDP or FSDP, over shared memory or TCP, and does one harm to it
(campaign_faults.py).  It is passed where everything ended in time, the culprit was named, the run went on to the
state_sha256 and metrics of the undisturbed one, and nothing is left.  All that is drawn comes from S and the round's
number; moments are steps and states of the run, so the scheduler has its say too.  A round that fails prints the
command that repeats it.  --jsonl appends a line for each round, of which campaign_table.py makes the table in
docs/reliability.md.
"""
import argparse
import concurrent.futures
import contextlib
import ctypes
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cli  # noqa: E402
from campaign_faults import FAULTS, lacks  # noqa: E402
from campaign_round import Round, TooLate  # noqa: E402

ATTEMPTS = 5  # rounds whose training is over before its fault comes are drawn again


def attempt(seed, number, kind):
    for i in range(ATTEMPTS):
        with cli.workspace() as folder:
            r = Round(seed, number, i, folder)
            cli.row(f"tests/faults/campaign.py {sys.argv[1]} --seed {seed} --round {number} --kind '{kind}'")
            try:
                FAULTS[kind](r)
            except TooLate:
                continue
            finally:
                r.close()
            return r
    raise RuntimeError(f"{kind}: the training was over {ATTEMPTS} times before the fault came")


def play(seed, number, kind):
    """A round's line for the record; what its checks said is in `failures`."""
    began, said, line = time.monotonic(), io.StringIO(), {"seed": seed, "round": number, "kind": kind}
    with contextlib.redirect_stdout(said):
        try:
            r = attempt(seed, number, kind)
            line |= {"model": r.model, "ranks": r.n, **r.how, "moment": r.moment, "named_s": r.named_s, "message": r.message}
        except Exception:  # of the judge's own: a round is never lost silently
            print("FAIL " + traceback.format_exc())
        except SystemExit:
            os._exit(1)  # end_with_parent: the pool would go on with the next round
    line["seconds"] = round(time.monotonic() - began, 3)
    line["failures"] = said.getvalue()
    return line


def end_with_parent():
    """In a worker: it ends with this process, however that ended, and tidies up."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def rounds(args):
    """[(number, kind)]: the kinds in turn, or those whose name has --kind in it; without what this machine cannot do."""
    kinds = [k for k in FAULTS if args.kind in k]
    missing = {k: lacks(k) for k in kinds}
    for kind, why in missing.items():
        if why:
            print(f"skipped: {kind}: {why}")
    numbers = range(args.rounds) if args.round is None else [args.round]
    return [(n, kinds[n % len(kinds)]) for n in numbers if not missing[kinds[n % len(kinds)]]]


def run(args):
    todo, failed, began = rounds(args), 0, time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(args.workers, initializer=end_with_parent) as pool, \
            open(args.jsonl or os.devnull, "a") as record:
        for future in concurrent.futures.as_completed([pool.submit(play, args.seed, *what) for what in todo]):
            line = future.result()
            print(json.dumps(line), file=record, flush=True)
            failed += bool(line["failures"])
            if line["failures"] or args.verbose:
                print(f"round {line['round']}, {line['kind']}, {line['seconds']} s: "
                      f"{line['failures'] or line.get('message')}", flush=True)
    print(f"campaign: {len(todo)} rounds, {failed} failed, seed {args.seed}, {time.monotonic() - began:.0f} s")
    return 1 if failed or not todo else 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("lockstep")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--rounds", type=int, default=len(FAULTS))
    p.add_argument("--round", type=int)
    p.add_argument("--kind", default="")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--jsonl")
    p.add_argument("--verbose", action="store_true")
    args = p.parse_args()
    # A mount of a round must not outlive it, however it ends.
    if os.geteuid() == 0 and "LS_TEST_UNSHARED" not in os.environ and shutil.which("unshare") and not subprocess.run(
            ["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        os.environ["LS_TEST_UNSHARED"] = "1"
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv])
    sys.exit(run(args))


if __name__ == "__main__":
    main()
