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
# The peers of the goals.
COMPARED = ["RedisLease", "raw limit", "rslock"]


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
    failed = [row["failed"] for row in rows if "failed" in row]
    if not rows:
        return "–"
    if len(failed) == len(rows):
        return failed[0]
    return text(results.values(cell, peer, value)) + (f"; {len(failed)} of {len(rows)} rounds: {failed[0]}" if failed else "")


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
    states = {"none": "all healthy", "two": "two servers, both needed", "stopped": "one server stopped", "refusing": "one server gone", "slow": "one server 50 ms slow"}
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
    story = lambda name, text: [measured_story(results, peer, name, text) for peer in peers]
    yield "owner paused for longer than its lease: its release leaves the lock of the next owner", story("kept", lambda row: row["kept"])
    yield "owner paused for longer than its lease: a store that checks tokens, asked for its late write", story("late", late_write)
    yield "two of three servers refuse for 6 s: commands to the third, and what they did", story("unlocked", unlocked)
    yield "one lock over two resources", [
        "no such function" if results.rows("stories", peer) and "several" not in peer.measures else cell
        for peer, cell in zip(peers, story("several", several))
    ]


def measured_story(results, peer, name, text):
    """What was seen in the run."""
    rows = results.rows("stories", peer)
    seen = [row for row in rows if name in row]
    return text(seen[-1]) if seen else rows[0].get("failed", "–") if rows else "–"


def late_write(row):
    """What the store did with the write of the paused owner, after the write of the next one."""
    if None in row["tokens"]:
        return f"{row['late']}: there is no token to check"
    return row["late"]


def unlocked(row):
    """What happened on the free server."""
    asked, spans = row["unlocked"]["asked"], row["unlocked"]["locked_ms"]
    if not asked:
        return "not asked"
    calls = f"{asked} command{'s' * (asked != 1)}"
    if not spans:
        return f"{calls}: not locked"
    freed = [span for span in spans if span is not None]
    left = "" if len(freed) == len(spans) else "; **still locked**"
    after = f", unlocked within {number(max(max(freed), 0.1))} ms" if freed else ""
    return f"{calls}: locked {len(spans)} time{'s' * (len(spans) != 1)}{after}{left}"


def several(row):
    """On how many servers both keys were found."""
    if not isinstance(row["several"], dict):
        return row["several"]
    found, of, by = row["several"]["servers"], row["several"]["of"], row["several"]["by"]
    return f"{'yes' if found > of // 2 else 'only'} on {found} of {of} server{'s' * (of != 1)}: {by}"


def table(results):
    results = Results(results)
    text = ["| | " + " | ".join(peer.name for peer in results.peers) + " |", "|---|" + "---|" * len(results.peers)]
    for label, cells in lines(results):
        if any(cell not in ("–", "no signal") for cell in cells):
            text.append(f"| {label} | " + " | ".join(cells) + " |")
    for name, reason in results.results["missing"].items():
        text.append(f"\nNot measured: {name}: {reason}.")
    return "\n".join(text)


def ratio(results, text, ours, other, value, goal, at_least):
    """One line of the goals: the ratio of two figures, each a cell and a peer, and whether the goal is met; no goal if it is for
    comparison. It is the median of the ratios of the rounds: within a round the machine changes less than from the first to the
    last."""
    of = lambda cell, name: {row["round"]: value(row) for row in results.results["rows"] if (row["cell"], row["peer"]) == (cell, name) and "failed" not in row}
    ours, other = of(*ours), of(*other)
    ratios = [ours[round_] / other[round_] for round_ in sorted(ours) if other.get(round_)]
    if not ratios:
        return f"| {text} | – | {goal} | not measured |"
    median = statistics.median(ratios)
    met = goal and (median >= goal if at_least else median <= goal)
    shown = f"{median:.2f}" + (f" ({min(ratios):.2f}–{max(ratios):.2f})" if len(ratios) > 1 else "")
    if goal is None:
        return f"| {text} | {shown} | – | for comparison |"
    return f"| {text} | {shown} | {'at least' if at_least else 'at most'} {goal} | {'met' if met else 'missed'} |"


def goals(results):
    results = Results(results)
    (ours, raw, rslock), median = COMPARED, acquire("p50")
    return "\n".join([
        "| goal | ratio | limit | |",
        "|---|---:|---:|---|",
        ratio(results, "throughput at 256 workers, to rslock", ("cycles-3-256", ours), ("cycles-3-256", rslock), throughput, 1.5, True),
        ratio(results, "acquire of one worker, to the raw limit", ("cycles-3-1", ours), ("cycles-3-1", raw), median, 1.1, False),
        ratio(results, "acquire with one server stopped, to all healthy", ("fault-stopped", ours), ("fault-none", ours), median, 1.2, False),
        ratio(results, "the raw limit on two servers, both needed, to the raw limit on three", ("fault-two", raw), ("fault-none", raw), median, None, False),
        ratio(results, "renewals for each server CPU second, to the raw limit", ("renew", ours), ("renew", raw),
              lambda row: row["renewals"] / row["server_cpu"], 0.8, True),
    ])


PLOTS = ROOT / "docs" / "comparison"


