#!/usr/bin/env python3
"""Writes docs/comparison.md, its plots and docs/comparison/results.json from the results of bench/run.py.

    bench/report.py [target/bench/results.json]
    bench/report.py --check      whether docs/comparison.md is what docs/comparison/results.json gives; needs no matplotlib
"""

import difflib
import json
import pathlib
import statistics
import sys

import measured as measurement
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
        found = [peer for peer in library.PEERS if any(row["peer"] == peer.name for row in results["rows"])]
        self.peers = [peer for peer in found if not peer.variant_of]
        self.variants = [peer for peer in found if peer.variant_of]

    def rows(self, cell, peer):
        return [row for row in self.results["rows"] if row["cell"] == cell and row["peer"] == peer.name]

    def values(self, cell, peer, value):
        return [value(row) for row in self.rows(cell, peer) if "failed" not in row]

    def median(self, cell, name, value):
        peer = next(peer for peer in library.PEERS if peer.name == name)
        values = [one for one in self.values(cell, peer, value) if one is not None]
        return statistics.median(values) if values else None

    def count(self, cell, peer):
        """Of how many acquires the figures are."""
        return sum(self.values(cell, peer, lambda row: row["acquire_us"]["count"]))


def throughput(row):
    return row["cycles"] / row["seconds"]


def acquire(percentile):
    return lambda row: row["acquire_us"][percentile]


def release(percentile):
    return lambda row: row["release_us"][percentile]


# These send a release and do not wait for the answers.
NOT_WAITING = {"RedisLease", "RedisLease, worker on another thread", "raw limit"}
FEW = 100


def acquires(results, cell, peer, percentile):
    """Times of acquires. Fewer than 100 have no p99, and the cell says how many there are. Failed ones are counted."""
    count = results.count(cell, peer)
    if percentile == "p99" and 0 < count < FEW:
        return "–"
    text = measured(results, cell, peer, acquire(percentile), milliseconds)
    notes = [f"n = {count}"] if percentile == "p50" and 0 < count < FEW else []
    errors = sum(row.get("errors", 0) for row in results.rows(cell, peer))
    # A refused attempt that RedisLease or a peer tried again by itself is part of the acquire's time.
    if errors and percentile == "p50":
        notes.append(f"{errors:,} failed acquires" if errors > 1 else "1 failed acquire")
    if peer.single and text != "–":
        notes.append("1 server")
    return f"{text} [{', '.join(notes)}]" if notes else text


def releases(results, cell, peer, percentile):
    text = measured(results, cell, peer, release(percentile), milliseconds)
    if text == "–":
        return text
    if peer.name in NOT_WAITING:
        return "not waited for"
    return f"{text} [1 server]" if peer.single else text


def measured(results, cell, peer, value, text=spread):
    rows = results.rows(cell, peer)
    failed = [row["failed"] for row in rows if "failed" in row]
    if not rows:
        return "–"
    if len(failed) == len(rows):
        # The words of results that were measured before this text was changed.
        return "not measured" if failed[0].startswith("lost all") else failed[0]
    return text(results.values(cell, peer, value)) + (f"; {len(failed)} of {len(rows)} rounds: {failed[0]}" if failed else "")


def server_cores(row):
    return row["server_cpu"] / row["window"]


def renewals(results, peer):
    """Renewals for each second of the servers' processor time."""
    def value(row):
        count = row["renewals"] if isinstance(row["renewals"], (int, float)) else None
        return count / row["server_cpu"] if count else None
    return one_server(peer, measured(results, "renew", peer, value))


STATES = {
    "none": "all healthy", "two": "(reference: two servers, both must answer)", "stopped": "one server stopped",
    "refusing": "one server gone", "slow": "one server 50 ms slow",
    "none-asleep": "all healthy, processors may sleep", "two-asleep": "(reference: two servers, both must answer), processors may sleep",
    "stopped-asleep": "one server stopped, processors may sleep",
}


def first(row):
    return row["acquire_us"].get("first")


