#!/usr/bin/env python3
"""write_documents.py [FILE] - what README.md and docs/equivalence.md say of the table, between their marks.

With FILE, the --json of a run of the whole table, writes it there and into equivalence.json.  Without, checks: the last
run was of the table that table.py makes, whole, with nothing skipped and nothing different, and the documents say so.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import table  # noqa: E402

ROOT = os.path.join(HERE, "..", "..")
COUNTED = os.path.join(HERE, "equivalence.json")
BEGIN, END = "<!-- from tests/equivalence/equivalence.json -->\n", "<!-- end -->\n"


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def sentence(counted):
    return (f"{counted['rows']} rows, {counted['runs']} runs of the command, {counted['lines']:,} lines of metrics and "
            f"{counted['tensors']:,} tensors compared: {counted['failed'] or 'none'} different.")


def columns():
    for kind, names in (("decides the bits", table.TRUTH), ("changes none", table.FREE)):
        for name, values in names.items():
            spelt = "; ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
            yield f"| {name} | {kind} | {spelt} |"


def blocks(counted):
    """{document: its text between the marks}."""
    return {"README.md": sentence(counted) + "\n",
            os.path.join("docs", "equivalence.md"): "\n".join(
                [sentence(counted), "", "| column | it | values |", "|---|---|---|", *columns()]) + "\n"}


def with_block(text, block):
    before, rest = text.split(BEGIN)
    return before + BEGIN + block + END + rest.split(END, 1)[1]


def wrong(counted):
    """What the run was not, as texts."""
    whole = table.rows()
    want = {"table": table.fingerprint(whole), "rows": len(whole), "runs": table.runs(whole),
            "lines": sum(map(table.lines, whole)), "skipped": 0, "failed": 0}
    return [f"equivalence.json: {key} is {counted[key]}, the table's {value}" for key, value in want.items()
            if counted[key] != value]


def main():
    counted = json.loads(read(sys.argv[1] if len(sys.argv) > 1 else COUNTED))
    found = wrong(counted)
    for name, block in blocks(counted).items():
        path, old = os.path.join(ROOT, name), read(os.path.join(ROOT, name))
        new = with_block(old, block)
        if len(sys.argv) > 1 and not found:
            with open(path, "w", encoding="utf-8") as f:
                f.write(new)
        elif new != old:
            found.append(f"{name} does not say what equivalence.json does")
    if len(sys.argv) > 1 and not found:
        with open(COUNTED, "w", encoding="ascii") as f:
            f.write(json.dumps(counted, indent=1) + "\n")
    print("\n".join(found) or sentence(counted))
    if found:
        sys.exit("run test_table.py LOCKSTEP --all --json FILE, then write_documents.py FILE")


if __name__ == "__main__":
    main()
