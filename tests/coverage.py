#!/usr/bin/env python3
"""Reads gcovr's JSON: lines of each layer that ran, and those that did not, by file."""
import collections
import json
import pathlib
import sys

LEAST = {"core": 90, "autograd": 90, "dist": 90, "checkpoint": 90}


def spans(numbers):
    """[3, 4, 5, 9] -> "3-5 9"."""
    found = []
    for n in numbers:
        if found and found[-1][1] == n - 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def lines_of(report):
    """Layer -> file -> line -> did it run."""
    layers = collections.defaultdict(lambda: collections.defaultdict(dict))
    for file in report["files"]:
        lines = layers[pathlib.PurePath(file["file"]).parts[0]][file["file"]]
        for line in file["lines"]:
            if not line.get("gcovr/noncode"):
                lines[line["line_number"]] = lines.get(line["line_number"], False) or line["count"] > 0
    return layers


def main():
    short = []
    layers = lines_of(json.loads(pathlib.Path(sys.argv[1]).read_text()))
    for layer, files in sorted(layers.items()):
        for name, lines in sorted(files.items()):
            missed = sorted(n for n, ran in lines.items() if not ran)
            if missed:
                print(f"{name}: {len(missed)} of {len(lines)} did not run: {spans(missed)}")
    for layer, files in sorted(layers.items()):
        ran = [r for lines in files.values() for r in lines.values()]
        share = 100 * sum(ran) / len(ran)
        print(f"{layer:12} {sum(ran):6} of {len(ran):6} lines  {share:5.1f} %")
        if share < LEAST.get(layer, 0):
            short.append(layer)
    sys.exit(f"below {LEAST[short[0]]} %: {', '.join(short)}" if short else 0)


main()
