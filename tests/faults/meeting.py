"""What the scripts that start ranks by hand share: ranks as processes, and rank 0's protocol from outside."""
import hashlib
import hmac
import os
import re
import socket
import struct
import subprocess
import time

SLOW = 4 if os.environ.get("LS_SANITIZE") else 1
FOREIGN = re.compile(r"^(RANK|WORLD_SIZE|LOCAL_.*|MASTER_.*|LOCKSTEP_.*|TORCHELASTIC_.*|OMPI_.*|PMI.*|SLURM_.*|MPI_.*)$")

failures = 0
checks = 0


def check(ok, what):
    global failures, checks
    checks += 1
    if not ok:
        failures += 1
        print(f"FAIL {what}", flush=True)
    return ok


def summary(name):
    print(f"{name}: {checks} checks, {failures} failures")
    return 1 if failures or not checks else 0


class Rank:
    """One process; out and err are what it has printed once it has ended.  A variable that is None is not set."""

    def __init__(self, rank, world, program, arguments=(), prefix=(), fds=(), **variables):
        environment = {k: v for k, v in os.environ.items() if not FOREIGN.match(k)}
        environment |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
        environment |= {k: str(v) for k, v in variables.items() if v is not None}
        for k in [k for k, v in variables.items() if v is None]:
            environment.pop(k, None)
        if os.environ.get("LS_SANITIZE") == "thread":  # which wants its addresses where it expects them
            prefix = [*prefix, "setarch", "-R"]
        self.rank, self.out, self.err, self.status = rank, "", "", None
        self.start = time.monotonic()
        self.process = subprocess.Popen([*prefix, program, *arguments], env=environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, pass_fds=fds)

    def wait(self, seconds=30):
        try:
            self.out, self.err = self.process.communicate(timeout=seconds * SLOW)
            self.status = self.process.returncode
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.out, self.err = self.process.communicate()
            self.status = "too late"
        self.seconds = time.monotonic() - self.start
        return self

    def running(self):
        return self.process.poll() is None


def all_well(name, ranks, seconds=30):
    """All end well, and say nothing on stderr."""
    for r in ranks:
        r.wait(seconds)
        check(r.status == 0 and r.err == "", f"{name}: rank {r.rank}: status {r.status}: {r.out} {r.err}")
    return ranks


def fails(name, rank, *texts, seconds=30):
    rank.wait(seconds)
    for text in texts:
        check(rank.status == 1 and text in rank.out and rank.err == "",
              f"{name}: rank {rank.rank}: wanted \"{text}\", got status {rank.status}: {rank.out} {rank.err}")
    return rank


def free_port(count=1, family=socket.AF_INET, address="127.0.0.1"):
    """The first of `count` ports in a row that are free."""
    for base in range(20000 + os.getpid() * 37 % 10000, 32000, count + 3):
        try:
            for port in range(base, base + count):
                with socket.socket(family) as s:
                    s.bind((address, port))
            return base
        except OSError:
            continue
    raise RuntimeError("no free ports")


def sockets_of(pids):
    """"socket:[123]", ... of these processes."""
    names = set()
    for pid in pids:
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                names.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    return names


def unix_listeners(pids):
    """The abstract names at which these processes listen."""
    own = sockets_of(pids)
    lines = [line.split() for line in open("/proc/net/unix").read().splitlines()[1:]]
    return {w[7] for w in lines if len(w) > 7 and w[3] == "00010000" and f"socket:[{w[6]}]" in own}


def listeners(pids=None, path="/proc/net"):
    """(address, port) of the TCP sockets that listen; of these processes only, where given."""
    own = None if pids is None else sockets_of(pids)
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            lines = open(f"{path}/{table}").read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] != "0A" or (own is not None and f"socket:[{words[9]}]" not in own):
                continue
            address, port = words[1].split(":")
            raw = b"".join(struct.pack("=I", int(address[i:i + 8], 16)) for i in range(0, len(address), 8))
            found.add((socket.inet_ntop(family, raw), int(port, 16)))
    return found


def unix_name(port, run_id="", restart=0):
    """Where ranks of one host meet without a secret."""
    h = 0xCBF29CE484222325
    for byte in run_id.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return f"\0lockstep/{os.geteuid()}/{port}/{h:016x}/{restart}"


# ---- rank 0's protocol, written from handshake_impl.h ----

MAGIC = 0x7A7664722D706C73
CHALLENGE, PROOF, VERDICT = 48, 392, 448
WELCOME, GO, STRANGER, REFUSED, FAILED = range(5)


def receive(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            return data
        data += more
    return data


def proof(secret, challenge, rank, world, run_id="", restart=0, left=60):
    """A whole proof, as a rank of the job would make it."""
    mine = os.urandom(32)
    body = struct.pack("=QIIIIq128s32s", MAGIC, 1, rank, world, restart, int(left * 1e9), run_id.encode(), mine)
    body += struct.pack("=64s64s16s16sII", b"elsewhere", b"127.0.0.1", os.urandom(16), os.urandom(16), 9, 0)
    label = b"guest: proof".ljust(16, b"\0")
    mac = hmac.new(secret.encode(), label + challenge[16:48] + mine + body, hashlib.sha256).digest()
    assert len(body + mac) == PROOF
    return body + mac


def verdict(data):
    """(code, text), or None where the connection has ended without one."""
    if len(data) < VERDICT:
        return None
    code = struct.unpack_from("=I", data, 8)[0]
    return code, data[16:16 + 400].split(b"\0")[0].decode()


def call(address, port, secret, rank, world, **how):
    """Comes as a rank; the socket and the verdict."""
    s = socket.create_connection((address, port), timeout=10)
    try:
        challenge = receive(s, CHALLENGE)
        s.sendall(proof(secret, challenge, rank, world, **how))
        return s, verdict(receive(s, VERDICT))
    except OSError:
        return s, None
