#!/usr/bin/env python3
"""Changes one line of a Lua script at a time and runs the tests that compare the scripts with the reference node on real servers.

    hack/mutate-lua.py FILE     writes the changes that no test noticed to FILE; changes that FILE.done names were tried before

The scripts are restored at the end, also after an interrupt.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent
SCRIPTS = ROOT / "crates" / "lock" / "src" / "nodes" / "scripts"
TESTS = ["cargo", "test", "--quiet", "--locked", "--package", "redislease", "--test", "redis", "--",
         "scripts::", "reference::", "votes::", "batches::", "script_calls::"]
LONGEST = 300

# What is replaced by what, one place at a time.
CHANGES = [
    (r"(?<![<>=~])<(?![=<])", "<="), (r"(?<![<>=~])>(?![=>])", ">="), (r"<=", "<"), (r">=", ">"), (r"==", "~="), (r"~=", "=="),
    (r"\band\b", "or"), (r"\bor\b", "and"), (r"\bnot ", ""), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"(?<![\w.'\"])1(?![\w.'\"])", "2"), (r"(?<![\w.'\"])0(?![\w.'\"])", "1"), (r" \+ ", " - "), (r" - ", " + "),
]
# A line that is a whole statement can go.
STATEMENT = re.compile(r"^\s*(redis\.call\(.*\)|[\w.\[\]#, +]+ = [^{]*[^{,(]|return .*)$")


def changes(text):
    """Number of the line, its new text (`None`: it goes), and what was done."""
    for number, line in enumerate(text.splitlines()):
        code = line.split("--")[0].rstrip()
        if not code.strip():
            continue
        for pattern, new in CHANGES:
            for place in re.finditer(pattern, code):
                yield number, code[: place.start()] + new + code[place.end():], f"{place.group().strip()} -> {new.strip() or 'nothing'}"
        if STATEMENT.match(code) and code.count("(") == code.count(")"):
            yield number, None, "removed"


def main():
    missed = pathlib.Path(sys.argv[1])
    done_file = missed.with_suffix(".done")
    missed.parent.mkdir(parents=True, exist_ok=True)
    done = set(done_file.read_text().splitlines()) if done_file.exists() else set()
    if not done:
        missed.write_text("")
        if subprocess.run(TESTS, cwd=ROOT).returncode:
            sys.exit("error: the tests fail without a change")
    for path in sorted(SCRIPTS.glob("*.lua")):
        text = path.read_text()
        lines = text.splitlines(keepends=True)
        try:
            for number, new, what in changes(text):
                name = f"{path.relative_to(ROOT)}: {lines[number].strip()}: {what}"
                if name in done:
                    continue
                path.write_text("".join(lines[:number] + ([f"{new}\n"] if new is not None else []) + lines[number + 1:]))
                try:
                    noticed = subprocess.run(TESTS, cwd=ROOT, capture_output=True, timeout=LONGEST).returncode != 0
                except subprocess.TimeoutExpired:
                    noticed = True
                print("noticed" if noticed else "NOT NOTICED", name, flush=True)
                if not noticed:
                    with missed.open("a") as file:
                        file.write(f"{name}\n")
                with done_file.open("a") as file:
                    file.write(f"{name}\n")
        finally:
            path.write_text(text)


if __name__ == "__main__":
    main()
