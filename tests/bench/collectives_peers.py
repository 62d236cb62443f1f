#!/usr/bin/env python3
"""collectives_peers.py - all_reduce of Lockstep, gloo and MPI in turn, A B C A B C, on the same machine.

    collectives_peers.py BUILD [--worlds 2,4] [--sizes 1024,65536,1048576,16777216,67108864] [--rounds 3] [--ways shm-heap,...]

BUILD is the build folder; its tests/ has comm_all_reduce, memory_rate and, where their libraries were found,
gloo_all_reduce and mpi_all_reduce.  Every program measures alike (collective_peer.c): all ranks meet, then operations
back to back, f32 in place, time of rank 0; the median of 9.  Here the medians over the rounds, and the ratios round by
round (median): how many times faster than the peer.

The floor is the time that memory takes for the 2 * N * S bytes of N ranks with S bytes each (memory_rate.c, on as many
cores as work); share is floor / time.  For sizes that fit into caches it is out of reach: cores exchange lines there.

A JSON line for each number of ranks and size, on standard output; a table at the end, on standard error.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

LIMIT_S = 600
SIZES = "1024,65536,1048576,16777216,67108864"
WAYS = {"shm-heap": ("shm", "heap", "auto"), "shm-ordinary": ("shm", "ordinary", "auto"),
        "tcp": ("tcp", "ordinary", "auto"), "tcp-fast": ("tcp", "ordinary", "fast")}
PEERS = ("gloo", "mpi")


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


def measure(command):
    """JSON lines of a program by bytes."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["bytes"]: line for line in lines}


def commands(tests, world, sizes, ways):
    """name -> command, in the order in which they take turns."""
    task = ["bench", sizes]
    found = {way: [f"{tests}/comm_all_reduce", str(world), *WAYS[way], *task] for way in ways}
    if os.path.exists(f"{tests}/gloo_all_reduce"):
        found["gloo"] = [f"{tests}/gloo_all_reduce", str(world), *task]
    if os.path.exists(f"{tests}/mpi_all_reduce") and shutil.which("mpirun"):
        found["mpi"] = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(world), f"{tests}/mpi_all_reduce",
                        *task]
    return found


def floor_us(tests, world, size, cores):
    total = world * size
    line = measure([f"{tests}/memory_rate", str(min(world, cores)), str(total)])[total]
    return min(line["update_us"], line["copy_us"]), line["gb_per_s"]


def median(values):
    return round(statistics.median(values), 3)


def report(cpu, world, size, times, floors):
    """One line: times[name] and floors have a figure a round.  A load above the ranks' own spoils all figures."""
    line = {"cpu": cpu, "cores": os.cpu_count(), "load": os.getloadavg()[0], "op": "all_reduce", "dtype": "f32", "n": world, "bytes": size,
            "rounds": len(floors), "floor_us": median(us for us, _ in floors),
            "memory_gb_per_s": median(rate for _, rate in floors),
            "median_us": {name: median(values) for name, values in times.items()}, "faster_than": {}, "share_of_floor": {}}
    for name, values in times.items():
        if name in PEERS:
            continue
        line["faster_than"][name] = {peer: median(t / o for t, o in zip(times[peer], values))
                                     for peer in PEERS if peer in times}
        line["share_of_floor"][name] = median(floor / o for (floor, _), o in zip(floors, values))
    return line


def run_world(options, cpu, world):
    tests, cores = os.path.join(options.build, "tests"), len(os.sched_getaffinity(0))
    sizes = [int(size) for size in options.sizes.split(",")]
    turns = commands(tests, world, options.sizes, options.ways.split(","))
    runs, floors = {name: [] for name in turns}, {size: [] for size in sizes}
    for _ in range(options.rounds):
        for name, command in turns.items():
            runs[name].append(measure(command))
        for size in sizes:
            floors[size].append(floor_us(tests, world, size, cores))
    return [report(cpu, world, size, {name: [r[size]["median_us"] for r in results] for name, results in runs.items()},
                   floors[size]) for size in sizes]


def size_text(size):
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def table(lines, file):
    """Times in microseconds, then for each way: times faster than gloo and than MPI, share of the floor."""
    def figure(value):
        return "-" if value is None else f"{value:.2f}"

    print(f"\n{lines[0]['cpu']}, {lines[0]['cores']} cores", file=file)
    for line in lines:
        peers = "  ".join(f"{name} {line['median_us'][name]:.1f} us" for name in PEERS if name in line["median_us"])
        print(f"N={line['n']} {size_text(line['bytes']):>8}  {peers}  floor {line['floor_us']:.1f} us", file=file)
        for way, ratios in line["faster_than"].items():
            print(f"    {way:14} {line['median_us'][way]:12.1f} us   gloo x {figure(ratios.get('gloo')):>7}   "
                  f"mpi x {figure(ratios.get('mpi')):>7}   {100 * line['share_of_floor'][way]:6.1f} % of the floor", file=file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--worlds", default="2,4")
    parser.add_argument("--sizes", default=SIZES, help="in bytes, of one rank's buffer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", default="shm-heap,shm-ordinary,tcp", help=", ".join(WAYS))
    options = parser.parse_args()
    lines = []
    for world in options.worlds.split(","):
        for line in run_world(options, cpu_name(), int(world)):
            print(json.dumps(line), flush=True)
            lines.append(line)
    table(lines, sys.stderr)


if __name__ == "__main__":
    main()
