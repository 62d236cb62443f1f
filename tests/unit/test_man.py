#!/usr/bin/env python3
"""test_man.py - `--help`, the man pages and the completion are one text, and the options are those that exist.

    test_man.py LOCKSTEP MAN_DIR

For every command: each option of its help is taken, each option that it takes stands in the help; its page
exists and has no error for groff and mandoc, where they are installed; completion offers just these words.
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

PAGES = os.path.abspath(sys.argv[2])


def help_of(folder, *words):
    r = cli.run(folder, *words, "--help")
    cli.check_ok(r)
    return r.stdout


def commands(folder):
    return re.findall(r"^  ([a-z]+) ", help_of(folder), re.M)


def rows(text):
    """{option: its value or ""} of the rows of a help text."""
    found = {}
    for line in re.findall(r"^  (-.*)$", text, re.M):
        head = re.split(r"  +", line)[0]
        names = re.findall(r"(?:^|, )(--?[a-z][a-z-]*)", head)
        value = re.sub(r"(?:^|, )--?[a-z][a-z-]*", "", head).strip()
        found.update({name: value for name in names})
    return found


def taken(folder, words):
    """The long options that the command says it has; None where it does not say."""
    text = cli.run(folder, *words, "--no-such-option").stderr
    m = re.search(r"it has (.*); see lockstep", text)
    return set(m[1].split(", ")) if m else None


def check_options(folder, words):
    text, known = help_of(folder, *words), taken(folder, words)
    documented = set(rows(text))
    cli.check("--help" in documented, "--help has a row")
    for option in (o for o in documented if not re.fullmatch("-h|--help", o)):
        r = cli.run(folder, *words, option)
        cli.check("unknown option" not in r.stderr, f"{option} stands in the help and is unknown")
    for option in sorted((known or set()) - documented):
        short = {"--output": "-o", "--nproc": "-n"}.get(option)
        if short in documented:
            continue
        r = cli.run(folder, *words, "c.json", option, "1")
        cli.check("not in this version" in r.stderr, f"{option} is taken and does not stand in the help: {r.stderr}")
    usage = text.split("\n\n")[0]
    own = [line for line in usage.splitlines() if "it has a --help" not in line]
    for option in set(re.findall(r"[\[ ](--[a-z-]+)", "\n".join(own))) - {"--"}:
        cli.check(option in documented, f"{option} stands in the usage and has no row")


def check_page(path, must):
    if not cli.check(os.path.exists(path), f"{path} exists"):
        return
    with open(path) as f:
        plain = f.read().replace("\\-", "-")
    for text in must:
        cli.check(text in plain, f"{text!r} is not in {path}")
    for tool in (["groff", "-mandoc", "-ww", "-z", path], ["mandoc", "-Tlint", "-W", "error", path]):
        if shutil.which(tool[0]):
            r = subprocess.run(tool, capture_output=True, text=True, timeout=30)
            cli.check(not r.stdout + r.stderr, f"{' '.join(tool)}: {r.stdout}{r.stderr}")


def complete(folder, *words):
    """What completion offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    script = (f". '{PAGES}/lockstep.bash'; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _lockstep; "
              'printf "%s\\n" "${COMPREPLY[@]}"')
    r = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=30)
    cli.check(not r.stderr, f"completion of {words}: {r.stderr}")
    return sorted(word for word in r.stdout.split("\n") if word)


COMPLETIONS = [
    (["lockstep", "ev"], ["eval"]),
    (["lockstep", "train", "--np"], ["--nproc"]),
    (["lockstep", "train", "--nproc", ""], []),
    (["lockstep", "train", "te"], ["text.txt"]),
    (["lockstep", "train", "c.json", "--set", "optim.b"], ["optim.betas="]),
    (["lockstep", "init", "c.json", "-o", "te"], ["text.txt"]),
    (["lockstep", "bench", "ge"], ["gemm"]),
    (["lockstep", "bench", "collectives", "--tr"], ["--transport"]),
    (["lockstep", "bench", "collectives", "--memory", ""], ["heap", "ordinary"]),
    (["lockstep", "bench", "collectives", "--algorithm", "t"], ["tree"]),
    (["lockstep", "bench", "train", "--st"], ["--steps"]),
    (["lockstep", "run", "-n", "2", "--", "program", "te"], ["text.txt"]),
    (["lockstep", "run", "--max"], ["--max-restarts"]),
]


def main():
    with cli.workspace() as folder:
        cli.write_config(folder)
        known = commands(folder)
        for words in [[name] for name in known] + [["bench", "collectives"]]:
            cli.row(" ".join(words))
            check_options(folder, words)
            text = help_of(folder, *words)
            name = "-".join(["lockstep", *words])
            check_page(os.path.join(PAGES, name + ".1"), [f".SH NAME\n{name} - ", *rows(text)])
            offered = complete(folder, "lockstep", *words, "-")
            cli.equal(offered, sorted(rows(text)), "what completion offers") if words != ["bench"] else None
        cli.row("lockstep")
        check_page(os.path.join(PAGES, "lockstep.1"), [f"lockstep-{name} 1" for name in known])
        cli.equal(complete(folder, "lockstep", ""), sorted([*known, "--help", "--version"]), "commands")
        for words, want in COMPLETIONS:
            cli.row(" ".join(words))
            cli.equal(complete(folder, *words), want, "completion")
    cli.finish()


main()
