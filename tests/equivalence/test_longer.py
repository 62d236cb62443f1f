"""test_longer.py - a run whose steps are increased, and one that has them all already.

    test_longer.py LOCKSTEP

The schedule is part of the state: more steps alone do not stretch it, a stretched one must be meant.  What stops and goes
on elsewhere are rows of test_table.py.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cli  # noqa: E402


def test_longer(folder):
    """A larger run.steps alone does not stretch the schedule, which is part of the state."""
    cli.row("more steps")
    cli.write_config(folder, batch={"global": 12, "micro": 1}, optim__schedule={"warmup": 2}, eval__every=5)
    cli.check_ok(cli.run(folder, "train", "c.json", "--set", "run.dir=longer", "--set", "run.steps=20"))
    r = cli.run(folder, "train", "c.json", "--resume", "auto", "--set", "run.dir=longer", "--set", "run.steps=25")
    cli.check_ok(r)
    rates = [float(m["lr"]) for m in cli.metrics(folder, "longer") if "lr" in m]
    cli.equal((len(rates), rates[20:]), (25, [1e-4] * 5), "the schedule ended with step 20")
    cli.row("a schedule that is given")
    r = cli.run(folder, "train", "c.json", "--resume", "auto", "--set", "run.dir=longer", "--set", "run.steps=30", "--set",
                "optim.schedule.steps=30")
    cli.check_error(r, 2, "optim.schedule.steps is 30", "has 20", "--allow-change")
    r = cli.run(folder, "train", "c.json", "--resume", "auto", "--set", "run.dir=longer", "--set", "run.steps=30", "--set",
                "optim.schedule.steps=30", "--allow-change", "optim.schedule.steps")
    cli.check_ok(r)
    cli.row("finished")
    before = cli.summary(folder, "longer")
    r = cli.run(folder, "train", "c.json", "--resume", "auto", "--set", "run.dir=longer", "--set", "run.steps=30",
                "--set", "optim.schedule.steps=30")
    cli.check_ok(r)
    cli.check("reached already" in r.stderr and "verified" in r.stderr, "it says so")
    after = cli.summary(folder, "longer")
    cli.equal({**after, "seconds": 0}, {**before, "seconds": 0}, "the summary again")
    inspected = json.loads(cli.run(folder, "inspect", "longer", "--json").stdout)
    cli.equal(inspected["state_sha256"], after["state_sha256"], "inspect's state_sha256")


def main():
    with cli.workspace() as folder:
        test_longer(folder)
    cli.finish()


main()
