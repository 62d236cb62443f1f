#!/usr/bin/env python3
"""campaign_table.py PAGE RECORD... - writes what campaign.py --jsonl recorded into PAGE, between its two markers.

A round counts once: of two records with the same seed and number the later one.
"""
import collections
import json
import re
import statistics
import sys

BEGIN, END = "<!-- campaign: begin -->", "<!-- campaign: end -->"


def read(paths):
    found = {}
    for path in paths:
        with open(path) as f:
            for line in map(json.loads, f):
                found[line["seed"], line["round"]] = line
    return [found[key] for key in sorted(found)]


def plain(message):
    """A message as a reader finds it, with what belongs to one run alone taken out."""
    message = re.sub(r"^\[\d+\] ", "", message)
    message = re.sub(r"^lockstep: ", "", message)
    message = re.sub(r"/tmp/lockstep-test-\w+/|campaign-disk/", "", message)
    message = re.sub(r"pid \d+, host \S+\)", "pid 4711, host a)", message)
    return re.sub(r"pid \d+", "pid 4711", message).replace("|", "\\|")


def middle(values):
    values = [v for v in values if v is not None]
    return f"{statistics.median(values):.1f}" if values else ""


def shares(lines, key):
    counts = collections.Counter(str(line.get(key)) for line in lines if key in line)
    return ", ".join(f"{name}: {n}" for name, n in sorted(counts.items()))


def table(lines):
    kinds = collections.defaultdict(list)
    for line in lines:
        kinds[line["kind"]].append(line)
    yield "| fault | rounds | survived | named after, s | round, s | longest, s |"
    yield "|---|---|---|---|---|---|"
    for kind, of in kinds.items():
        yield (f"| {kind} | {len(of)} | {sum(not l['failures'] for l in of)} | {middle([l.get('named_s') for l in of])} | "
               f"{middle([l['seconds'] for l in of])} | {max(l['seconds'] for l in of):.1f} |")
    yield (f"| all | {len(lines)} | {sum(not l['failures'] for l in lines)} | | {middle([l['seconds'] for l in lines])} | "
           f"{max(l['seconds'] for l in lines):.1f} |")
    yield ""
    for title, key in (("rounds by ranks at the start", "ranks"), ("by strategy", "strategy"), ("by transport", "backend"),
                       ("by model", "model_name"), ("by moment", "moment")):
        yield f"- {title} ({shares(lines, key)})"
    yield "- seeds: " + ", ".join(f"{seed} (rounds {min(r)} to {max(r)})" for seed, r in sorted(seeds(lines).items()))
    yield ""
    yield "What the user reads, the first of each kind that was recorded:"
    yield ""
    yield "| fault | text |"
    yield "|---|---|"
    for kind, of in kinds.items():
        told = next((l["message"] for l in of if l.get("message")), None)
        yield f"| {kind} | {'`' + plain(told) + '`' if told else 'nothing: it only takes longer'} |"


def seeds(lines):
    found = collections.defaultdict(list)
    for line in lines:
        found[line["seed"]].append(line["round"])
    return found


def main():
    page, lines = sys.argv[1], read(sys.argv[2:])
    for line in lines:
        line["model_name"] = line.get("model", "").split("{")[0]
    with open(page) as f:
        text = f.read()
    before, rest = text.split(BEGIN)
    with open(page, "w") as f:
        f.write(before + BEGIN + "\n" + "\n".join(table(lines)) + "\n" + END + rest.split(END)[1])


main()
