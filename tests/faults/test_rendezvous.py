#!/usr/bin/env python3
"""test_rendezvous.py PROGRAM - what goes wrong when ranks meet; PROGRAM is rendezvous_rank.

Strangers at rank 0's door, ports that are taken, ranks that do not come, secrets that differ, jobs side by side: each
ends in its time with a text that says who, where and why, and leaves nothing.
"""
import os
import random
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from meeting import *  # noqa: E402,F403

PROGRAM = sys.argv[1]
SECRET = "5f0c" * 8
HOME = "127.0.0.1"


def job(world, ranks=None, arguments=("timeout=20",), **variables):
    return [Rank(r, world, PROGRAM, arguments, **variables) for r in (range(world) if ranks is None else ranks)]


def by_tcp(port, **more):
    return {"MASTER_ADDR": HOME, "MASTER_PORT": port, "LOCKSTEP_SECRET": SECRET} | more


def wait_for_port(port, address=HOME):
    for _ in range(200 * SLOW):
        if (address, port) in listeners():
            return True
        time.sleep(0.02)
    return check(False, f"nobody listens on {address}:{port}")


# ---- strangers ----

def ended(s):
    """The other end has closed."""
    try:
        return s.recv(1 << 16) == b"" or s.recv(1 << 16) == b""
    except ConnectionError:
        return True
    except OSError:
        return False


