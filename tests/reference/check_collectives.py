#!/usr/bin/env python3
"""check_collectives.py - Lockstep's collectives against gloo's and MPI's, on the same numbers.

    check_collectives.py COMM_ALL_REDUCE GLOO_ALL_REDUCE|- MPI_ALL_REDUCE|- [MPIRUN]

The programs (collective_peer.h) run with 2, 3, 4 and 8 ranks.  Then, for each size:

    sums of whole numbers          exact: the peers' bits, and for small sizes the true sum
    sums of real numbers           within 1 ulp * ceil(log2 N) of the peers', half of that from the true sum
    all_gather, broadcast          byte for byte (by a 64-bit hash of each rank's result)
    all_reduce                     the same bits on all ranks, over shm and tcp, heap and ordinary memory (but for the ring)
    reduce_scatter                 the slice of the all_reduce

An ulp is 2^-23 of the sum of the magnitudes, so that a sum in which numbers cancel is not asked for more than rounding
allows.  Each level of a tree adds at most half of one; the peers' chains of N - 1 additions stay below by far more often
than not, and always did on these numbers, which are the same in every run.

Exit status 77 when neither gloo nor MPI is there; LOCKSTEP_REQUIRE_REFERENCES=1 wants both.
"""
import array
import math
import os
import subprocess
import sys
import tempfile

from refs import SKIPPED, Judge

WORLDS = (2, 3, 4, 8)
COUNTS = (0, 1, 3, 7, 1000, 2**20 + 3)
KINDS = ("whole", "real")
LIMIT_S = 120
EPSILON = 2.0**-23  # an ulp of 1

# (backend, memory, algorithm, are its sums canonical?)
WAYS = (("shm", "heap", "auto", True), ("shm", "ordinary", "auto", True), ("tcp", "ordinary", "auto", True),
        ("tcp", "ordinary", "ring", False))


def number(kind, rank, i):
    """Element i of a rank's input, as input() of collective_peer.c."""
    h = (i * 64 + rank * 2 + KINDS.index(kind) + 1) % 2**64
    for _ in range(3):
        h = h * 0x9e3779b97f4a7c15 % 2**64
        h ^= h >> 32
    high = (h >> 40) - 2**23
    return float(high >> 8) if kind == "whole" else math.ldexp(high, (h & 15) - 31)


class Results:
    """What one program left in its folder: hash of (operation, kind, count, rank), and rank 0's sums."""

    def __init__(self, command, folder, world):
        os.mkdir(folder)
        self.folder, self.world, self.hashes = folder, world, {}
        done = subprocess.run(command + ["check", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, timeout=LIMIT_S)
        if done.returncode != 0:
            sys.exit(f"FAIL {' '.join(command)}: exit {done.returncode}\n{done.stdout}")
        for rank in range(world):
            with open(os.path.join(folder, f"{rank}.txt"), encoding="utf-8") as file:
                for line in file:
                    operation, kind, count, digest = line.split()
                    self.hashes[operation, kind, int(count), rank] = digest

    def of(self, operation, kind, count):
        """The hash of each rank's result."""
        return [self.hashes.get((operation, kind, count, rank), "none") for rank in range(self.world)]

    def sums(self, kind, count):
        values = array.array("f")
        with open(os.path.join(self.folder, f"{kind}-{count}.f32"), "rb") as file:
            values.frombytes(file.read())
        if len(values) != count:
            sys.exit(f"FAIL {self.folder}: {len(values)} sums of {kind}, {count} were expected")
        return values


def gap_in_ulps(a, b, kind, i, world):
    """|a - b| in ulps of the sum of the magnitudes: 2^-23 of it.  Where few do, it does without that sum."""
    gap = abs(a - b)
    few = gap / (EPSILON * max(abs(a), abs(b))) if gap else 0.0
    return few if few <= 1 else gap / (EPSILON * math.fsum(abs(number(kind, rank, i)) for rank in range(world)))


def worst_gap(ours, theirs, kind, world):
    """In ulps, over all elements; only those that differ cost time."""
    return max((gap_in_ulps(a, b, kind, i, world) for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), default=0.0)


def check_truth(judge, name, ours, kind, count):
    """Small sizes against sums without rounding."""
    sums = ours.sums(kind, count)
    exact = [math.fsum(number(kind, rank, i) for rank in range(ours.world)) for i in range(count)]
    worst = max((gap_in_ulps(a, b, kind, i, ours.world) for i, (a, b) in enumerate(zip(sums, exact))), default=0.0)
    bound = 0 if kind == "whole" else math.ceil(math.log2(ours.world)) / 2
    judge.check(name, f"{kind} sum, exact", f"N={ours.world} count {count}", worst, bound)


def check_alone(judge, name, ours, first, canonical):
    """What needs no peer; `first` are the results whose bits canonical sums have."""
    for kind in KINDS:
        for count in COUNTS:
            where = f"{kind} N={ours.world} count {count}"
            sums = ours.of("all_reduce", kind, count)
            judge.check(name, "ranks with other sums", where, len(set(sums)) - 1, 0)
            if canonical:
                judge.check(name, "sums with other bits", where, int(sums != first.of("all_reduce", kind, count)), 0)
                wrong = int(ours.of("scatter", kind, count) != ours.of("slice", kind, count))
                judge.check(name, "reduce_scatter", where, wrong, 0)
            if count <= 1000 and (canonical or kind == "whole"):
                check_truth(judge, name, ours, kind, count)


def check_against(judge, name, ours, theirs):
    for kind in KINDS:
        for count in COUNTS:
            where = f"{kind} N={ours.world} count {count}"
            for operation in ("all_gather", "broadcast"):
                if (operation, kind, count, 0) in theirs.hashes:
                    wrong = int(ours.of(operation, kind, count) != theirs.of(operation, kind, count))
                    judge.check(name, operation, where, wrong, 0)
            bound = 0 if kind == "whole" else math.ceil(math.log2(ours.world))
            worst = worst_gap(ours.sums(kind, count), theirs.sums(kind, count), kind, ours.world)
            judge.check(name, f"{kind} sum, ulps", where, worst, bound)


def check_world(judge, world, comm, peers, work):
    runs = [(way, Results([comm, str(world), *way[:3]], os.path.join(work, f"{world}-{'-'.join(way[:3])}"), world))
            for way in WAYS]
    first = runs[0][1]
    for (backend, memory, algorithm, canonical), ours in runs:
        check_alone(judge, f"{backend} {memory} {algorithm}", ours, first, canonical)
    for name, command in peers.items():
        theirs = Results(command(world), os.path.join(work, f"{world}-{name}"), world)
        check_against(judge, name, first, theirs)
        check_against(judge, f"{name}, our ring", runs[-1][1], theirs)


def main():
    comm, gloo, mpi, mpirun = (sys.argv[1:] + ["-"])[:4]
    peers = {}
    if gloo != "-":
        peers["gloo"] = lambda n: [gloo, str(n)]
    if mpi != "-":
        peers["mpi"] = lambda n: [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", str(n), mpi]
    missing = {"gloo", "mpi"} - set(peers)
    if not peers or (missing and os.environ.get("LOCKSTEP_REQUIRE_REFERENCES") == "1"):
        print(f"check_collectives: skipped: built without {' and '.join(sorted(missing))}")
        return SKIPPED
    judge = Judge()
    for world in WORLDS:
        with tempfile.TemporaryDirectory(prefix="lockstep_collectives_") as work:
            check_world(judge, world, comm, peers, work)
    for name in sorted(missing):
        print(f"not compared with {name}, which this build does not have")
    return judge.finish()


if __name__ == "__main__":
    sys.exit(main())