def gap(percentile):
    return lambda row: row["gap_us"][percentile]


def one_server(peer, text):
    return f"{text} [1 server]" if peer.single and text != "–" else text


def times_of(results, peers, cell, where, with_release=False):
    """The rows of the times of acquires and releases in a cell."""
    for percentile in ("p50", "p99"):
        yield f"{where}: acquire {percentile}", [acquires(results, cell, peer, percentile) for peer in peers]
    if with_release:
        for percentile in ("p50", "p99"):
            yield f"{where}: release {percentile}", [releases(results, cell, peer, percentile) for peer in peers]


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
            yield f"{where}: acquire + release, a second", [one_server(peer, measured(results, cell, peer, throughput)) for peer in peers]
            yield from times_of(results, peers, cell, where, with_release=True)
    for state, text in STATES.items():
        cell = f"fault-{state}"
        if state == "stopped":
            yield f"{text}: first acquire after the stop", [
                measured(results, cell, peer, first, milliseconds) if any("first" in row.get("acquire_us", {}) for row in results.rows(cell, peer)) else "–"
                for peer in peers
            ]
        yield from times_of(results, peers, cell, text)
    for percentile in ("p50", "p99"):
        yield f"hand-over among 8 waiters: {percentile}", [
            one_server(peer, measured(results, "handover", peer, gap(percentile), milliseconds)) for peer in peers
        ]
    many = max([row["held"] for row in results.results["rows"] if row["cell"] == "renew" and "held" in row], default=0)
    renew = lambda value, text=spread: [one_server(peer, measured(results, "renew", peer, value, text)) for peer in peers]
    # The raw limit writes the keys without acquires.
    acquired = lambda row: row.get("acquire_seconds") or None
    yield f"{many:,} new locks: acquired after", renew(acquired, lambda values: spread(values, " s"))
    yield f"{many:,} locks renewed every 3 s: cores of the servers", renew(server_cores)
    yield f"{many:,} locks renewed every 3 s: cores of the client", renew(lambda row: row["client_cpu"] / row["window"])
    yield f"{many:,} locks renewed every 3 s: renewals a server CPU second", [renewals(results, peer) for peer in peers]
    yield f"{many:,} locks renewed every 3 s: lost", renew(lambda row: row.get("lost"), lambda values: spread(values) if any(values) else "0")
    seconds = lambda values: spread(values, " s")
    noticed = [measured(results, "lost", peer, lambda row: row["seconds"], seconds) if "lost" in peer.measures else no_signal(peer) for peer in peers]
    yield "two of three servers stopped, TTL 3 s: the holder is told after", noticed
    yield "owner killed, TTL 2 s: another process has the lock after", [
        measured(results, "crash", peer, lambda row: row["seconds"], seconds) for peer in peers
    ]
    story = lambda name, text: [measured_story(results, peer, name, text) for peer in peers]
    yield "owner paused for longer than its lease: its release leaves the lock of the next owner", story("kept", lambda row: row["kept"])
    yield "owner paused for longer than its lease: a store that checks tokens, asked for its late write", story("late", late_write)
    plain = lambda name: story(name, lambda row: row[name])
    yield "a client that never had the lock releases it: the lock stays", plain("foreign")
    yield "the keys on two of three servers are gone, the owner extends: its key on the third", plain("survivor")
    yield "the owner extends a lock that has expired", plain("expired")
    yield "the owner `ab` asks for the lock of the owner `abc`", plain("prefix")
    yield ("failed acquire: the lock is held on two of three servers, another client tries for 6 s. On the third server:",
           story("unlocked", unlocked))
    yield "one lock over two resources", [
        "no such function" if results.rows("stories", peer) and "several" not in peer.measures else cell
        for peer, cell in zip(peers, story("several", several))
    ]


def no_signal(peer):
    return peer.loss if peer.loss == library.WHEN_EXTENDING else "no signal"


