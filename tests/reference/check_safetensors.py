#!/usr/bin/env python3
"""Lockstep's safetensors against the package that defines the format.

    check_safetensors.py ST_TOOL

Three checks: a file that C wrote is read by the package with equal bytes and metadata; files
that the package wrote are read by C with equal bytes and metadata; and on a corpus of valid,
malformed and randomly damaged files the two agree on which are valid, but for the cases where
Lockstep is stricter by intention (STRICTER below, which is the list of safetensors.h).

Exit status 77 when the package or numpy is not installed.
"""
import hashlib
import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy
    import safetensors
    import safetensors.numpy
except ImportError as missing:
    print(f"check_safetensors: skipped: {missing}")
    sys.exit(77)

# What Lockstep refuses beside the package, by a part of its message.
STRICTER = ("given twice", "empty name", "holds a NUL", "longer than 1024", "more than 8 dimensions",
            "more than 2^20 tensors", "tensor 't': expected an object", "dtype: expected a string")
# Cases that must be among them: (name of the case, the part of the message).
EXPECTED_STRICTER = {
    "name twice": "given twice", "name twice escaped": "given twice", "metadata key twice": "given twice",
    "name empty": "empty name", "name NUL": "holds a NUL", "name 1025": "longer than 1024",
    "9 dimensions": "more than 8 dimensions", "tensor array": "expected an object",
    "dtype object": "expected a string",
}
failures = []


def check(ok, what):
    if not ok:
        failures.append(what)
        print("FAIL", what)


def run(tool, *args):
    done = subprocess.run([tool, *map(str, args)], capture_output=True, text=True)
    check(done.returncode == 0, f"{args}: {done.stderr}")
    return done.stdout.splitlines()


def listing(tool, path):
    """({name: (dtype, shape, sha256)}, metadata) as C sees them."""
    tensors, metadata = {}, {}
    for line in run(tool, "list", path):
        kind, *words = line.split(" ")
        text = [bytes.fromhex(words[0]).decode(), *words[1:]]
        if kind == "tensor":
            tensors[text[0]] = (text[1], text[2], text[5])
        else:
            metadata[text[0]] = bytes.fromhex(words[1]).decode()
    return tensors, metadata


def c_shape(shape):
    return "(" + ",".join(map(str, shape)) + ")"


def header_of(data):
    n = struct.unpack("<Q", data[:8])[0]
    return data[8:8 + n]


def package_view(data):
    """({name: (dtype, shape, sha256)}, metadata) as the package sees them."""
    tensors = {name: (t["dtype"], c_shape(t["shape"]), hashlib.sha256(t["data"]).hexdigest())
               for name, t in safetensors.deserialize(data)}
    return tensors, json.loads(header_of(data)).get("__metadata__", {})


def check_written_by_c(tool, folder):
    path = folder / "c.safetensors"
    run(tool, "write", path)
    data = path.read_bytes()
    tensors, metadata = package_view(data)
    check((tensors, metadata) == listing(tool, path), "a file written by C, read by both")
    check(len(tensors) == 22 and "\U0001f600 \"name\"\n\x1f" in tensors, "its tensors")
    check(metadata == {"format": "pt", 'quote"\\/': "tab\t line\n \x01 \x7f", "\u00e9": ""}, "its metadata")
    check(all(t[2] == hashlib.sha256(b"\0\1" * 12).hexdigest() for t in tensors.values()
              if t[1] not in ("()", "(2,0,3)")), "its bytes")
    check(len(header_of(data)) % 8 == 0 and header_of(data)[:1] == b"{", "header aligned, starts with {")
    # The package's own writer lays the same tensors out in the same order.
    again = safetensors.numpy.save({
        n: numpy.frombuffer(bytes(t["data"]), NUMPY[t["dtype"]]).reshape(t["shape"])
        for n, t in safetensors.deserialize(data) if t["dtype"] in NUMPY}, metadata)
    ours, theirs = json.loads(header_of(data)), json.loads(header_of(again))
    offset = lambda header: (lambda name: header[name]["data_offsets"])
    names = [n for n in sorted(theirs.keys() - {"__metadata__"}, key=offset(theirs))]
    check(names == [n for n in sorted(ours.keys() - {"__metadata__"}, key=offset(ours)) if n in theirs],
          "order of the data")
    check(len(names) >= 12, "dtypes that the package's writer took")


