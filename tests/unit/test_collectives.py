#!/usr/bin/env python3
"""test_collectives.py - what `lockstep bench collectives` and examples/collectives_demo print.

    test_collectives.py LOCKSTEP DEMO FIGURES

Rates are computed once more from the times, by nccl-tests' definitions; FIGURES is docs/make_figures.py.
"""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cli

# operation: (busbw over algbw for n ranks, is the size of all ranks' parts, has it a root, does it reduce)
OPS = {
    "all_reduce": (lambda n: 2 * (n - 1) / n, False, False, True),
    "all_gather": (lambda n: (n - 1) / n, True, False, False),
    "reduce_scatter": (lambda n: (n - 1) / n, True, False, True),
    "broadcast": (lambda n: 1, False, True, False),
    "reduce": (lambda n: 1, False, True, True),
    "gather": (lambda n: (n - 1) / n, True, True, False),
    "scatter": (lambda n: (n - 1) / n, True, True, False),
    "all_to_all": (lambda n: (n - 1) / n, True, False, False),
    "send_recv": (lambda n: 1, False, False, False),
    "barrier": (lambda n: 1, False, False, False),
}
# bytes that N ranks load and store for S bytes in place (out of place where there is no such form)
TRAFFIC = {
    "all_reduce": lambda n, s: 2 * n * s, "all_gather": lambda n, s: 2 * (n - 1) * s,
    "reduce_scatter": lambda n, s: (n + 1) * s, "broadcast": lambda n, s: 2 * (n - 1) * s,
    "reduce": lambda n, s: (n + 1) * s, "gather": lambda n, s: 2 * s, "scatter": lambda n, s: 2 * s,
    "all_to_all": lambda n, s: 2 * n * s, "send_recv": lambda n, s: 2 * s, "barrier": lambda n, s: 0,
}
SLOW = bool(os.environ.get("LS_SANITIZE"))  # then without the largest vectors
SIZES = {"F32": 4, "BF16": 2, "I32": 4, "I64": 8, "U8": 1}


def bench(folder, *args):
    """Lines of a run, as objects."""
    r = cli.run(folder, "bench", "collectives", *args, "--json")
    cli.check_ok(r)
    cli.equal(r.stderr, "", "nothing on stderr")
    return [json.loads(line) for line in r.stdout.splitlines()]


def near(got, want, what):
    cli.check(abs(got - want) <= 2e-3 * abs(want) + 1e-9, f"{what}: got {got}, want {want}")


