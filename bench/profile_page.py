#!/usr/bin/env python3
"""Writes the tables of docs/profile.md, between their markers, from two results of hack/profile.sh.

    bench/profile_page.py [target/bench/profile-before.json target/bench/profile-after.json] [--page FILE]
"""

import argparse
import json
import pathlib
import re

import measured

ROOT = pathlib.Path(__file__).parent.parent
NAMES = {"ours": "RedisLease", "raw": "raw limit", "rslock": "rslock"}
# Above this load average before a measurement, other programs ran.
QUIET = 0.5
# Rounds of requests in a cycle, and requests to all three servers in it. RedisLease and the raw limit: three acquires, two confirms
# and three releases, without the join of a node that granted late. rslock: three SET and three scripts. A renewal is one round of
# three requests.
ROUNDS = {"ours": 3, "raw": 3, "rslock": 2}
REQUESTS = {"ours": 8, "raw": 8, "rslock": 6}


def number(value):
    if value is None:
        return "–"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


def all_system_calls(row):
    if "all_system_calls" in row:
        return row["all_system_calls"]
    return sum(row["system_calls"].values()) if row.get("system_calls") else None


def allocated(row):
    if "allocations_new" not in row:
        return None
    return row["allocations_new"] + row["allocations_grown"]


def lines(renews):
    """Labels, and the figure of a row of results."""
    rounds = lambda row: 1 if renews else ROUNDS[row["peer"]]
    requests = lambda row: 3 if renews else REQUESTS[row["peer"]]
    share = lambda value, parts: None if value is None else value / parts
    what = "renewal" if renews else "cycle"
    if not renews:
        yield "cycles a second", lambda row: number(row["cycles_a_second"])
        yield "acquire, median", lambda row: f"{number(row['acquire_p50_us'])} µs"
    yield "processor time of the servers", lambda row: f"{number(row['servers_us'])} µs"
    yield "processor time of the client", lambda row: f"{number(row['client_us'])} µs"
    # A renewal is one round.
    both = lambda value: lambda row: number(value(row)) if renews else f"{number(value(row))}, {number(share(value(row), rounds(row)))}"
    each = what if renews else "cycle, a round"
    yield f"allocations of the client, a {each}", both(allocated)
    yield f"script calls, a {each}", both(lambda row: row["calls"])
    yield f"system calls of the client, a {each}", both(all_system_calls)
    yield f"reads of the servers, a {each}", both(lambda row: row["reads"])
    for name, text in [("bytes_in", "bytes to the servers"), ("bytes_out", "bytes from the servers")]:
        yield f"{text}, a {what}, a request", lambda row, name=name: f"{number(row[name])}, {number(row[name] / requests(row))}"


def table(title, rows, renews):
    text = [f"| {title} | " + " | ".join(NAMES[row["peer"]] for row in rows) + " |", "|---|" + "---:|" * len(rows)]
    return "\n".join(text + [f"| {label} | " + " | ".join(map(cell, rows)) + " |" for label, cell in lines(renews)])


def tables(results):
    about, rows = results["measured"], results["rows"]
    text = [f"Commit {measured.commit(about)}, {about['date']}, load average before the measurement: {about['load']:.1f}."]
    counts = lambda name: sorted({row[name] for row in rows if name in row}, reverse=True)
    for workers in counts("workers"):
        title = f"{workers} worker{'s' * (workers > 1)}"
        text.append(table(title, [row for row in rows if row.get("workers") == workers], False))
    for locks in counts("locks"):
        text.append(table(f"{locks:,} locks renewed every 3 s", [row for row in rows if row.get("locks") == locks], True))
    return "\n\n".join(text)


def comparable(before, after):
    """Whether the two measurements are comparable, and why not."""
    reasons = []
    if before["measured"]["machine"] != after["measured"]["machine"]:
        reasons.append("they were measured on different machines")
    loaded = [name for name, results in (("before", before), ("after", after)) if results["measured"]["load"] > QUIET]
    if loaded:
        reasons.append(f"other programs ran during the measurement {' and '.join(loaded)}")
    if reasons:
        return f"The tables before and after are **not comparable**: {', and '.join(reasons)}. The columns of one table are."
    return "The tables before and after are comparable: the same machine, and no other programs ran."


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = ROOT / "target" / "bench"
    arguments.add_argument("before", nargs="?", type=pathlib.Path, default=folder / "profile-before.json")
    arguments.add_argument("after", nargs="?", type=pathlib.Path, default=folder / "profile-after.json")
    arguments.add_argument("--page", type=pathlib.Path, default=ROOT / "docs" / "profile.md")
    options = arguments.parse_args()
    before, after = (json.loads(path.read_text()) for path in (options.before, options.after))
    page = options.page.read_text()
    for name, text in [("comparable", comparable(before, after)), ("before", tables(before)), ("after", tables(after))]:
        marked = re.compile(rf"(<!-- {name}: written by bench/profile_page.py -->\n).*?(\n<!-- end -->)", re.S)
        page, count = marked.subn(lambda found: found.group(1) + text + found.group(2), page)
        if count != 1:
            raise SystemExit(f"error: {options.page} has no part {name}, or several")
    options.page.write_text(page)
    print(f"written: {options.page}")


if __name__ == "__main__":
    main()
