#!/usr/bin/env python3
"""Prints each function of more than 60 lines, from `fn` to its closing brace, and each file of more than 450 lines. Fails if there is one.

It relies on the format of `cargo fmt`: a function ends at the next line with the indentation of its first one that closes it.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREES = ("bench/*/src", "benches", "crates", "examples", "src", "tests")
MOST = 60
MOST_OF_FILE = 450
FUNCTION = re.compile(r'( *)(?:(?:pub(?:\(.*?\))?|default|const|async|unsafe|extern "C") )*fn (\w+)')


def functions(lines):
    """The name, the first line and the length of each function that has a body of several lines."""
    for first, line in enumerate(lines):
        if (found := FUNCTION.match(line)) and not line.endswith((";", "}")):
            indent, name = found.groups()
            end = re.compile(indent + r"(?:\}$|\S.*;$)")
            last = next((number for number in range(first + 1, len(lines)) if end.match(lines[number])), len(lines) - 1)
            yield name, first + 1, last - first + 1


def main():
    count, long = 0, []
    for file in sorted(file for tree in TREES for file in ROOT.glob(f"{tree}/**/*.rs")):
        lines = file.read_text().splitlines()
        if len(lines) > MOST_OF_FILE:
            where = file.relative_to(ROOT)
            long.append(f"{where} has {len(lines)} lines, and may have {MOST_OF_FILE}: split it along what it is about")
        for name, line, length in functions(lines):
            count += 1
            if length > MOST:
                where = f"{file.relative_to(ROOT)}:{line}"
                long.append(f"{where}: {name} has {length} lines, and may have {MOST}: split it along what it does")
    if long or count < 2:
        sys.exit("\n".join(long) or "error: found no functions")
    print(f"no function of more than {MOST} lines, no file of more than {MOST_OF_FILE}: {count} functions of several lines")


if __name__ == "__main__":
    main()
