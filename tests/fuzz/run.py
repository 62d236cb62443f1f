"""run.py - the fuzz targets by clang's libFuzzer, with AddressSanitizer and UndefinedBehaviorSanitizer.

    run.py BUILD build                  configures and builds them in the folder BUILD
    run.py BUILD slice SECONDS          all targets, so many seconds in sum
    run.py BUILD long TARGET MINUTES    one target, so many minutes of processor time; prints a row of figures
    run.py BUILD keep TARGET            the smallest of what was found becomes corpus/TARGET.tar.gz

A target starts from seeds/TARGET and corpus/TARGET.tar.gz and goes on in BUILD/corpus/TARGET.  An input that crashes,
takes more than LIMIT_S seconds or more memory than LIMIT_MB is left in BUILD as TARGET-crash-..., and is a failure; the
target runs it alone when it is given as a file.  Exit 77 without a clang that has libFuzzer.
"""
import glob
import gzip
import io
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S, LIMIT_MB, LONGEST = 10, 64, 8192  # of one input: wall time on a busy machine, one allocation, bytes
KEPT_BYTES = 100_000  # of a corpus, unpacked
ROUND_S = 60


def targets():
    with open(os.path.join(HERE, "targets.cmake")) as f:
        return re.search(r"LS_FUZZ_TARGETS ([a-z0-9_ ]+)\)", f.read()).group(1).split()


def has_libfuzzer(clang):
    with tempfile.TemporaryDirectory() as folder:
        program = "int LLVMFuzzerTestOneInput(const char *data, long size) { return data && size < 0; }"
        done = subprocess.run([clang, "-fsanitize=fuzzer,address,undefined", "-x", "c", "-", "-o", f"{folder}/a"],
                              input=program.encode(), capture_output=True)
        return done.returncode == 0


def find_clang():
    names = ["clang"] + [f"clang-{version}" for version in range(30, 10, -1)]
    return next((found for found in map(shutil.which, names) if found and has_libfuzzer(found)), None)


def build(folder):
    clang = find_clang()
    if not clang:
        print("skipped: no clang with libFuzzer (Debian: clang, libclang-rt-dev)")
        sys.exit(77)
    ninja = ["-G", "Ninja"] if shutil.which("ninja") and not os.path.exists(f"{folder}/CMakeCache.txt") else []
    subprocess.run(["cmake", "-S", HERE, "-B", folder, f"-DCMAKE_C_COMPILER={clang}", *ninja], check=True)
    subprocess.run(["cmake", "--build", folder, "--parallel", "2"], check=True)


def corpus(folder, target):
    """The folder that grows, with what is kept and the seeds in it."""
    path = os.path.join(folder, "corpus", target)
    os.makedirs(path, exist_ok=True)
    kept = os.path.join(HERE, "corpus", f"{target}.tar.gz")
    if os.path.exists(kept):
        with tarfile.open(kept) as archive:
            for member in archive:
                with open(os.path.join(path, os.path.basename(member.name)), "wb") as f:
                    f.write(archive.extractfile(member).read())
    for seed in glob.glob(os.path.join(HERE, "seeds", target, "*")):
        shutil.copy(seed, os.path.join(path, "seed-" + os.path.basename(seed)))
    return path


def fuzz(folder, target, *options):
    """Runs libFuzzer; its output.  The program ends when it has found something."""
    with tempfile.TemporaryDirectory(prefix="lockstep-fuzz-") as scratch:
        done = subprocess.run(
            [os.path.join(folder, f"fuzz_{target}"), f"-timeout={LIMIT_S}", f"-malloc_limit_mb={LIMIT_MB}",
             f"-artifact_prefix={folder}/{target}-", "-print_final_stats=1", *options], text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": scratch})
    if done.returncode:
        print("\n".join(done.stdout.splitlines()[-60:]))
        sys.exit(f"{target}: exit {done.returncode}; the input is in {folder}")
    return done.stdout


def explore(folder, target, seconds):
    return fuzz(folder, target, f"-max_total_time={seconds}", f"-max_len={LONGEST}",
                f"-dict={os.path.join(HERE, 'seeds', target + '.dict')}", corpus(folder, target))


def used_s():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def figures(out):
    """Inputs tried, edges and features seen, inputs that the corpus holds."""
    names = r"stat::number_of_executed_units:\s+", "cov: ", "ft: ", "corp: "
    return [int((re.findall(name + r"(\d+)", out) or ["0"])[-1]) for name in names]


def long_run(folder, target, minutes):
    """Rounds, since libFuzzer knows wall time alone; a row of the sums so far after each."""
    start, inputs, used = used_s(), 0, 0
    while used < minutes:
        new, edges, features, size = figures(explore(folder, target, ROUND_S))
        inputs, used = inputs + new, (used_s() - start) / 60
        print(f"| {target} | {inputs:,} | {edges:,} | {features:,} | {size:,} | {used:.1f} |", flush=True)


def slice_run(folder, seconds):
    each = max(1, int(seconds) // len(targets()))
    for target in targets():
        inputs, edges, *_ = figures(explore(folder, target, each))
        print(f"{target}: {inputs:,} inputs, {edges:,} edges", flush=True)


def keep(folder, target):
    """By libFuzzer's merge; where the result is larger than it should be, its smallest files."""
    found = corpus(folder, target)
    with tempfile.TemporaryDirectory(prefix="lockstep-fuzz-") as least:
        fuzz(folder, target, "-merge=1", f"-max_len={LONGEST}", least, found)
        files = sorted(glob.glob(f"{least}/*"), key=lambda path: (os.path.getsize(path), path))
        packed, total = io.BytesIO(), 0
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path in files:
                total += os.path.getsize(path)
                if total > KEPT_BYTES:
                    break
                member = tarfile.TarInfo(os.path.basename(path)[:16])
                with open(path, "rb") as f:
                    member.size = os.path.getsize(path)
                    archive.addfile(member, f)
        os.makedirs(os.path.join(HERE, "corpus"), exist_ok=True)
        with open(os.path.join(HERE, "corpus", f"{target}.tar.gz"), "wb") as f:
            f.write(gzip.compress(packed.getvalue(), 9, mtime=0))
        print(f"{target}: {len(files)} inputs, {min(total, KEPT_BYTES):,} bytes")


def main():
    folder, what, *rest = sys.argv[1:]
    folder = os.path.abspath(folder)
    if what == "build":
        build(folder)
    elif what == "slice":
        slice_run(folder, *rest)
    elif what == "long":
        long_run(folder, rest[0], float(rest[1]))
    elif what == "keep":
        keep(folder, rest[0])
    else:
        sys.exit(__doc__)


main()