def measured_story(results, peer, name, text):
    """What was seen in the run."""
    rows = results.rows("stories", peer)
    seen = [row for row in rows if name in row]
    if not seen:
        return rows[0].get("failed", "–") if rows else "–"
    found = text(seen[-1])
    return "renews by itself" if found == NO_CALL and peer.renews == "by itself" and name in EXTENSIONS else found


# Of the program: the library has no call for the story. And stories of an extension by the program.
NO_CALL = "no such call"
EXTENSIONS = {"survivor", "expired"}


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
    freed = [max(span, 0.1) for span in spans if span is not None]
    left = "" if len(freed) == len(spans) else "; **still locked at the end**"
    after = f", median {number(statistics.median(freed))} ms, longest {number(max(freed))} ms" if freed else ""
    return f"{calls}: locked {len(spans)} time{'s' * (len(spans) != 1)}{after}{left}"


def several(row):
    """On how many servers both keys were found."""
    if not isinstance(row["several"], dict):
        return row["several"]
    found, of, by = row["several"]["servers"], row["several"]["of"], row["several"]["by"]
    if found <= of // 2:
        return f"on {found} of {of} servers: {by}, documented with one server"
    return f"yes, on {found} of {of} server{'s' * (of != 1)}: {by}"


# Cells of a row that has nothing to show.
NOTHING = {"–", "no signal", library.WHEN_EXTENDING}


def rows_of(peers, found):
    text = ["| | " + " | ".join(peer.name for peer in peers) + " |", "|---|" + "---|" * len(peers)]
    return text + [f"| {label} | " + " | ".join(cells) + " |" for label, cells in found if not set(cells) <= NOTHING]


def table(results):
    results = Results(results)
    text = rows_of(results.peers, lines(results))
    because = {row["because"] for row in results.results["rows"] if "because" in row}
    for row in results.results["rows"]:
        if row.get("failed", "").startswith("lost all"):
            because.add(f"the bench takes all 10,000 locks before it renews, which takes {row['peer']} 13 s, longer than the lease of 10 s")
    text += [f"\n\"not measured\": {reason}." for reason in sorted(because)]
    for name, reason in results.results["missing"].items():
        text.append(f"\nNot measured: {name}: {reason}.")
    return "\n".join(text)


def variants(results):
    """The table of variants, each beside the peer whose variant it is."""
    results = Results(results)
    if not results.variants:
        return ""
    shown = []
    for variant in results.variants:
        shown += [next(peer for peer in results.peers if peer.name == variant.variant_of), variant]

    def found():
        for nodes in (3, 5):
            for workers in (1, 64, 256):
                cell, where = f"cycles-{nodes}-{workers}", f"{nodes} servers, {workers} worker{'s' * (workers > 1)}"
                yield f"{where}: acquire + release, a second", [measured(results, cell, peer, throughput) for peer in shown]
                yield from times_of(results, shown, cell, where)
        for state, text in STATES.items():
            if state == "stopped":
                yield f"{text}: first acquire after the stop", [measured(results, f"fault-{state}", peer, first, milliseconds) for peer in shown]
            yield from times_of(results, shown, f"fault-{state}", text)

    return "\n## Variants\n\n" + VARIANTS + "\n" + "\n".join(rows_of(shown, found())) + "\n"


VARIANTS = """The same libraries with one thing changed. "Worker on another thread": the workers of RedisLease run with `tokio::spawn` on the
program's runtime, and not on the thread of the nodes (`Nodes::spawn`). `WithFailFast(true)` is the option of redsync for servers that
do not answer.
"""


