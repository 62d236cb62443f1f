#!/usr/bin/env python3
"""check_schema.py ROOT TEST_CONFIG - docs/config.schema.json against the checker it was generated with.

Both judge the same configs: the examples, and for every key of the schema values at and beyond its limits. A
schema says less (rules between keys) and Python's reader sees 1.0 as an integer, so: what the checker takes, the
schema takes, resolved or not; what the schema refuses, the checker refuses. Exit 77 without `jsonschema`.
"""
import copy
import glob
import json
import os
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: Python's jsonschema is missing")
    sys.exit(77)

ODD = [None, True, "", "x", 0, 1, -1, 2, 0.5, 1.5, 1e300, -1e-9, 2**53, 2**53 + 2, [], {}, [1], [1, 2], ["a"], ["a", 1],
       [0.5, 0.9], [0, 1], "auto"]


def keys_of(schema, path=()):
    for name, inner in schema.get("properties", {}).items():
        if inner.get("type") == "object":
            yield from keys_of(inner, path + (name,))
        else:
            yield path + (name,), inner


def with_value(config, path, value):
    changed = copy.deepcopy(config)
    inner = changed
    for name in path[:-1]:
        inner = inner.setdefault(name, {})
    inner[path[-1]] = value
    return changed


def without(config, path):
    changed = copy.deepcopy(config)
    inner = changed
    for name in path[:-1]:
        inner = inner.get(name, {})
    inner.pop(path[-1], None)
    return changed


def samples(schema, examples):
    for example in examples:
        yield example
        yield with_value(example, ("extra",), 1)
        yield with_value(example, ("optim", "schedule", "extra"), 1)
        for path, key in keys_of(schema):
            yield without(example, path)
            values = ODD + key.get("enum", []) + [key[k] for k in ("minimum", "maximum", "exclusiveMinimum",
                                                                   "exclusiveMaximum", "default") if k in key]
            for value in values:
                yield with_value(example, path, value)


def main():
    root, program = sys.argv[1:]
    with open(os.path.join(root, "docs/config.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    examples = []
    for path in sorted(glob.glob(os.path.join(root, "examples/*.json"))):
        with open(path, encoding="utf-8") as file:
            examples.append(json.load(file))
    mlp = {"run": {"steps": 5}, "model": {"type": "mlp", "sizes": [2, 3]}, "data": {"train": "a", "format": "csv"},
           "batch": {"global": 4}, "optim": {"lr": 1}}
    configs = list(samples(schema, examples + [mlp]))
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, config in enumerate(configs):
            paths.append(os.path.join(folder, f"{i}.json"))
            with open(paths[-1], "w", encoding="utf-8") as file:
                json.dump(config, file)
        lines = []
        for i in range(0, len(paths), 500):
            lines += subprocess.run([program] + paths[i:i + 500], check=True, capture_output=True,
                                    text=True).stdout.splitlines()
    assert len(lines) == len(configs), f"{len(lines)} lines for {len(configs)} configs"
    failures, counts = 0, {}
    for config, line in zip(configs, lines):
        verdict, _, resolved = line.partition(" ")
        errors = [error.message for error in validator.iter_errors(config)]
        counts[verdict, not errors] = counts.get((verdict, not errors), 0) + 1
        if verdict != "bad" and errors:
            failures += 1
            print(f"the checker takes what the schema refuses ({errors[0]}): {json.dumps(config)}")
        if verdict == "ok" and not validator.is_valid(json.loads(resolved)):
            failures += 1
            print(f"the schema refuses the resolved config {resolved}")
    print(f"{len(configs)} configs, {failures} failures;",
          "; ".join(f"{verdict}, schema {'takes' if valid else 'refuses'}: {n}" for (verdict, valid), n in
                    sorted(counts.items())))
    return failures or not counts.get(("bad", False)) or not counts.get(("ok", True))


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