def strangers():
    port, world = free_port(), 4
    host = job(world, [0], **by_tcp(port))[0]
    wait_for_port(port)
    rng, kept = random.Random(1), []

    def connect():
        s = socket.create_connection((HOME, port), timeout=10)
        kept.append(s)
        return s

    # Without a proof: no word, and the end.
    for n in (1, PROOF, 4 * PROOF, 65536):
        s = connect()
        try:
            s.sendall(rng.randbytes(n))
        except OSError:
            pass
        if n >= PROOF:
            receive(s, CHALLENGE)
            check(ended(s), f"strangers: {n} random bytes")
    s = connect()
    receive(s, CHALLENGE)
    s.sendall((b"\xff" * 7 + b"\x7f") * (PROOF // 8))
    check(ended(s), "strangers: lengths of 2^63")
    s, v = call(HOME, port, "another", 1, world)
    check(v is None, "strangers: wrong secret")
    challenge = receive(connect(), CHALLENGE)
    s = connect()
    whole = proof(SECRET, receive(s, CHALLENGE), 1, world)
    s.sendall(whole[:100])  # half a handshake, which stays
    s = connect()
    receive(s, CHALLENGE)
    s.sendall(proof(SECRET, challenge, 1, world))  # made for another connection
    check(ended(s), "strangers: replay")
    s = connect()
    own = receive(s, CHALLENGE)
    s.sendall(own + own * 8)
    check(ended(s), "strangers: rank 0's own words")
    for bit in (0, 100, 8 * 20, 8 * PROOF - 1):  # any change of a good one
        s = connect()
        bad = bytearray(proof(SECRET, receive(s, CHALLENGE), 1, world))
        bad[bit // 8] ^= 1 << bit % 8
        s.sendall(bad)
        check(ended(s), f"strangers: bit {bit} of a proof")

    # Of this job, but wrong: told why.
    third, v = call(HOME, port, SECRET, 3, world)
    check(v and v[0] == WELCOME, f"strangers: rank 3: {v}")
    for rank, size, how, code, text in (
            (3, world, {}, REFUSED, "a second rank 3 came"),
            (1, 5, {}, REFUSED, "rank 1 came with a world of 5 ranks, but rank 0 has 4"),
            (0, world, {}, REFUSED, "rank 0 came"),
            (4, world, {}, REFUSED, "rank 4 came"),
            (2**32 - 1, world, {}, REFUSED, "rank 4294967295 came"),
            (1, world, {"run_id": "other"}, STRANGER, "not of run \"other\""),
            (1, world, {"restart": 7}, STRANGER, "restart 7")):
        s, v = call(HOME, port, SECRET, rank, size, **how)
        check(v and v[0] == code and text in v[1], f"strangers: wanted {text}, got {v}")
        check(ended(s), f"strangers: {text}: still connected")

    # A crowd that says nothing, and one that drips.
    stop = threading.Event()

    def drip():
        s = connect()
        while not stop.is_set():
            try:
                s.sendall(b"\0")
            except OSError:
                return
            time.sleep(0.02)

    dripping = [threading.Thread(target=drip) for _ in range(4)]
    for t in dripping:
        t.start()
    for _ in range(150):
        connect()
    check(host.running(), "strangers: rank 0 has ended")
    third.close()  # its number is free again
    start = time.monotonic()
    rest = job(world, [1, 2, 3], **by_tcp(port))
    all_well("strangers", rest + [host])
    check(time.monotonic() - start < 4 * SLOW, f"strangers: {time.monotonic() - start:.1f} s among them")
    stop.set()
    for t in dripping:
        t.join()
    for s in kept:
        s.close()
    check((HOME, port) not in listeners(), "strangers: still listening")


def false_hosts():
    """Behind MASTER_PORT, as under torchrun, others listen: one is silent, one babbles, one speaks our protocol."""
    port = free_port(6)
    agent, silent, babbler, mimic = [socket.create_server((HOME, port + i)) for i in range(4)]
    stop = threading.Event()

    def serve(server, words):
        server.settimeout(0.1)
        held = []
        while not stop.is_set():
            try:
                s, _ = server.accept()
                s.sendall(words)
                held.append(s)
            except OSError:
                pass
        for s in held:
            s.close()

    challenge = struct.pack("=QII32s", MAGIC, 1, 0, b"7" * 32)
    threads = [threading.Thread(target=serve, args=a) for a in
               ((babbler, b"HTTP/1.1 400 Bad Request\r\n" * 40), (mimic, challenge + b"\0" * VERDICT))]
    for t in threads:
        t.start()
    start = time.monotonic()
    ranks = job(3, **by_tcp(port, TORCHELASTIC_RUN_ID="none"))
    all_well("false hosts", ranks)
    check(time.monotonic() - start < 4 * SLOW, "false hosts: slow")
    stop.set()
    for t in threads:
        t.join()
    for server in (agent, silent, babbler, mimic):
        server.close()


def as_another_user(body):
    """Runs body() in a child that is nobody; how it went, as waitpid() has it."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os._exit(body() or 0)
        except BaseException as e:
            print("as another user:", e, flush=True)
        os._exit(9)
    return child


def another_user():
    """Without a secret the kernel tells who is there: nobody else is let in, or taken for rank 0."""
    if os.geteuid() != 0:
        print("skipped: another user: needs root")
        return
    port = free_port()
    name = unix_name(port)
    host = job(2, [0], MASTER_PORT=port)[0]
    time.sleep(0.3 * SLOW)

    def intrude():
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(5)
        s.connect(name)
        return 0 if ended(s) else 1

    check(os.waitpid(as_another_user(intrude), 0)[1] == 0, "another user: let in")
    with socket.socket(socket.AF_UNIX) as s:  # the same by this user is greeted, so the name is right
        s.connect(name)
        check(len(receive(s, CHALLENGE)) == CHALLENGE, "another user: the name")
    all_well("another user", [host] + job(2, [1], MASTER_PORT=port))

    def pretend():
        s = socket.socket(socket.AF_UNIX)
        s.bind(name)
        s.listen(100)
        time.sleep(60)

    child = as_another_user(pretend)
    time.sleep(0.3)
    fails("another user", job(2, [1], ["timeout=1"], MASTER_PORT=port)[0], "another user listens there")
    fails("another user", job(2, [0], ["timeout=1"], MASTER_PORT=port)[0], "cannot listen on", f"pid {child} (")
    os.kill(child, 9)
    os.waitpid(child, 0)


def unix_strangers():
    """Of this user, without a secret: words that are no proof get nowhere here too."""
    port = free_port()
    host = job(3, [0], MASTER_PORT=port)[0]
    time.sleep(0.3 * SLOW)
    check(unix_name(port).replace("\0", "@") in unix_listeners([host.process.pid]), "Unix strangers: the name")
    kept = []
    for words in (b"", b"x", os.urandom(PROOF), os.urandom(1 << 16), b"\xff" * PROOF):
        s = socket.socket(socket.AF_UNIX)
        kept.append(s)
        s.connect(unix_name(port))
        try:
            s.sendall(words)
        except OSError:
            pass
    for _ in range(100):
        kept.append(socket.socket(socket.AF_UNIX))
        kept[-1].settimeout(5)
        kept[-1].connect(unix_name(port))
    all_well("Unix strangers", [host] + job(3, [1, 2], MASTER_PORT=port))
    for s in kept:
        s.close()


def nobody_listens_afterwards():
    port = free_port()
    ranks = job(3, arguments=("hold=1", "timeout=20"), **by_tcp(port))
    time.sleep(0.5)
    pids = [r.process.pid for r in ranks]
    if SLOW == 1:
        check(listeners(pids) == set(), f"afterwards: {listeners(pids)}")
        check(unix_listeners(pids) == set(), f"afterwards: {unix_listeners(pids)}")
    all_well("afterwards", ranks)


def foreign_words():
    """The variables of launchers that are not here: MPICH's mpirun, srun."""
    port, none = free_port(), {"RANK": None, "WORLD_SIZE": None}
    all_well("MPICH", [Rank(0, 0, PROGRAM, **none, PMI_RANK=r, PMI_SIZE=3, MPI_LOCALRANKID=r, MPI_LOCALNRANKS=3)
                       for r in range(3)])
    slurm = {"SLURM_NTASKS": 3, "SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 0, "SLURM_NODELIST": "localhost",
             "SLURM_NODEID": 0, "SLURM_STEP_TASKS_PER_NODE": 3}
    for more in ({}, {"LOCKSTEP_SECRET": SECRET}, {"LOCKSTEP_SECRET": SECRET, "MASTER_PORT": port},
                 {"LOCKSTEP_SECRET": SECRET, "MASTER_PORT": port, "SLURM_STEP_TASKS_PER_NODE": None}):
        all_well(f"Slurm {sorted(more)}", [Rank(0, 0, PROGRAM, **none | slurm | more, SLURM_PROCID=r, SLURM_LOCALID=r)
                                           for r in range(3)])


# ---- ports ----

def port_in_use():
    with socket.create_server((HOME, 0)) as taken:
        port = taken.getsockname()[1]
        fails("port in use", job(2, [0], **by_tcp(port))[0], f"{HOME}:{port}", "Address already in use",
              f"pid {os.getpid()} (")


def same_port():
    port = free_port()
    first = job(2, [0], **by_tcp(port))
    wait_for_port(port)
    second = job(2, **by_tcp(port, LOCKSTEP_SECRET="another job's"))
    fails("same port", second[0], f"{HOME}:{port}", f"pid {first[0].process.pid} (")
    fails("same port", second[1], f"{HOME}", "does not accept this rank's LOCKSTEP_SECRET", seconds=10)
    check(second[1].seconds < 8 * SLOW, "same port: slow to give up")
    all_well("same port", first + job(2, [1], **by_tcp(port)))
    # The same without secrets: user and port name the place.
    first = job(2, [0], MASTER_PORT=port)
    time.sleep(0.3 * SLOW)
    fails("same Unix socket", job(2, [0], MASTER_PORT=port)[0], f"port {port}", f"pid {first[0].process.pid} (",
          "LOCKSTEP_RUN_ID")
    all_well("same Unix socket", first + job(2, [1], MASTER_PORT=port))


def jobs_at_once():
    port = free_port()
    many = []
    for j in range(6):
        many += job(3, LOCKSTEP_RUN_ID=f"job {j}", MASTER_PORT=port)
    base = free_port(6)
    for j in range(6):
        many += job(3, **by_tcp(base + j, LOCKSTEP_RUN_ID=f"job {j}"))
    all_well("jobs at once", many)


def handed_socket():
    with socket.create_server((HOME, 0)) as s:
        port = s.getsockname()[1]
        ranks = job(2, [1], **by_tcp(port))
        time.sleep(0.2)
        ranks.append(Rank(0, 2, PROGRAM, ["timeout=10", "cycles=3"], fds=[s.fileno()], **by_tcp(
            port, LOCKSTEP_LISTEN_FD=s.fileno())))
    ranks[0].wait()  # one cycle
    check(ranks[0].status == 0, f"handed socket: {ranks[0].out}")
    all_well("handed socket", [ranks[1]] + job(2, [1], ("timeout=10", "cycles=2"), **by_tcp(port)))
    with socket.create_server((HOME, 0)) as s:  # another's socket is left alone
        port = free_port()
        ranks = job(2, [1], **by_tcp(port))
        all_well("not the handed socket", ranks + [Rank(0, 2, PROGRAM, fds=[s.fileno()], **by_tcp(
            port, LOCKSTEP_LISTEN_FD=s.fileno()))])
    for value in ("x", "-1", "3x"):
        fails("handed socket", job(2, [0], **by_tcp(port, LOCKSTEP_LISTEN_FD=value))[0],
              f"LOCKSTEP_LISTEN_FD=\"{value}\" is not a file descriptor")


def watched(name, ranks, allowed, seconds=30):
    """All end well; at no moment did one listen elsewhere."""
    seen = set()
    while any(r.running() for r in ranks):
        seen |= listeners([r.process.pid for r in ranks if r.running()])
        time.sleep(0.001)
    all_well(name, ranks, seconds)
    for address, port in seen:
        check(allowed(address, port), f"{name}: listened on {address}:{port}")
    return seen


def port_range():
    port, base = free_port(), free_port(4)
    limits = (f"ports={base}-{base + 3}", "backend=tcp", "hold=0.3")
    early = job(4, [0, 1, 2], limits, **by_tcp(port))
    time.sleep(0.3 * SLOW)
    seen = listeners([r.process.pid for r in early])
    check(len(seen) == 3 and (HOME, port) in seen, f"port range: {seen}")
    check(all(a == HOME and (p == port or base <= p <= base + 3) for a, p in seen), f"port range: {seen}")
    watched("port range", early + job(4, [3], limits, **by_tcp(port)),
            lambda a, p: a == HOME and (p == port or base <= p <= base + 3))
    small = job(4, arguments=(f"ports={base}-{base + 1}", "backend=tcp", "timeout=3"), **by_tcp(port))
    texts = [r.wait().out for r in small]
    check(any(f"ports {base} to {base + 1} are given: each rank of a host needs one" in t for t in texts),
          f"port range: too small: {texts}")
    check(all(r.status == 1 for r in small), f"port range: too small: {texts}")
    for wrong in ("5-3", "1-70000"):
        out = [r.wait().out for r in job(2, arguments=(f"ports={wrong}", "timeout=2"), **by_tcp(port))]
        check(any(wrong.replace("-", " to ") in t for t in out), f"port range {wrong}: {out}")


def given_address_only():
    """One loopback address of many, IPv4 and IPv6."""
    port = free_port(address="127.0.0.9")
    watched("127.0.0.9", job(3, arguments=("backend=tcp", "hold=0.3"), **by_tcp(port, MASTER_ADDR="127.0.0.9")),
            lambda a, p: a.startswith("127."))
    try:
        port = free_port(family=socket.AF_INET6, address="::1")
    except RuntimeError:
        print("skipped: no IPv6 on this host")
        return
    for name in ("::1", "[::1]"):
        watched(name, job(3, arguments=("backend=tcp", "hold=0.3"), **by_tcp(port, MASTER_ADDR=name)),
                lambda a, p: a in ("::1", HOME))


# ---- ranks that do not come ----

def never_starts():
    for how in ({"MASTER_PORT": free_port()}, by_tcp(free_port())):
        for rank in job(4, [0, 1, 3], ["timeout=1"], **how):
            fails("never starts", rank, "rank 2 of 4 did not come to rank 0", "within 1 s")
            check(rank.seconds < 2.5 * SLOW, f"never starts: {rank.seconds:.1f} s")
    for how in ({"MASTER_PORT": free_port()}, by_tcp(free_port())):
        rank = fails("no rank 0", job(2, [1], ["timeout=1"], **how)[0], "rank 1 did not find rank 0", "within 1 s",
                     "Connection refused")
        check(rank.seconds < 2.5 * SLOW, f"no rank 0: {rank.seconds:.1f} s")


def dies_early():
    """A rank that joins and goes before all are there: its number is free, and the end tells."""
    port = free_port()
    host = job(3, [0], ["timeout=2"], **by_tcp(port))[0]
    wait_for_port(port)
    s, v = call(HOME, port, SECRET, 1, 3)
    check(v and v[0] == WELCOME, "dies early: not let in")
    s.close()
    fails("dies early", host, "ranks 1, 2 of 3 did not come", "(1 came and went)")
    # ... and one that joins and says no more.
    host = job(2, [0], ["timeout=2"], **by_tcp(port))[0]
    wait_for_port(port)
    s, v = call(HOME, port, SECRET, 1, 2)
    time.sleep(0.5)
    s.close()
    fails("dies early", host, "rank 1 joined, but left before all were connected")


def first_to_give_up():
    port = free_port()
    host = job(3, [0], ["timeout=30"], **by_tcp(port))[0]
    guest = job(3, [1], ["timeout=1"], **by_tcp(port))[0]
    for rank in (host, guest):
        fails("first to give up", rank, "rank 2 of 3 did not come")
        check(rank.seconds < 3 * SLOW, f"first to give up: {rank.seconds:.1f} s")


# ---- what does not fit ----

def secrets():
    port = free_port()
    host, wrong = job(2, [0], ["timeout=2"], **by_tcp(port)) + job(
        2, [1], ["timeout=2"], **by_tcp(port, LOCKSTEP_SECRET="wrong"))
    fails("wrong secret", wrong, "does not accept this rank's LOCKSTEP_SECRET", f"{HOME}")
    fails("wrong secret", host, "rank 1 of 2 did not come", "strangers turned away")
    for rank, how in ((0, {"LOCAL_WORLD_SIZE": 1}), (1, {"LOCAL_WORLD_SIZE": 1}), (1, {"MASTER_ADDR": "192.0.2.1"})):
        variables = {"MASTER_ADDR": HOME, "MASTER_PORT": port} | how
        fails("no secret", job(2, [rank], **variables)[0], "export LOCKSTEP_SECRET", "openssl rand -hex 32")


def wrong_place():
    port = free_port()
    fails("no master", job(2, [0], LOCKSTEP_SECRET=SECRET, MASTER_PORT=port)[0], "MASTER_ADDR is not set")
    fails("no port", job(2, [0], LOCKSTEP_SECRET=SECRET, MASTER_ADDR=HOME)[0], "MASTER_PORT is not set")
    fails("not here", job(2, [0], **by_tcp(port, MASTER_ADDR="192.0.2.1"))[0], "MASTER_ADDR=192.0.2.1",
          "is no address of this host")
    fails("any address", job(2, [0], **by_tcp(port, MASTER_ADDR="0.0.0.0"))[0], "MASTER_ADDR=0.0.0.0")
    host = job(2, [0], ["timeout=2"], **by_tcp(port))[0]
    wait_for_port(port)
    fails("wrong world", job(3, [1], **by_tcp(port))[0], "rank 1 came with a world of 3 ranks, but rank 0 has 2")
    all_well("wrong world", [host] + job(2, [1], **by_tcp(port)))
    fails("no name", job(2, [1], ["timeout=1"], **by_tcp(port, MASTER_ADDR="nosuch.invalid"))[0],
                 "MASTER_ADDR=nosuch.invalid")
    for value in ("eth99", "^l,e,w,b,v,d,t,u,i,s"):
        fails("interface", job(2, [0, 1], [f"interface={value}", "timeout=2"], **by_tcp(port))[1],
              f"interface \"{value}\"", "there are: lo (127.0.0.1")


# ---- many, and often ----

def many_ranks():
    for how, backend in ((by_tcp(free_port()), "tcp"), (by_tcp(free_port()), "auto"), ({"MASTER_PORT": free_port()}, "auto")):
        ranks = all_well("64 ranks", job(64, arguments=(f"backend={backend}", "timeout=30"), **how), 60)
        slowest = max(float(r.out.split(" in ")[1].split()[0]) for r in ranks if r.status == 0)
        check(slowest < 5 * SLOW, f"64 ranks: {slowest} s")
        fds = max(int(r.out.split()[-2]) for r in ranks if r.status == 0)
        check(fds < 64 * 4, f"64 ranks: {fds} descriptors")


def cycles():
    port = free_port()
    for how in (by_tcp(port), {"MASTER_PORT": port}):
        ranks = all_well("cycles", job(4, arguments=("cycles=50", "timeout=20"), **how), 60)
        for r in ranks:
            lines = r.out.splitlines()
            fds = {line.split()[-2] for line in lines}
            check(len(lines) == 50 and len(fds) == 1, f"cycles: rank {r.rank}: {len(lines)} joins, descriptors {fds}")


def main():
    tests = [strangers, unix_strangers, another_user, false_hosts, foreign_words, nobody_listens_afterwards, port_in_use, same_port, jobs_at_once, handed_socket, port_range,
             given_address_only, never_starts, dies_early, first_to_give_up, secrets, wrong_place, many_ranks, cycles]
    for test in tests:
        if len(sys.argv) > 2 and test.__name__ not in sys.argv[2:]:
            continue
        start = time.monotonic()
        test()
        print(f"{time.monotonic() - start:6.2f} s  {test.__name__}", flush=True)
    return summary("rendezvous")


sys.exit(main())