# Text, cell, value, unit and factor, and whether more is better.
PLACES = [
    ("cycles a second with 256 workers", "cycles-3-256", throughput, "", 1, True),
    ("cycles a second with 64 workers", "cycles-3-64", throughput, "", 1, True),
    ("the median acquire of one worker", "cycles-3-1", acquire("p50"), " ms", 1e-3, False),
    ("the median acquire while one server is stopped", "fault-stopped", acquire("p50"), " ms", 1e-3, False),
    ("the median acquire while one server is gone", "fault-refusing", acquire("p50"), " ms", 1e-3, False),
    ("the median acquire while one server is slow", "fault-slow", acquire("p50"), " ms", 1e-3, False),
    ("the median hand-over among 8 waiters", "handover", gap("p50"), " ms", 1e-3, False),
    ("the time until the holder is told that it lost its lock of 3 s", "lost", lambda row: row["seconds"], " s", 1, False),
    ("the cores of the servers for renewals", "renew", server_cores, " cores", 1, False),
]


def places(results):
    """Where RedisLease is first among the libraries for several servers, and where it is not."""
    results = Results(results)
    others = [peer.name for peer in results.peers if not peer.single and peer.name not in COMPARED[:2]]
    won, lost = [], []
    for text, cell, value, unit, factor, more in PLACES:
        ours = results.median(cell, COMPARED[0], value)
        found = {name: results.median(cell, name, value) for name in others}
        found = {name: figure for name, figure in found.items() if figure is not None}
        if ours is None or not found:
            continue
        best = (max if more else min)(found, key=found.get)
        shown = lambda figure: f"{number(figure * factor)}{unit}"
        is_first = ours >= found[best] if more else ours <= found[best]
        line = f"{text} ({shown(ours)}; {best} {shown(found[best])})"
        (won if is_first else lost).append(line)
    text = []
    if won:
        text += ["Among the libraries for several servers, RedisLease is first in:\n", *(f"- {line}" for line in won)]
    if lost:
        text += ["\nRedisLease is not first in:\n", *(f"- {line}" for line in lost)]
    return "\n".join([*text, "\nIn brackets: RedisLease, and the best other library.\n"]) if text else ""


def ratio(results, text, ours, other, value, goal, at_least):
    """One line of the goals: the ratio of two figures, each a cell and a peer, and whether the goal is met; no goal if it is for
    comparison. It is the median of the ratios of the rounds: within a round the machine changes less than from the first to the
    last."""
    of = lambda cell, name: {row["round"]: value(row) for row in results.results["rows"] if (row["cell"], row["peer"]) == (cell, name) and "failed" not in row}
    ours, other = of(*ours), of(*other)
    ratios = [ours[round_] / other[round_] for round_ in sorted(ours) if other.get(round_)]
    if not ratios:
        return f"| {text} | – | {'–' if goal is None else goal} | not measured |"
    median = statistics.median(ratios)
    met = goal and (median >= goal if at_least else median <= goal)
    shown = f"{median:.2f}" + (f" ({min(ratios):.2f}–{max(ratios):.2f})" if len(ratios) > 1 else "")
    if goal is None:
        return f"| {text} | {shown} | – | for comparison |"
    return f"| {text} | {shown} | {'at least' if at_least else 'at most'} {goal} | {'met' if met else 'missed'} |"


def goals(results):
    results = Results(results)
    (ours, raw, rslock), median = COMPARED, acquire("p50")
    return "\n".join(line for line in [
        "| goal | ratio | limit | |",
        "|---|---:|---:|---|",
        ratio(results, "cycles a second with 256 workers: RedisLease / rslock", ("cycles-3-256", ours), ("cycles-3-256", rslock), throughput, 1.5, True),
        ratio(results, "acquire of one worker: RedisLease / raw limit", ("cycles-3-1", ours), ("cycles-3-1", raw), median, 1.1, False),
        ratio(results, "RedisLease, acquire: one server stopped / all healthy", ("fault-stopped", ours), ("fault-none", ours), median, 1.2, False),
        ratio(results, "the same, processors may sleep", ("fault-stopped-asleep", ours), ("fault-none-asleep", ours), median, None, False),
        ratio(results, "raw limit, acquire: two servers that must both answer / three servers", ("fault-two", raw), ("fault-none", raw), median, None, False),
        ratio(results, "the same, processors may sleep", ("fault-two-asleep", raw), ("fault-none-asleep", raw), median, None, False),
        ratio(results, "renewals for each server CPU second: RedisLease / raw limit", ("renew", ours), ("renew", raw),
              lambda row: row["renewals"] / row["server_cpu"], 0.8, True),
        # Of measures that are only for comparison, what this run did not measure has no row.
    ] if "not measured" not in line or "| – | – |" not in line)


