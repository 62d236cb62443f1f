#!/usr/bin/env python3
"""docs_commands.py LOCKSTEP BUILD TOP [long] [PAGE...] - commands of README.md and docs/*.md work as they are written.

Each page gets a folder of its own: a copy of what a clone has, build/ with the built programs, and HOME with Lockstep
installed below it.  The page's blocks run there in order, each as one script of bash -euo pipefail:

    ```sh                    runs
    ```sh long               runs with `long` alone, where the README begins without build/, as in a fresh clone
    ```sh notest REASON      does not run: several hosts, a package, a place in the reader's own files
    ```c FILE, ```json FILE  goes to FILE, behind the page's earlier blocks of that name

A block without an info word, or an indented one, holds no commands: one that looks as if it did is a failure, so
nothing escapes.  Two pages run at a time.
"""
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import time

import cli

BUILD, TOP, LONG = os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3]), sys.argv[4:5] == ["long"]
BLOCK_S = 1200 if LONG else 300  # of a block; seconds on a machine that is not busy
COPIED = ["README.md", "docs", "examples", "cmake"]
COMMAND = re.compile(r"\s*(\./|build/|examples/|docs/\w+\.py|tests/|lockstep |sudo |mpirun |srun |sbatch |torchrun |cmake |"
                     r"cc |export |python3 )")
FENCE = re.compile(r"^```(\S*)[ ]?(.*)$")


def read_blocks(path):
    """[(line, language, info words, text)]; indented blocks have the language "indented"."""
    blocks, at, lines = [], None, open(path, encoding="utf-8").read().splitlines()
    for i, line in enumerate(lines):
        fence = FENCE.match(line)
        if fence and at is None:
            at, language, info = i, fence[1], fence[2].split()
        elif fence:
            blocks.append((at + 1, language, info, "\n".join(lines[at + 1:i]) + "\n"))
            at = None
        elif at is None and line.startswith("    "):
            blocks.append((i + 1, "indented", [], line))
    return blocks


def environment(folder, home):
    pc = glob.glob(os.path.join(home, ".local", "lib*", "**", "pkgconfig"), recursive=True)
    libraries = [os.path.dirname(p) for p in pc]
    return {**os.environ, "HOME": home, "PATH": f"{folder}/build:{os.environ['PATH']}", "LOCKSTEP_NO_INSTALL": "1",
            "PKG_CONFIG_PATH": ":".join(pc), "LD_LIBRARY_PATH": ":".join(libraries)}


def copy_clone(folder, fresh):
    os.makedirs(folder)
    for name in os.listdir(TOP) if fresh else COPIED:
        if name in (".git", "runs", "outputs") or name.startswith("build"):
            continue
        at, to = os.path.join(TOP, name), os.path.join(folder, name)
        shutil.copytree(at, to) if os.path.isdir(at) else shutil.copy2(at, to)
    if not fresh:
        link_programs(os.path.join(folder, "build"))


def link_programs(build):
    for base in (BUILD, os.path.join(BUILD, "tutorial")):
        to = os.path.join(build, os.path.relpath(base, BUILD))
        os.makedirs(to, exist_ok=True)
        for entry in os.scandir(base):
            if entry.is_file() and os.access(entry.path, os.X_OK):
                os.symlink(entry.path, os.path.join(to, entry.name))


def judge_unrun(where, language, text):
    for line in text.splitlines() if language in ("", "indented") else []:
        if COMMAND.match(line):
            return f"{where}: a command outside of a ```sh block: {line.strip()}"
    return None


def run_script(where, text, folder, env):
    """None, or what went wrong."""
    try:
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=env, timeout=BLOCK_S, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    except subprocess.TimeoutExpired:
        return f"{where}: not done within {BLOCK_S} s"
    return None if done.returncode == 0 else f"{where}: exit {done.returncode}: {done.stdout[-1500:]}"


def run_page(page, scratch, home):
    """(page, seconds, scripts run, failures)"""
    start, ran, failures = time.monotonic(), 0, []
    folder = os.path.join(scratch, page.replace("/", "-"))
    copy_clone(folder, LONG and page == "README.md")
    env = environment(folder, home)
    for line, language, info, text in read_blocks(os.path.join(TOP, page)):
        where, failure = f"{page}:{line}", None
        if language in ("c", "json") and info:
            with open(os.path.join(folder, info[0]), "a", encoding="utf-8") as f:
                f.write(text)
        elif language != "sh":
            failure = judge_unrun(where, language, text)
        elif info[:1] == ["notest"]:
            failure = None if info[1:] else f"{where}: notest without a reason"
        elif info not in ([], ["long"]):
            failure = f"{where}: ```sh {' '.join(info)}: want long, or notest with a reason"
        elif LONG or not info:
            ran += 1
            failure = run_script(where, text, folder, env)
        if failure:
            failures.append(failure)
    return page, time.monotonic() - start, ran, failures


def main():
    everything = sorted(os.path.relpath(p, TOP) for p in glob.glob(os.path.join(TOP, "docs", "*.md")))
    pages = sys.argv[4 + LONG:] or ["README.md", *everything]
    with cli.workspace() as scratch:
        home = os.path.join(scratch, "home")
        os.makedirs(home)
        installed = subprocess.run(["cmake", "--install", BUILD, "--prefix", os.path.join(home, ".local")],
                                   stdout=subprocess.DEVNULL, check=False)
        cli.row("install")
        cli.equal(installed.returncode, 0, "exit status of cmake --install")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for page, seconds, ran, failures in pool.map(lambda p: run_page(p, scratch, home), pages):
                cli.row(page)
                print(f"{page}: {ran} blocks, {seconds:.1f} s", flush=True)
                cli.check(not failures, "\n".join(failures))
    cli.finish()


if __name__ == "__main__":
    main()
