#!/usr/bin/env python3
"""test_namespaces.py PROGRAM TABLE - ranks of two hosts, which are network namespaces (two_hosts.py).

PROGRAM is rendezvous_rank, TABLE test_collective.  Needs root, ip and tc; is skipped (77) without them.
"""
import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import two_hosts  # noqa: E402
from meeting import *  # noqa: E402,F403
from two_hosts import ip  # noqa: E402

PROGRAM, TABLE = sys.argv[1:3]
SECRET = "77aa" * 8
cables = None  # the two_hosts.Hosts
A = B = None   # their names
keepers = []  # a process in each namespace, whose /proc/<pid>/net shows it
HOSTS = tempfile.NamedTemporaryFile("w", suffix=".hosts"), tempfile.NamedTemporaryFile("w", suffix=".hosts")


def build():
    global cables, A, B
    cables = two_hosts.Hosts()
    A, B = cables.names
    for host in (0, 1):
        keepers.append(subprocess.Popen([*cables.enter(host), "sh", "-c", "echo; exec cat"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        keepers[-1].stdout.readline()  # it is there


def tear_down():
    for k in keepers:
        k.communicate()
    cables.close()


def write_hosts(host, text):
    """What names mean on a host, from now on."""
    f = HOSTS[host]
    f.seek(0)
    f.truncate()
    f.write(text)
    f.flush()


def rank(r, world, host, program=PROGRAM, arguments=("timeout=20",), hosts=False, **variables):
    """A rank on host 0 or 1; hosts: with the names of write_hosts()."""
    prefix = cables.enter(host)
    if hosts:
        prefix += ["sh", "-c", f'mount --bind {HOSTS[host].name} /etc/hosts && exec "$@"', "sh"]
    how = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": 29500, "LOCKSTEP_SECRET": SECRET} | variables
    return Rank(r, world, program, arguments, prefix, **{k: v for k, v in how.items() if v is not None})


def job(world, late=0, **how):
    """Even ranks on a, odd ones on b; the last one comes later: until then all others listen."""
    ranks = [rank(r, world, r % 2, **how) for r in range(world - 1)]
    time.sleep(late)
    return ranks + [rank(world - 1, world, (world - 1) % 2, **how)]


def watched(name, world, nets, **how):
    """A job that ends well; whoever listens, at whatever moment, does so at an address of its host in `nets`."""
    seen, stop, ranks = set(), threading.Event(), []

    def watch():
        while not stop.is_set():
            for host in range(2):
                seen.update((host, address) for address, _ in listeners(path=f"/proc/{keepers[host].pid}/net"))
            time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        ranks = all_well(name, job(world, late=0.2 * SLOW, **how), 100)
    finally:
        stop.set()
        thread.join()
    for host, address in seen:
        check(address in {f"{net}{host + 1}" for net in nets}, f"{name}: host {host} listened on {address}")
    check({host for host, _ in seen} == {0, 1}, f"{name}: listeners seen: {seen}")
    return ranks


# ---- tests ----

def the_table():
    """All operations, with every algorithm; each rank compares every bit."""
    ranks = watched("table", 4, ["10.77.0."], program=TABLE, arguments=("env", "thin"))
    check("4 ranks over shm+tcp" in ranks[0].out, f"table: {ranks[0].out}")


def by_ipv6():
    if "fd77::1" not in ip("-n", A, "addr").stdout:
        print("skipped: no IPv6 in these namespaces")
        return
    watched("IPv6", 4, ["fd77::"], MASTER_ADDR="fd77::1")


def own_name_is_loopback():
    """As Debian writes /etc/hosts: the host's own name is 127.0.1.1."""
    write_hosts(0, "127.0.0.1 localhost\n127.0.1.1 master-host\n")
    write_hosts(1, "127.0.0.1 localhost\n10.77.0.1 master-host\n")
    watched("own name", 4, ["10.77.0.", "10.78.0."], hosts=True, MASTER_ADDR="master-host")


def late_name():
    for f in (0, 1):
        write_hosts(f, "127.0.0.1 localhost\n")
    ranks = job(2, hosts=True, MASTER_ADDR="late-host.invalid")
    time.sleep(1)
    check(all(r.running() for r in ranks), "late name: given up")
    for f in (0, 1):
        write_hosts(f, "127.0.0.1 localhost\n10.77.0.1 late-host.invalid\n")
    all_well("late name", ranks)


def interfaces():
    def pair(value, **how):
        return [rank(0, 2, 0, **how), rank(1, 2, 1, arguments=(f"interface={value}", "timeout=2"), **how)]

    for value in ("x0", "^lo", "^lo,docker0", "^lo,y", "10.77.0.2"):
        all_well(f"interface {value}", pair(value))
    # The other cable: rank 0 is reached there, and listens nowhere else for the others.
    early = [rank(0, 3, 0, arguments=("interface=y0", "timeout=20")), rank(1, 3, 1, arguments=("interface=y0",))]
    time.sleep(0.3 * SLOW)
    seen = {a for a, _ in listeners(path=f"/proc/{early[1].process.pid}/net")}
    check(seen == {"10.78.0.2"}, f"interface y0: {seen}")
    all_well("interface y0", early + [rank(2, 3, 1)])
    for value, text in (("lo", "is loopback, which ranks that come by 10.77.0.2 cannot reach"),
                        ("nosuch0", "no interface and no address of this host is called so"),
                        ("10.77.0.1", "no interface and no address of this host is called so"),
                        ("^lo,x,y", "leaves no address")):
        ranks = pair(value)
        fails(f"interface {value}", ranks[1], f"interface \"{value}\"", text, "there are: lo (127.0.0.1", "x0 (10.77.0.2")
        ranks[0].process.kill()
        ranks[0].wait()
    for r in (rank(0, 2, 0, arguments=("interface=lo", "timeout=2")), rank(1, 2, 1)):  # rank 0's own: it tells all
        fails("interface lo of rank 0", r, "rank 0: interface \"lo\" (127.0.0.1) is loopback")


def without_secret():
    ranks = job(2, LOCKSTEP_SECRET=None, arguments=("timeout=1",))
    fails("no secret", ranks[1], "MASTER_ADDR=10.77.0.1 is another host", "export LOCKSTEP_SECRET")
    fails("no secret", ranks[0], "rank 1 of 2 did not come", "ranks on other hosts need LOCKSTEP_SECRET")


def said_to_be_one_host():
    """A launcher that is wrong: the pair cannot meet, and is told what to say instead."""
    ranks = job(2, LOCAL_WORLD_SIZE=2, arguments=("timeout=2",))
    fails("one host", ranks[1], "do not reach each other's Unix sockets", "LOCAL_WORLD_SIZE")
    ranks[0].wait()


def slow_link():
    cables.slow_down("10mbit")
    try:
        ranks = all_well("slow link", job(8, arguments=("timeout=20",)), 40)
        check(all(" in " in r.out for r in ranks), "slow link")
    finally:
        cables.full_speed()


def cut_cable():
    ip("-n", B, "link", "set", "x0", "down")
    try:
        ranks = job(2, arguments=("timeout=1",))
        fails("cut cable", ranks[1], "rank 1 did not find rank 0 at 10.77.0.1", "unreachable")
        fails("cut cable", ranks[0], "rank 1 of 2 did not come to rank 0 at 10.77.0.1:29500")
    finally:
        ip("-n", B, "link", "set", "x0", "up")


def main():
    if two_hosts.lacks("tc", "mount"):
        print(f"namespaces: skipped: {two_hosts.lacks('tc', 'mount')}")
        return 77
    try:
        build()
    except subprocess.CalledProcessError as e:
        print(f"namespaces: skipped: no network namespaces here: {e.stderr}")
        return 77
    try:
        for test in (the_table, by_ipv6, own_name_is_loopback, late_name, interfaces,
                     without_secret, said_to_be_one_host, slow_link, cut_cable):
            if len(sys.argv) > 3 and test.__name__ not in sys.argv[3:]:
                continue
            start = time.monotonic()
            test()
            print(f"{time.monotonic() - start:6.2f} s  {test.__name__}", flush=True)
    finally:
        tear_down()
    return summary("namespaces")


sys.exit(main())