PLOTS = ROOT / "docs" / "comparison"


def bars(title, unit, names, values, file, scale="linear", notes={}):
    """A horizontal bar for each peer; ours is the first. `notes` are added to the labels of bars, by name."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pairs = [(name, value) for name, value in zip(names, values) if value]
    figure, axes = pyplot.subplots(figsize=(8, 0.5 + 0.4 * len(pairs)), layout="constrained")
    colours = ["#c6302b" if name == "RedisLease" else "#8a8a8a" for name, _ in pairs]
    drawn = axes.barh([name for name, _ in pairs], [value for _, value in pairs], color=colours)
    axes.bar_label(drawn, labels=[f"{number(value)} {unit}{notes.get(name, '')}" for name, value in pairs], padding=4)
    axes.set(title=title + (", logarithmic" if scale == "log" else ""), xscale=scale)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PLOTS / file, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def plots(results):
    results = Results(results)
    names = [peer.name for peer in results.peers]
    shown = [f"{peer.name} (1 server)" if peer.single else peer.name for peer in results.peers]
    of = lambda cell, value: [results.median(cell, name, value) for name in names]
    milli = lambda values: [value and value / 1000 for value in values]
    bars("Acquire and release, 256 workers", "a second", shown, of("cycles-3-256", throughput), "throughput.png")
    bars("Acquire, 1 worker, median", "ms", shown, milli(of("cycles-3-1", acquire("p50"))), "latency.png", "log")
    bars("Acquire while one of 3 servers is stopped, median", "ms", shown, milli(of("fault-stopped", acquire("p50"))), "stopped.png", "log",
         notes={peer.name: f", n = {count}" for peer in results.peers if 0 < (count := results.count("fault-stopped", peer)) < FEW})


PAGE = """# Comparison with other lock libraries

{places}
`make bench` prints this table on any machine ([how it measures](../bench/README.md)). `bench/report.py` wrote this page from
[the results](comparison/results.json).
Whole [leader elections](comparison-systems.md) and [what an acquire costs](profile.md) have pages of their own.

- Date: {date}, commit {commit}.
- Machine: {machine}. Redis {redis}. Servers and clients share the cores. Load average before the run: {load:.1f}.{versions}
- All peers ran in turns on the same redis-servers, with the defaults of their documentation. Other options were not tried{except_}. {rounds}{quick}{again}
- "–": a library for one server has no row for more servers or for a failed one; the raw limit has no retries, and its locks no owner.
  "[1 server]": a library for one server sends one command where others send three. If that server fails, the lock is gone.
- "n = 5": so many acquires, where there are fewer than 100. These have no p99.
- Redisson RedLock is deprecated by its authors in favour of RLock and RFencedLock.
- Consul: not measured, because its server is a large build (297 modules) that `go install` refuses for its `replace` directives to
  local folders. The lock of etcd, which also lives in a Raft cluster, is [measured instead](comparison-systems.md).

{table}
{variants}
![Throughput](comparison/throughput.png)

![Latency of an acquire](comparison/latency.png)

![An acquire while one server is stopped](comparison/stopped.png)

## Goals

{goals}

`make bench-systems` judges the goals for a failover and for the writes to the API server, with [whole systems](comparison-systems.md).

## What the figures do not say

- Everything runs on one machine without a network. A round trip takes some 30 µs here, and some 500 µs between the zones of a
  cloud. RedisLease needs two round trips for an acquire, most others one: this is the price of a token that grows on a majority.
- Servers and clients compete for the same cores, so the throughput of many workers shows the cost of both together.
- RedisLease and the raw limit send a release and do not wait for the answers; the next acquire is sent behind it on the
  same connection. The others wait. The throughput of RedisLease is that of whole cycles on all servers all the same.
