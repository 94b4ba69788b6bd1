#!/usr/bin/env python3
"""Prints the table of the results of bench/run.py.

    bench/report.py [target/bench/results.json]
"""

import json
import pathlib
import statistics
import sys

import peers as library

ROOT = pathlib.Path(__file__).parent.parent


def kind(cell):
    """The measure of run.py that a cell belongs to."""
    return {"cycles": "cycles", "fault": "faults"}.get(cell.split("-")[0], cell)


def number(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def spread(values, unit=""):
    """Median, and the smallest and largest of the rounds."""
    values = [value for value in values if value is not None]
    if not values:
        return "–"
    text = number(statistics.median(values)) + unit
    return text if len(values) == 1 else f"{text} ({number(min(values))}–{number(max(values))})"


def milliseconds(values):
    values = [value / 1000 for value in values if value is not None]
    return spread(values, " ms")


class Results:
    def __init__(self, results):
        self.results = results
        self.peers = [peer for peer in library.PEERS if peer.name not in results["missing"]]
        self.peers = [peer for peer in self.peers if any(row["peer"] == peer.name for row in results["rows"])]

    def rows(self, cell, peer):
        return [row for row in self.results["rows"] if row["cell"] == cell and row["peer"] == peer.name]

    def values(self, cell, peer, value):
        return [value(row) for row in self.rows(cell, peer) if "failed" not in row]

    def median(self, cell, name, value):
        peer = next(peer for peer in library.PEERS if peer.name == name)
        values = [one for one in self.values(cell, peer, value) if one is not None]
        return statistics.median(values) if values else None


def throughput(row):
    return row["cycles"] / row["seconds"]


def acquire(percentile):
    return lambda row: row["acquire_us"][percentile]


def release(row):
    return row["release_us"]["p50"]


def measured(results, cell, peer, value, text=spread):
    rows = results.rows(cell, peer)
    if rows and all("failed" in row for row in rows):
        return rows[0]["failed"]
    return text(results.values(cell, peer, value)) if rows else "–"


def renewals(results, peer):
    """Renewals for each second of the servers' processor time."""
    def value(row):
        count = row["renewals"] if isinstance(row["renewals"], (int, float)) else None
        return count / row["server_cpu"] if count else None
    return measured(results, "renew", peer, value)


def lines(results):
    """The rows of the table: a label, and the text of each peer."""
    peers = results.peers
    yield "version", [peer.version for peer in peers]
    yield "servers", ["1" if peer.single else "majority of 3 or 5" for peer in peers]
    yield "fencing token", [peer.token for peer in peers]
    yield "tells the holder of a loss", [peer.loss for peer in peers]
    yield "renews", [peer.renews for peer in peers]
    yield "safe when a server restarts empty", [peer.restart for peer in peers]
    for nodes in (3, 5):
        for workers in (1, 64, 256):
            cell = f"cycles-{nodes}-{workers}"
            if not any(results.rows(cell, peer) for peer in peers):
                continue
            where = f"{nodes} servers, {workers} worker{'s' * (workers > 1)}"
            yield f"{where}: acquire + release, a second", [measured(results, cell, peer, throughput) for peer in peers]
            yield f"{where}: acquire p50", [measured(results, cell, peer, acquire("p50"), milliseconds) for peer in peers]
            yield f"{where}: acquire p99", [measured(results, cell, peer, acquire("p99"), milliseconds) for peer in peers]
            yield f"{where}: release p50", [measured(results, cell, peer, release, milliseconds) for peer in peers]
    states = {"none": "all healthy", "stopped": "one server stopped", "refusing": "one server gone", "slow": "one server 50 ms slow"}
    for state, text in states.items():
        cell = f"fault-{state}"
        yield f"{text}: acquire p50", [measured(results, cell, peer, acquire("p50"), milliseconds) for peer in peers]
        yield f"{text}: acquire p99", [measured(results, cell, peer, acquire("p99"), milliseconds) for peer in peers]
    gap = lambda percentile: lambda row: row["gap_us"][percentile]
    yield "hand-over among 8 waiters: p50", [measured(results, "handover", peer, gap("p50"), milliseconds) for peer in peers]
    yield "hand-over among 8 waiters: p99", [measured(results, "handover", peer, gap("p99"), milliseconds) for peer in peers]
    many = max([row["held"] for row in results.results["rows"] if row["cell"] == "renew" and "held" in row], default=0)
    renew = lambda value, text=spread: [measured(results, "renew", peer, value, text) for peer in peers]
    yield f"{many:,} locks renewed every 3 s: cores of the servers", renew(lambda row: row["server_cpu"] / row["window"])
    yield f"{many:,} locks renewed every 3 s: cores of the client", renew(lambda row: row["client_cpu"] / row["window"])
    yield f"{many:,} locks renewed every 3 s: renewals a server CPU second", [renewals(results, peer) for peer in peers]
    yield f"{many:,} locks renewed every 3 s: lost", renew(lambda row: row.get("lost"), lambda values: spread(values) if any(values) else "0")
    seconds = lambda values: spread(values, " s")
    noticed = [measured(results, "lost", peer, lambda row: row["seconds"], seconds) if "lost" in peer.measures else "no signal" for peer in peers]
    yield "two of three servers stopped, TTL 3 s: the holder is told after", noticed
    yield "owner killed, TTL 2 s: another process has the lock after", [
        measured(results, "crash", peer, lambda row: row["seconds"], seconds) for peer in peers
    ]


def table(results):
    results = Results(results)
    text = ["| | " + " | ".join(peer.name for peer in results.peers) + " |", "|---|" + "---|" * len(results.peers)]
    for label, cells in lines(results):
        if any(cell not in ("–", "no signal") for cell in cells):
            text.append(f"| {label} | " + " | ".join(cells) + " |")
    for name, reason in results.results["missing"].items():
        text.append(f"\nNot measured: {name}: {reason}.")
    return "\n".join(text)


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else ROOT / "target" / "bench" / "results.json"
    print(table(json.loads(pathlib.Path(path).read_text())))
