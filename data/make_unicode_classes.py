#!/usr/bin/env python3
"""Writes data/unicode_classes.c: the code points of \\p{L}, \\p{N} and White_Space as ranges.

    python3 -m pip install unicodedata2==16.0.0
    python3 data/make_unicode_classes.py > data/unicode_classes.c

Unicode 16.0 is the version by which the Python package tokenizers (0.23) cuts text; tests/reference/check_tokenizer.py
compares every code point with it.
"""
import unicodedata2 as unicode

# PropList.txt, White_Space; unchanged since Unicode 6.3.
WHITE_SPACE = {*range(0x9, 0xe), 0x20, 0x85, 0xa0, 0x1680, *range(0x2000, 0x200b), 0x2028, 0x2029, 0x202f, 0x205f,
               0x3000}
NAMES = {"L": "LS__LETTER", "N": "LS__NUMBER", "S": "LS__SPACE"}


def class_of(point):
    if point in WHITE_SPACE:
        return "S"
    general = unicode.category(chr(point))[0]
    return general if general in "LN" else None


def ranges():
    found = []
    for point in range(0x110000):
        kind = class_of(point)
        if found and found[-1][2] == kind and found[-1][1] == point - 1:
            found[-1][1] = point
        elif kind:
            found.append([point, point, kind])
    return found


HEAD = """/*
 * unicode_classes.c - letters, numbers and white space of Unicode %s, as ranges.
 *
 * Written by make_unicode_classes.py; not to be edited.
 */
#include "data/unicode_impl.h"

/* clang-format off */
const ls__unicode_range ls__unicode_ranges[] = {"""
TAIL = """};
/* clang-format on */

const int ls__unicode_n_ranges = sizeof ls__unicode_ranges / sizeof *ls__unicode_ranges;"""


def main():
    print(HEAD % unicode.unidata_version)
    line = ""
    for first, last, kind in ranges():
        item = f"{{0x{first:04x}, 0x{last:04x}, {NAMES[kind]}}},"
        if len(line) + len(item) > 91:
            print("   " + line)
            line = ""
        line += " " + item
    print("   " + line)
    print(TAIL)


main()