- In the rows of acquires and releases the workers of RedisLease run on the thread of its nodes (`Nodes::spawn`), as those of the raw
  limit do. A worker on another thread waits for two changes of thread in an acquire{see}.
- RedisLease limits the rate of first attempts of many leases to 2,000 a second. The row of new locks shows this limit. The rows
  of acquires and releases leave the first attempt of each worker out: it can wait 50 ms for its turn.
- The retry of hand-overs is random in all libraries. In that row, and for the failed acquire, the program of RedisLease calls
  `try_now` up to 100 ms after a refusal, as its peers retry by default or in their documentation. Without that call, a refused
  attempt waits until the holder's keys would expire. The operator does not poll but decides who is next.
- In the rows with a server that is stopped, gone or slow, and in those they are compared with, a program of the idle class keeps
  each processor running. Without it, the fewer servers work, the more often a processor sleeps, and its wake-up in a virtual machine
  takes as long as a round trip. "Processors may sleep": without these programs.
- These programs make the p99 larger: a server that another server preempted sometimes waits behind such a program until the next
  tick of the scheduler (4 ms apart on this machine; `perf sched` showed waits of 1.1 to 5 ms). So the p99 of RedisLease with all servers
  healthy is larger than in the row of one worker, and the p99 of these rows says little about the libraries.
- With one server stopped, the other programs get more processor time; this is why the ratio is below 1.
- "50 ms slow": The delay is made by a Python proxy on the same processors; this is why others also get slower.
- The first acquire after the stop begins at least a second after the stop and after the last cycles, and the programs are measured in
  turns: a client may have noticed the stop.
- A peer that needs 100 ms or longer for an acquire while a server is stopped was measured once in that state, for as long as five
  acquires take, and a peer that did not answer within 20 s once in any state.
- In the story of the failed acquire, the third server reported each command and each change of the key (`MONITOR` and keyspace
  notifications). "Not asked": the library asks the servers in turn, and those before did not grant the lock. Median and longest: of the
  times for which the key was there. redlock (npm) keeps the key while it tries again, ten times by default.
- The store of the paused owner is a compare-and-set script on a Redis key of another server. The bench writes for each owner with the
  token that its library returned, first for the next owner, then for the owner that was paused.
- The lock of the next owner is compared by the names and values of its keys on all servers, before and after the release.
- A client that never had the lock: its program makes a lock object of the library for the key, with another value if the library needs
  one, and releases it. For RedisLease it sends the requests of a release with another attempt to the nodes.
- The extension with lost keys: two servers lost the lock, so the owner has no majority, and the extension fails. Until the key on the
  third server expires, it can still stop another client there. A library that deletes it makes room for the next owner, also if the
  extension failed for another reason, such as a timeout.
- A peer that is slow here can be the right choice for other reasons. The first rows say what each promises.