def check_line(line, n, size, dtype, **same):
    factor, of_all, rooted, reduces = OPS[line["op"]]
    parts = n if of_all else 1
    if line["op"] == "barrier":
        size = 0
    cli.equal(line["bytes"], size // parts // SIZES[dtype] * parts * SIZES[dtype], "bytes")
    cli.equal(line["count"], size // parts // SIZES[dtype], "count")
    cli.equal(line["n"], n, "n")
    cli.equal(line["dtype"], dtype, "dtype")
    cli.equal(line["wrong"], 0, "wrong elements")
    cli.equal(("root" in line, "redop" in line), (rooted, reduces), "has root, has redop")
    for key, value in same.items():
        cli.equal(line[key], value, key)
    cli.check(line["median_us"] > 0, f"a time of {line['median_us']}")
    forms = [line["in_place_us"], line["out_of_place_us"]]
    cli.equal(line["median_us"], forms[0] if forms[0] is not None else forms[1], "median_us")
    rate = line["bytes"] / line["median_us"] / 1e3
    near(line["algbw_gbs"], rate, "algbw")
    near(line["busbw_gbs"], rate * factor(n), "busbw")
    near(line["memory_gbs"], TRAFFIC[line["op"]](n, line["bytes"]) / line["median_us"] / 1e3, "memory rate")


def test_operations(folder):
    for transport in "shm", "tcp", "threads":
        for memory in "heap", "ordinary":
            cli.row(f"all operations, {transport}, {memory}")
            lines = bench(folder, "-n", "3", "--op", "all", "--bytes", "12K", "--transport", transport, "--memory", memory)
            cli.equal([line["op"] for line in lines], list(OPS), "operations")
            for line in lines:
                check_line(line, 3, 12 << 10, "F32", transport=transport, memory=memory)


def test_algorithms(folder):
    for algorithm in "direct", "tree", "halving", "ring":
        for op in "all_reduce", "broadcast", "reduce":
            cli.row(f"{op} by {algorithm}")
            for line in bench(folder, "-n", "4", "--op", op, "--bytes", "1M", "--algorithm", algorithm):
                check_line(line, 4, 1 << 20, "F32", algorithm=algorithm)


def test_elements(folder):
    rows = [(dtype, redop) for dtype in SIZES for redop in ("sum", "avg", "min", "max", "prod")
            if redop != "avg" or dtype in ("F32", "BF16")]
    for dtype, redop in rows:
        cli.row(f"{redop} of {dtype}")
        for op, root in (("all_reduce", []), ("reduce", ["--root", "1"])):
            for line in bench(folder, "-n", "3", "--op", op, "--bytes", "1001", "--dtype", dtype, "--redop", redop, *root):
                check_line(line, 3, 1001, dtype, redop=redop)


def test_sizes(folder):
    cli.row("one rank")
    for line in bench(folder, "-n", "1", "--op", "all_reduce", "--bytes", "4K"):
        check_line(line, 1, 4096, "F32")
    cli.row("one byte is one element")
    cli.equal([line["count"] for line in bench(folder, "-n", "2", "--bytes", "1")], [1], "count")
    if SLOW:
        return [line for size in ("1K", "16K", "1M") for line in bench(folder, "-n", "2", "--bytes", size)]
    cli.row("the sweep")
    lines = bench(folder, "-n", "2")
    cli.equal([line["bytes"] for line in lines], [1024 * 4 ** i for i in range(9)], "sizes")
    for line in lines:
        check_line(line, 2, line["bytes"], "F32", algorithm="direct")
    return lines


def test_table(folder):
    cli.row("the table")
    r = cli.run(folder, "bench", "collectives", "-n", "2", "--op", "all", "--bytes", "4K")
    cli.check_ok(r)
    rows = [line for line in r.stdout.splitlines() if line and not line.startswith("#")]
    cli.equal(len(rows), len(OPS), "rows")
    for row in rows:
        cells = [part.split() for part in row.split("|")]
        cli.equal([len(c) for c in cells], [5, 4, 4, 2], f"columns of {row!r}")
        cli.check(all(c[3] in ("0", "N/A") for c in cells[1:3]), f"wrong elements in {row!r}")


def test_compare(folder):
    if SLOW:
        return
    cli.row("two algorithms")
    *points, last = bench(folder, "-n", "2", "--compare", "ring,tree", "--transport", "shm")
    cli.equal([p["bytes"] for p in points], [1024 * 4 ** i for i in range(8)], "sizes")
    for p in points:
        for key in "measured_us", "model_us":
            cli.check(sorted(p[key]) == ["ring", "tree"] and min(p[key].values()) > 0, f"{key}: {p[key]}")
    for judge in "measured", "model":
        first = min(points[0][judge + "_us"], key=points[0][judge + "_us"].get)
        changes = sum((a[judge + "_us"]["ring"] > a[judge + "_us"]["tree"]) != (b[judge + "_us"]["ring"] > b[judge + "_us"]["tree"])
                      for a, b in zip(points, points[1:]))
        cli.equal(last[judge + "_first"], first, f"{judge}: faster at the smallest size")
        cli.equal(len(last[judge + "_crossings"]), changes, f"{judge}: crossings {last[judge + '_crossings']}")
        cli.check(last[judge + "_crossings"] == sorted(last[judge + "_crossings"]), "in order")
    cli.row("two algorithms over both transports, one size")
    lines = bench(folder, "-n", "2", "--compare", "halving,direct", "--bytes", "8K")
    cli.equal([(line["transport"], "crossing" in line) for line in lines],
              [("shm", False), ("shm", True), ("tcp", False), ("tcp", True)], "lines")


def test_figure(folder, lines):
    cli.row("the figure")
    script = shutil.copy(sys.argv[3], folder)
    data = os.path.join(folder, "runs.jsonl")
    with open(data, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([sys.executable, script, "--collectives", data], check=False, stdout=subprocess.PIPE, text=True)
    cli.equal((done.returncode, len(done.stdout.splitlines())), (0, len(lines) + 2), "exit status, lines of the table")
    root = xml.etree.ElementTree.parse(os.path.join(folder, "collectives.svg")).getroot()
    circles = [e for e in root.iter() if e.tag.endswith("}circle")]
    cli.equal(len(circles), len(lines), "points")
    heights = [float(c.get("cy")) for c in circles]
    rates = [line["busbw_gbs"] for line in lines]
    order = sorted(range(len(lines)), key=lambda i: rates[i])
    cli.check(all(heights[a] >= heights[b] for a, b in zip(order, order[1:])), "more bandwidth is higher up")


def test_demo(folder):
    demo = os.path.abspath(sys.argv[2])
    rows = [(n, args) for n in (1, 2, 3, 4) for args in (["-t", "shm"], ["-t", "tcp", "-a", "direct"], ["-t", "threads"])]
    rows += [(4, ["-a", "halving"]), (4, ["-a", "ring"]), (4, [])]
    for n, args in rows:
        cli.row(f"demo on {n}: {' '.join(args)}")
        r = cli.run(folder, "-n", str(n), *args, program=demo)
        cli.check_ok(r)
        total = n * 65536 * 4
        cli.check(f"T = {total} bytes" in r.stdout, "names T")
        sums = "equal up to rounding" if "ring" in args else "equal to the last bit"
        want = {"all_reduce": (sums, 2 * total * (n - 1) // n), "reduce_scatter": (sums, total * (n - 1) // n),
                "all_gather": ("equal to the last bit", total * (n - 1) // n),
                "all_to_all": ("equal to the last bit", total * (n - 1) // n)}
        found = {line.split()[0]: line for line in r.stdout.splitlines()[3:]}
        cli.equal(sorted(found), sorted(set(OPS) - {"send_recv", "barrier"}), "operations")
        for op, (verdict, sent) in want.items():
            cli.check(f" {verdict} " in found[op] and f" {sent} {sent:10d} " in found[op] and "exactly" in found[op],
                      f"want {verdict!r} and {sent}: {found[op]!r}")
    cli.row("demo, wrong usage")
    for args in (["-n"], ["-x", "1"], ["-a", "star"]):
        cli.equal(cli.run(folder, *args, program=demo).returncode, 2, f"exit status of {args}")
    r = cli.run(folder, "-n", "3", "-a", "halving", program=demo)
    cli.check(r.returncode == 1 and "power of two" in r.stderr, f"halving of 3: {r.stderr!r}")


def as_ranks(folder, n, port, *command):
    """(exit status, stdout, stderr) of n processes with the variables that torchrun sets."""
    running = []
    for rank in range(n):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(n), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(n),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        running.append(subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True))
    ends = [p.communicate(timeout=60) for p in running]
    return [(p.returncode, *end) for p, end in zip(running, ends)]


def test_launched(folder):
    """As the ranks that a launcher has started; rank 0 alone prints."""
    port = 20000 + os.getpid() % 20000
    demo, command = os.path.abspath(sys.argv[2]), [cli.command(), "bench", "collectives"]
    rows = [("demo", [demo], 8), ("bench", command + ["--bytes", "4K", "--json"], 1),
            ("bench with -n", command + ["-n", "3", "--bytes", "4K", "--json", "--transport", "tcp"], 1),
            ("compare", command + ["--compare", "ring,tree", "--bytes", "4K", "--json"], 4)]
    for name, args, lines in rows:
        cli.row(f"launched: {name}")
        ends = as_ranks(folder, 3, port, *args)
        cli.equal([end[0] for end in ends], [0, 0, 0], f"exit statuses ({ends[0][2]!r})")
        cli.equal([end[1] for end in ends[1:]], ["", ""], "stdout of the other ranks")
        told = ends[0][1].splitlines()
        cli.equal(len(told[3:] if args == [demo] else told), lines, f"lines of {told}")
    cli.row("launched: another -n")
    for end in as_ranks(folder, 2, port, *command, "-n", "3"):
        cli.check(end[0] == 2 and "-n 3" in end[2] and "2 ranks" in end[2], f"refused: {end}")


def ranks_in(folder):
    found = []
    for path in glob.glob("/proc/[0-9]*/cwd"):
        try:
            if os.readlink(path) == folder:
                found.append(int(path.split("/")[2]))
        except OSError:
            pass
    return found


def test_killed(folder):
    """Ranks do not outlive the command."""
    cli.row("killed")
    p = cli.start(folder, "bench", "collectives", "-n", "3", "--op", "all")
    end = time.monotonic() + 10
    while len(ranks_in(folder)) < 4 and time.monotonic() < end:
        time.sleep(0.02)
    cli.equal(len(ranks_in(folder)), 4, "processes")
    p.send_signal(signal.SIGKILL)
    p.wait()
    end = time.monotonic() + 5
    while ranks_in(folder) and time.monotonic() < end:
        time.sleep(0.02)
    cli.equal(ranks_in(folder), [], "processes left")
    cli.row("a rank is killed")
    p = subprocess.Popen([cli.command(), "bench", "collectives", "-n", "3", "--op", "all"], cwd=folder,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while len(ranks_in(folder)) < 4 and p.poll() is None:
        time.sleep(0.02)
    time.sleep(0.2)
    os.kill(max(ranks_in(folder)), signal.SIGKILL)
    _, err = p.communicate(timeout=30)
    cli.equal(p.returncode, 1, "exit status")
    cli.check(err.startswith("lockstep: error: ") and "signal 9" in err and err.count("\n") == 1, f"one line: {err!r}")
    cli.equal(ranks_in(folder), [], "processes left")


def main():
    with cli.workspace() as folder:
        folder = os.path.realpath(folder)
        test_operations(folder)
        test_algorithms(folder)
        test_elements(folder)
        lines = test_sizes(folder)
        test_table(folder)
        test_compare(folder)
        test_figure(folder, lines)
        test_demo(folder)
        test_launched(folder)
        test_killed(folder)
    cli.finish()


main()
