"""two_hosts.py - two hosts, made of network namespaces joined by cables; for root, where ip is.

    host 0: 10.77.0.1, fd77::1 ---- veth x0 ---- host 1: 10.77.0.2, fd77::2
            10.78.0.1          ---- veth y0 ----         10.78.0.2

    if two_hosts.lacks("tc"): skip
    hosts = two_hosts.Hosts()               subprocess.CalledProcessError: there can be no namespaces here
    subprocess.run([*hosts.enter(0), "command"])
    hosts.slow_down("1gbit"); hosts.full_speed()
    hosts.close()

Python's standard library only.
"""
import os
import shutil
import subprocess


def lacks(*programs):
    """What is missing for it, as a text; None where nothing is."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", *programs))):
        return "needs root, ip" + "".join(f", {p}" for p in programs)
    return None


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class Hosts:
    def __init__(self):
        self.names = [f"lsa{os.getpid()}", f"lsb{os.getpid()}"]
        try:
            self.build()
        except subprocess.CalledProcessError:
            self.close()
            raise

    def build(self):
        for n in self.names:
            ip("netns", "add", n)
        for cable, net in (("x", "10.77.0"), ("y", "10.78.0")):
            ip("link", "add", f"{cable}0", "netns", self.names[0], "type", "veth",
               "peer", "name", f"{cable}0", "netns", self.names[1])
            for i, n in enumerate(self.names):
                ip("-n", n, "addr", "add", f"{net}.{i + 1}/24", "dev", f"{cable}0")
                if cable == "x":
                    ip("-n", n, "addr", "add", f"fd77::{i + 1}/64", "dev", "x0", "nodad", check=False)
                ip("-n", n, "link", "set", f"{cable}0", "up")
                ip("-n", n, "link", "set", "lo", "up")

    def close(self):
        for n in self.names:
            ip("netns", "del", n, check=False)

    def enter(self, host):
        """Words in front of a command that runs there."""
        return ["ip", "netns", "exec", self.names[host]]

    def slow_down(self, rate, burst="32kb"):
        """Cable x, in both directions."""
        for n in self.names:
            subprocess.run(["ip", "netns", "exec", n, "tc", "qdisc", "add", "dev", "x0", "root", "tbf", "rate", rate,
                            "burst", burst, "latency", "400ms"], check=True)

    def full_speed(self):
        for n in self.names:
            subprocess.run(["ip", "netns", "exec", n, "tc", "qdisc", "del", "dev", "x0", "root"], check=False)
