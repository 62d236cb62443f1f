#!/usr/bin/env python3
"""test_examples.py LOCKSTEP TOP - the scripts of examples/ do what their first lines say, on a few steps of a small text.

The scripts that compare runs end with `lockstep diff`, so their exit status is the verdict; what they tell the reader
to look at must be there.  Launchers that are not installed are skipped; Slurm's srun is played by tests/fake_srun.sh.
"""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402
import jobs  # noqa: E402

TOP = os.path.abspath(sys.argv[2])


def script(folder, name, *args, limit=120, **variables):
    env = {**os.environ, "LOCKSTEP": cli.command(), "RUNS": os.path.join(folder, "runs"),
           "DATA": os.path.join(folder, "text.txt"), **variables}
    return subprocess.run([os.path.join(TOP, "examples", name), *args], cwd=folder, env=env, timeout=limit, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def judge(r, *texts):
    cli.equal(r.returncode, 0, f"exit status ({r.stdout[-800:]!r})")
    for text in texts:
        cli.check(text in r.stdout, f"{text!r} is not in {r.stdout[-800:]!r}")


def started(folder, name, command, world, **variables):
    """A script that only starts ranks; runs `command` itself."""
    train = ["train", cli.write_config(folder, run__dir=name, batch__micro=1)]
    r = script(folder, command, cli.command(), *train, **variables)
    judge(r)
    if r.returncode == 0:
        cli.equal(cli.summary(folder, name)["world_size"], world, "world_size")
        cli.equal(cli.summary(folder, name)["state_sha256"], cli.summary(folder)["state_sha256"], "hash of the state")


def test_launchers(folder):
    cli.check_ok(cli.run(folder, "train", cli.write_config(folder, batch__micro=1)))  # the truth, in r
    cli.row("slurm.sbatch")
    bin_folder = os.path.join(folder, "bin")
    os.makedirs(bin_folder)
    shutil.copy(os.path.join(TOP, "tests", "fake_srun.sh"), os.path.join(bin_folder, "srun"))
    started(folder, "slurm", "slurm.sbatch", 4, PATH=f"{bin_folder}:{os.environ['PATH']}")
    cli.row("mpi.sh")
    if shutil.which("mpirun"):
        started(folder, "mpi", "mpi.sh", 2, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_plm_rsh_agent="/bin/false")
    else:
        cli.skip("mpirun is not installed")
    cli.row("torchrun.sh")
    python = jobs.python_with_torch()
    torchrun = python and os.path.join(os.path.dirname(python), "torchrun")
    if torchrun and os.path.exists(torchrun):
        started(folder, "torchrun", "torchrun.sh", 2, PATH=f"{os.path.dirname(python)}:{os.environ['PATH']}")
    else:
        cli.skip("torchrun is not installed")


with cli.workspace() as folder:
    cli.row("own_text.sh")
    judge(script(folder, "own_text.sh", os.path.join(folder, "text.txt"), STEPS="20", VOCAB="300"), '"val_loss"',
          "what it writes")
    cli.row("own_text.sh without a text")
    cli.equal(script(folder, "own_text.sh").returncode, 2, "exit status")
    cli.row("bf16.sh")
    judge(script(folder, "bf16.sh", STEPS="6"), "bf16-f32: ", "bf16-one: ", "identical")
    cli.row("hop.sh")
    judge(script(folder, "hop.sh", STEPS="6"), "going on after step 2", "going on after step 4", "identical")
    cli.row("survive.sh")
    judge(script(folder, "survive.sh", STEPS="60"), "was killed by signal 9", "going on after step 20", "identical")
    test_launchers(folder)
cli.finish()