NUMPY = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32",
         "U32": "uint32", "I64": "int64", "U64": "uint64", "F16": "float16", "F32": "float32", "F64": "float64"}


def check_written_by_package(tool, folder):
    rng = random.Random(3)
    for i in range(20):
        tensors = {}
        for k in range(rng.randrange(0, 12)):
            shape = [rng.randrange(0, 5) for _ in range(rng.randrange(0, 4))]
            dtype = numpy.dtype(rng.choice(["uint8", "float16", "float32", "int64"]))
            size = int(numpy.prod(shape, dtype=int)) * dtype.itemsize
            tensors[f"h.{k}.\u00fc\"{i}"] = numpy.frombuffer(rng.randbytes(size), dtype).reshape(shape)
        metadata = {"a\u0001": "b\\\"\n\u2028", "n": str(i)} if i % 2 else None
        data = safetensors.numpy.save(tensors, metadata)
        path = folder / "p.safetensors"
        path.write_bytes(data)
        check(package_view(data) == listing(tool, path), f"file {i} of the package, read by both")


def file(header, data=b"", length=None):
    header = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def tensor(shape="[1]", offsets="[0,4]", dtype='"F32"', more=""):
    return f'{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}{more}}}'


def corpus():
    """(name, bytes of the file), by hand."""
    one = f'{{"t":{tensor()}}}'
    b4, b8 = b"abcd", b"abcdefgh"
    two = lambda a, b, x="a", y="b": f'{{"{x}":{tensor(*a)},"{y}":{tensor(*b)}}}'
    yield from (("empty", b""), ("7 bytes", b"\2\0\0\0\0\0\0"), ("8 bytes", struct.pack("<Q", 60)),
                ("length 0", file("")), ("length past end", file("{}", length=100)),
                ("length 100000001", file("{}", length=100000001)), ("length max", file("{}", length=2**64 - 1)))
    for name, header in {
            "no tensors": "{}", "not json": "{", "array": "[]", "string": '"t"', "bom": b"\xef\xbb\xbf{}",
            "not utf8": b'{"\xff":1}', "overlong": b'{"\xc0\xaf":1}', "two objects": "{}{}", "after": "{}x",
            "nul padding": "{}\0\0", "space padding": "{}   ", "white space": "\n\t\r {}\n\t\r ", "comment": "{/**/}",
            "metadata": '{"__metadata__":{"a":"b"}}', "metadata null": '{"__metadata__":null}',
            "metadata int": '{"__metadata__":{"a":1}}', "metadata nested": '{"__metadata__":{"a":{}}}',
            "metadata null value": '{"__metadata__":{"a":null}}', "metadata array": '{"__metadata__":[]}',
            "metadata twice": '{"__metadata__":{},"__metadata__":{}}', "metadata escaped key":
            '{"\\u005f_metadata__":{"a":"b"}}', "metadata NUL value": '{"__metadata__":{"a":"\\u0000"}}',
            "metadata NUL key": '{"__metadata__":{"\\u0000":"a"}}', "metadata empty key": '{"__metadata__":{"":""}}',
            "metadata key twice": '{"__metadata__":{"a":"1","a":"2"}}', "tensor null": '{"t":null}',
            "tensor int": '{"t":1}', "tensor empty": '{"t":{}}'}.items():
        yield name, file(header)
    for name, header in {
            "one": one, "trailing comma": one[:-1] + ",}", "tensor array": '{"t":["F32",[1],[0,4]]}',
            "name empty": f'{{"":{tensor()}}}', "name NUL": f'{{"\\u0000":{tensor()}}}',
            "name 1024": f'{{"{"n" * 1024}":{tensor()}}}', "name 1025": f'{{"{"n" * 1025}":{tensor()}}}',
            "raw control": f'{{"a\nb":{tensor()}}}', "del": f'{{"\x7f":{tensor()}}}',
            "lone surrogate": f'{{"\\ud800":{tensor()}}}', "low surrogate": f'{{"\\udc00":{tensor()}}}',
            "pair": f'{{"\\ud83d\\ude00":{tensor()}}}', "half pair": f'{{"\\ud83d\\u0041":{tensor()}}}',
            "upper hex": f'{{"\\u00E9\\u00e9":{tensor()}}}', "bad escape": f'{{"\\q":{tensor()}}}',
            "name twice": two((), (), "t", "t"), "name twice escaped": two((), (), "t", "\\u0074"),
            "same range": two((), ())}.items():
        yield name, file(header, b4)
    for shape in ("[]", "[1]", "[1,1,1,1,1,1,1,1]", "[1.0]", "[1e0]", "[01]", "[-0]", "[-1]", '["1"]', "[true]", "[null]",
                  "null", "1", "{}", "[1,]", "[,1]", "[[1]]", "[18446744073709551615]", "[18446744073709551616]",
                  "[2,18446744073709551614]", "[2,9223372036854775807]", "[2]", "[0]", "[ 1 , 1 ]", "[+1]", "[1 1]"):
        yield f"shape {shape}", file(f'{{"t":{tensor(shape)}}}', b4)
    yield "9 dimensions", file(f'{{"t":{tensor("[1,1,1,1,1,1,1,1,1]")}}}', b4)
    for shape in ("[0]", "[0,18446744073709551615,2]", "[18446744073709551615,2,0]", "[0,0]", "[18446744073709551615,0]"):
        yield f"zero {shape}", file(f'{{"t":{tensor(shape, "[0,0]")}}}')
    for offsets in ("[0]", "[]", "[0,4,4]", "[4,8]", "[4,0]", "[0,8]", "[-4,0]", "[0.0,4.0]", '["0","4"]', "[0,null]", "null",
                    "[18446744073709551612,18446744073709551616]", "[18446744073709551611,18446744073709551615]"):
        yield f"offsets {offsets}", file(f'{{"t":{tensor("[1]", offsets)}}}', b4)
    for dtype, bits in (("BOOL", 8), ("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6), ("U8", 8), ("I8", 8), ("F8_E5M2", 8),
                        ("F8_E4M3", 8), ("F8_E8M0", 8), ("F8_E4M3FNUZ", 8), ("F8_E5M2FNUZ", 8), ("I16", 16), ("U16", 16),
                        ("F16", 16), ("BF16", 16), ("I32", 32), ("U32", 32), ("F32", 32), ("C64", 64), ("F64", 64),
                        ("I64", 64), ("U64", 64), ("F99", 8), ("f32", 32), ("", 8), ("C128", 128), ("F32\\u0000", 32)):
        for n in (4, 3):
            end = n * bits // 8
            quoted = f'"{dtype}"'
            yield f"dtype {dtype} {n}", file(f'{{"t":{tensor(f"[{n}]", f"[0,{end}]", quoted)}}}', bytes(end))
    for name, dtype in (("object", '{"F32":null}'), ("null", "null"), ("number", "1")):
        yield f"dtype {name}", file(f'{{"t":{tensor(dtype=dtype)}}}', b4)
    for field in ("dtype", "shape", "data_offsets"):
        fields = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
        again = f',"{field}":{json.dumps(fields[field])}'
        del fields[field]
        yield f"without {field}", file(json.dumps({"t": fields}), b4)
        yield f"{field} twice", file(f'{{"t":{tensor(more=again)}}}', b4)
    for more in ("1", "-0", "1.5e-3", "01", "1.", ".5", "1e", "-", "+1", "NaN", "nul", "tru", "true", "false", "null", '"s"', '"\\ud800"',
                 '"\\u00zz"', "[1,[2]]", "[1,]", '{"a":{}}', '{"a"}', '{1:2}', "[" * 125 + "]" * 125, "[" * 126 + "]" * 126,
                 '"\t"', '"', "[}", "1,\"x\":2"):
        unknown = f',"x":{more}'
        yield f"unknown {more[:20]}", file(f'{{"t":{tensor(more=unknown)}}}', b4)
    for name, a, b in (("order", ("[1]", "[4,8]"), ("[1]", "[0,4]")), ("hole", ("[1]", "[0,4]"), ("[1]", "[5,9]")),
                       ("overlap", ("[1]", "[0,4]"), ("[1]", "[3,7]")), ("zero inside", ("[2]", "[0,8]"), ("[0]", "[4,4]")),
                       ("zero at end", ("[2]", "[0,8]"), ("[0]", "[8,8]")), ("zero first", ("[2]", "[0,8]"), ("[0]", "[0,0]")),
                       ("zero beyond", ("[2]", "[0,8]"), ("[0]", "[9,9]"))):
        yield name, file(two(a, b), b8)
    yield "unaligned", file('{"b":' + tensor("[1]", "[0,1]", '"U8"') + ',"f":' + tensor("[1]", "[1,5]") + "}", b"abcde")
    yield "data cut", file(one, b"abc")
    yield "data beyond", file(one, b"abcde")
    yield "data without tensors", file("{}", b"a")
    yield "attack", file("{" + ",".join(f'"t{i}":{tensor()}' for i in range(10)) + "}", b4)


def damaged(count):
    """Valid files with one to three bytes of the header changed, removed, doubled."""
    rng = random.Random(7)
    more = ',"x":[1.5,{"y":null}]'
    seed = (f'{{"__metadata__":{{"a":"\\u00e9\\n"}},"t":{tensor("[2,3]", "[0,24]")},"\\ud83d\\ude00":'
            f'{tensor("[]", "[24,28]")},"z":{tensor("[0,7]", "[28,28]", more=more)}}}').encode()
    for i in range(count):
        header = bytearray(seed)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(header))
            action = rng.randrange(4)
            if action == 0:
                header[at] = rng.choice(b'{}[]",:\\0123456789eE.-+ \n\0ntu\xc3\x80')
            elif action == 1:
                del header[at]
            elif action == 2:
                header.insert(at, header[rng.randrange(len(header))])
            else:
                header[at] ^= 1 << rng.randrange(8)
        yield f"damaged {i}: {bytes(header)!r}", file(bytes(header), bytes(28))