{bugs}"""


def told(results, name, bad, text):
    """In the row of a story: which peers showed the bug, and how many did not."""
    seen = {peer.name: row[name] for peer in results.peers for row in results.rows("stories", peer) if name in row}
    tried = {peer: what for peer, what in seen.items() if not what.startswith("no ")}
    if not tried:
        return "not tried"
    hit = [peer for peer, what in tried.items() if bad(what)]
    return f"{', '.join(hit)}: {text}" if hit else f"no ({len(tried)} tried)"


def seen_slow(results):
    """Peers that one stopped server delays."""
    slow = [peer.name for peer in results.peers if (results.median("fault-stopped", peer.name, acquire("p50")) or 0) > 100_000]
    return ", ".join(slow) or "no"


def seen_no_signal(results):
    """Peers with renewal whose holder was not told."""
    silent = [peer.name for peer in results.peers if any("failed" in row for row in results.rows("lost", peer))]
    return ", ".join(silent) or "no"


SEEN = {
    "slow": seen_slow,
    "no signal": seen_no_signal,
    "survivor": lambda results: told(results, "survivor", lambda what: "deleted" in what, "the key is deleted"),
    "expired": lambda results: told(results, "expired", lambda what: "extended" in what, "extended"),
    "prefix": lambda results: told(results, "prefix", lambda what: "takes" in what, "takes the lock"),
    "kept": lambda results: told(results, "kept", lambda what: what != "yes", "the lock is gone"),
    "foreign": lambda results: told(results, "foreign", lambda what: what != "yes", "the lock is gone"),
}


def field_bugs(results):
    """The published bugs of peers, and the tests of RedisLease for them."""
    bugs = json.loads((ROOT / "bench" / "field_bugs.json").read_text())
    results = Results(results)
    seen = lambda bug: SEEN[bug["seen"]](results) if "seen" in bug else "not tried"
    rows = [f"| {bug['bug']} | {bug['peer']} | {bug['issue']} | {seen(bug)} | `{bug['file']}`: `{bug['test']}` |" for bug in bugs]
    return "\n".join([
        "## The tests for the field bugs of peers\n",
        "Each test fails if RedisLease has the bug. \"Seen in this run\": which peers showed it in the table above.\n",
        "| bug | peer | published as | seen in this run | test |", "|---|---|---|---|---|", *rows,
    ]) + "\n"


def page(results):
    count = max((row["round"] for row in results["rows"]), default=0) + 1
    rounds = f"Numbers are medians of up to {count} rounds;\n  the smallest and the largest are in brackets." if count > 1 else "Each number is one measurement."
    quick = "\n- This was a short run (`QUICK=1`): its numbers vary more." if results["quick"] else ""
    again = f"\n- Measured in a later run of their own: {'; '.join(results['again'])}." if results.get("again") else ""
    shown = variants(results)
    versions = ", ".join(f"{name} {version}" for name, version in results.get("versions", {}).items())
    return PAGE.format(**results | {
        "commit": measurement.commit(results), "again": again, "rounds": rounds, "quick": quick, "places": places(results),
        "versions": f"\n- {versions}." if versions else "", "table": table(results), "variants": shown,
        "except_": ", except\n  `WithFailFast` of redsync ([variants](#variants))" if shown else "",
        "see": " ([variants](#variants))" if shown else ", some 0.1 ms on this machine",
        "goals": goals(results), "bugs": field_bugs(results),
    })


COMMITTED = PLOTS / "results.json"


def shortened(value):
    """Numbers with six digits, which the page does not show more of."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: shortened(one) for name, one in value.items()}
    return [shortened(one) for one in value] if isinstance(value, list) else value


def check():
    """Whether the page is what the committed results give."""
    lines = lambda text: text.splitlines(keepends=True)
    path = ROOT / "docs" / "comparison.md"
    difference = list(difflib.unified_diff(lines(path.read_text()), lines(page(json.loads(COMMITTED.read_text()))), str(path), str(COMMITTED)))
    if difference:
        sys.stdout.writelines(difference)
        raise SystemExit("error: docs/comparison.md is not what docs/comparison/results.json gives; run bench/report.py docs/comparison/results.json")


def main():
    if sys.argv[1:] == ["--check"]:
        return check()
    path = sys.argv[1] if len(sys.argv) > 1 else ROOT / "target" / "bench" / "results.json"
    results = shortened(json.loads(pathlib.Path(path).read_text()))
    PLOTS.mkdir(exist_ok=True)
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in results["rows"])
    rest = {name: value for name, value in results.items() if name != "rows"}
    COMMITTED.write_text(json.dumps(rest, ensure_ascii=False, indent=1)[:-2] + ',\n "rows": [\n' + rows + "\n]}\n")
    (ROOT / "docs" / "comparison.md").write_text(page(results))
    # Last: the page does not need matplotlib.
    plots(results)
    print(f"written: docs/comparison.md\n\n{goals(results)}")


if __name__ == "__main__":
    main()
