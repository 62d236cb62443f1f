#!/usr/bin/env python3
"""test_terminal.py LOCKSTEP - what a person sees: a living line on a terminal, plain lines elsewhere, log.txt of both."""
import os
import pty
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

CHANGES = {"run__steps": 400, "log__every": 100, "eval__every": 200}


def on_terminal(folder, *args, **env):
    """All that a pseudo-terminal received."""
    master, slave = pty.openpty()
    p = subprocess.Popen([cli.command(), *cli.fresh(["train", "c.json", *args])], cwd=folder, stdin=subprocess.DEVNULL,
                         stderr=slave, env={**os.environ, "TERM": "xterm", **env})
    os.close(slave)
    text = b""
    while True:
        try:
            more = os.read(master, 65536)
        except OSError:  # how Linux tells the end
            more = b""
        if not more:
            break
        text += more
    os.close(master)
    cli.equal(p.wait(cli.LIMIT_S), 0, "exit status")
    return text.decode()


def log(folder):
    return cli.read(folder, "r", "log.txt").decode()


def test_living_line(folder):
    """Between the logged lines one that is rewritten, and nothing of it in the end."""
    cli.row("terminal")
    seen = on_terminal(folder)
    drawn = re.findall(r"\r\033\[K\033\[\?7l(step \d+/400 [^\r\n\033]*)\033\[\?7h", seen)
    cli.check(drawn, "a living line")
    stays = re.sub(r"\r\033\[K(\033\[\?7l[^\r\n\033]*\033\[\?7h)?", "", seen).replace("\r\n", "\n")
    cli.equal(stays, log(folder), "what stays is log.txt")
    cli.check("\033" not in log(folder), "no escapes in log.txt")


def test_plain(folder):
    for name, args, env in [("dumb terminal", [], {"TERM": "dumb"}), ("no name", [], {"TERM": ""}),
                            ("log.progress plain", ["--set", "log.progress=plain"], {})]:
        cli.row(name)
        seen = on_terminal(folder, *args, **env)
        cli.check("\033" not in seen, "no escapes")
        cli.equal(seen.replace("\r\n", "\n"), log(folder), "log.txt")
    cli.row("not a terminal")
    r = cli.run(folder, "train", "c.json")
    cli.equal(r.stderr, log(folder), "log.txt")
    steps = re.findall(r"^step (\d+)/400 ", r.stderr, re.M)
    cli.equal(steps, ["1", "100", "200", "300", "400"], "lines")
    cli.equal(re.findall(r"^step (\d+)  validation loss", r.stderr, re.M), ["200", "400"], "evaluations")
    for word in ("loss ", "lr ", "norm ", "tok/s", "% of sgemm", "mem ", "left "):
        cli.check(word in r.stderr, f"{word!r} in the lines")
    for word in ("OpenBLAS", "kernel", "1 thread", "parameters", "vocabulary", "done after step 400"):
        cli.check(word in r.stderr, f"{word!r} in the log")


def test_quiet(folder):
    cli.row("quiet")
    r = cli.run(folder, "train", "c.json", "--set", "log.progress=none")
    cli.check_ok(r)
    cli.equal((r.stdout, cli.warnings(r.stderr)), ("", []), "output")
    cli.equal(len(r.stderr.splitlines()), r.stderr.count("warning: "), "lines that are no warnings")
    cli.check("done after step 400" in log(folder), "log.txt tells")


def test_held_back(folder):
    """A BLAS that the environment holds to an old kernel is worth a warning, where the processor has more."""
    cli.row("held back")
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        if not re.search(r"\bavx2\b", file.read()):
            return
    r = cli.run(folder, "train", "c.json", "--set", "run.steps=1", env={**os.environ, "OPENBLAS_CORETYPE": "Nehalem"})
    cli.check_ok(r)
    cli.check("warning: OPENBLAS_CORETYPE=Nehalem holds OpenBLAS to its Nehalem kernel" in r.stderr, r.stderr[:300])
    free = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    r = cli.run(folder, "train", "c.json", "--set", "run.steps=1", env=free)
    cli.check_ok(r)
    cli.check("OPENBLAS_CORETYPE" not in r.stderr, "no warning without the variable")


def main():
    with cli.workspace() as folder:
        cli.write_config(folder, **CHANGES)
        for test in (test_living_line, test_plain, test_quiet, test_held_back):
            test(folder)
    cli.finish()


if __name__ == "__main__":
    main()