def accepted_by_package(data):
    try:
        safetensors.deserialize(data)
        return True
    except safetensors.SafetensorError:
        return False


def check_verdicts(tool, folder):
    cases = list(corpus()) + list(damaged(3000))
    paths = []
    for i, (_, data) in enumerate(cases):
        paths.append(folder / f"{i}.safetensors")
        paths[-1].write_bytes(data)
    (folder / "list").write_text("".join(f"{p}\n" for p in paths))
    answers = run(tool, "verdicts", folder / "list")
    check(len(answers) == len(cases), "one verdict a case")
    seen, valid = set(), 0
    for (name, data), answer in zip(cases, answers):
        theirs, ours = accepted_by_package(data), answer == "ok"
        valid += theirs
        if theirs and not ours:
            check(any(s in answer for s in STRICTER), f"{name}: valid for the package; {answer}")
            if EXPECTED_STRICTER.get(name, "\0") in answer:
                seen.add(name)
        else:
            check(theirs == ours, f"{name}: invalid for the package, accepted by C")
    check(seen == set(EXPECTED_STRICTER), f"stricter by intention, not seen: {set(EXPECTED_STRICTER) - seen}")
    print(f"{len(cases)} verdicts, {valid} files valid")
    check(valid > 100 and len(cases) - valid > 1000, "both kinds of files")


def main():
    tool = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check_written_by_c(tool, folder)
        check_written_by_package(tool, folder)
        check_verdicts(tool, folder)
    print(f"check_safetensors: safetensors {safetensors.__version__}, {len(failures)} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