def bars(title, unit, names, values, file, scale="linear"):
    """A horizontal bar for each peer; ours is the first."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pairs = [(name, value) for name, value in zip(names, values) if value]
    figure, axes = pyplot.subplots(figsize=(8, 0.5 + 0.4 * len(pairs)), layout="constrained")
    colours = ["#c6302b" if name == "RedisLease" else "#8a8a8a" for name, _ in pairs]
    drawn = axes.barh([name for name, _ in pairs], [value for _, value in pairs], color=colours)
    axes.bar_label(drawn, labels=[f"{number(value)} {unit}" for _, value in pairs], padding=4)
    axes.set(title=title + (", logarithmic" if scale == "log" else ""), xscale=scale)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PLOTS / file, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def plots(results):
    PLOTS.mkdir(exist_ok=True)
    results = Results(results)
    names = [peer.name for peer in results.peers]
    shown = [f"{peer.name} (1 server)" if peer.single else peer.name for peer in results.peers]
    of = lambda cell, value: [results.median(cell, name, value) for name in names]
    milli = lambda values: [value and value / 1000 for value in values]
    bars("Acquire and release, 256 workers", "a second", shown, of("cycles-3-256", throughput), "throughput.png")
    bars("Acquire, 1 worker, median", "ms", shown, milli(of("cycles-3-1", acquire("p50"))), "latency.png", "log")
    bars("Acquire while one of 3 servers is stopped, median", "ms", shown, milli(of("fault-stopped", acquire("p50"))), "stopped.png", "log")


PAGE = """# Comparison with other lock libraries

`make bench` prints this table on any machine ([how it measures](../bench/README.md)). `bench/report.py` wrote this page.
Whole [leader elections](comparison-systems.md) and [what an acquire costs](profile.md) have pages of their own.

- Date: {date}, commit {commit}.
- Machine: {machine}. Redis {redis}. Servers and clients share the cores. Load average before the run: {load:.1f}.
- All peers ran in turns on the same redis-servers, each as its documentation shows. {rounds}{quick}{again}
- "–": a library for one server has no row for more servers or for a failed one; the raw limit has no retries, and its locks no owner.

{table}

![Throughput](comparison/throughput.png)

![Latency of an acquire](comparison/latency.png)

![An acquire while one server is stopped](comparison/stopped.png)

## Goals

{goals}

`make bench-systems` judges the goals for a failover and for the writes to the API server, with [whole systems](comparison-systems.md).

## What the figures do not say

- Everything runs on one machine without a network. A round trip takes some 30 µs here, and some 500 µs between the zones of a
  cloud. RedisLease needs two round trips for an acquire, most others one: this is the price of the fencing token.
- Servers and clients compete for the same cores, so the throughput of many workers shows the cost of both together.
- The rows of libraries that use one server are not comparable: the lock ends with this server.
- RedisLease and the raw limit send a release and do not wait for the answers; the next acquire is sent behind it on the
  same connection. The others wait. The throughput of RedisLease is that of whole cycles on all servers all the same.
- In the rows of acquires and releases the workers of RedisLease run on the thread of its nodes (`Nodes::spawn`), as those of the raw
  limit do. A worker on another thread waits for two changes of thread in an acquire, some 0.1 ms on this machine.
- RedisLease limits the rate of first attempts of many leases to 2,000 a second. The rows leave the first attempt of each worker out.
- The retry of hand-overs is random in all libraries. In that row, and for the failed acquire, the program of RedisLease calls
  `try_now` up to 100 ms after a refusal, as its peers retry by default or in their documentation. Without that call, a refused
  attempt waits until the holder's keys would expire. The operator does not poll but decides who is next.
- In the rows with a server that is stopped, gone or slow, and in those they are compared with, a program of the idle class keeps
  each processor running. Without it, the fewer servers work, the more often a processor sleeps, and its wake-up in a virtual machine
  takes as long as a round trip. With one of three servers stopped, more of the two processors is left for the others.
- A peer that needs 100 ms or longer for an acquire while a server is stopped was measured once in that state, and a peer that did
  not answer once in any state: such a round takes up to 20 s.
- In the story of the failed acquire, the third server reported each command and each change of the key (`MONITOR` and keyspace
  notifications). "Not asked": the library asks the servers in turn, and those before did not grant the lock. "Unlocked within": the
  longest of the times for which the key was there. redlock (npm) keeps the key while it tries again, ten times by default.
- The store of the paused owner is a compare-and-set script on a Redis key of another server. The bench writes for each owner with the
  token that its library returned, first for the next owner, then for the owner that was paused.
- A peer that is slow here can be the right choice for other reasons. The first rows say what each promises.

{bugs}"""


def field_bugs():
    """The published bugs of peers, and the tests that show that RedisLease does not have them."""
    bugs = json.loads((ROOT / "bench" / "field_bugs.json").read_text())
    rows = [f"| {bug['bug']} | {bug['peer']} | {bug['issue']} | `{bug['file']}`: `{bug['test']}` |" for bug in bugs]
    return "\n".join([
        "## The tests for the field bugs of peers\n",
        "Each test shows that RedisLease does not have the bug.\n",
        "| bug | peer | published as | test |", "|---|---|---|---|", *rows,
    ]) + "\n"


def page(results):
    count = max((row["round"] for row in results["rows"]), default=0) + 1
    rounds = f"Numbers are medians of up to {count} rounds;\n  the smallest and the largest are in brackets." if count > 1 else "Each number is one measurement."
    quick = "\n- This was a short run (`QUICK=1`): its numbers vary more." if results["quick"] else ""
    again = f"\n- Measured in a later run of their own: {'; '.join(results['again'])}." if results.get("again") else ""
    return PAGE.format(**results | {"again": again, "rounds": rounds, "quick": quick, "table": table(results), "goals": goals(results), "bugs": field_bugs()})


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else ROOT / "target" / "bench" / "results.json"
    results = json.loads(pathlib.Path(path).read_text())
    plots(results)
    (ROOT / "docs" / "comparison.md").write_text(page(results))
    print(f"written: docs/comparison.md\n\n{goals(results)}")


if __name__ == "__main__":
    main()
