"""The tables of docs/comparison.md: the results of bench/run.py as numbers, cells and rows."""

import statistics

import peers as library

# The peers of the goals.
COMPARED = ["RedisLease", "raw limit", "rslock"]
# What the library of RedisLease is built on, in tasks on the thread of its connections.
LAYER = "RedisLease, lock layer"
# The library, when the program does not wait for its releases.
DROPS = "RedisLease, guard dropped"


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
NOT_WAITING = {DROPS, LAYER, "raw limit"}
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
    if any(row["cell"] == "handover-apart" for row in results.results["rows"]):
        for percentile in ("p50", "p99"):
            yield f"the same, a `Locker` for each waiter: {percentile}", [
                measured(results, "handover-apart", peer, gap(percentile), milliseconds) for peer in peers
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
        original = next(peer for peer in results.peers if peer.name == variant.variant_of)
        shown += [*([] if original in shown else [original]), variant]

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


VARIANTS = """The same libraries with one thing changed. "Guard dropped": the program drops its guards, which releases the locks without waiting
for the answers. "Lock layer": the internal crate that the library and the operator are built on. Its
workers are tasks on the thread of its connections (`Nodes::spawn`), each with one lease that it takes again and again, and it does not
wait for the answers of a release. `WithFailFast(true)` is the option of redsync for servers that do not answer.
"""


# Text, cell, value, unit and factor, and whether more is better.
PLACES = [
    ("cycles a second with 256 workers", "cycles-3-256", throughput, "", 1, True),
    ("cycles a second with 64 workers", "cycles-3-64", throughput, "", 1, True),
    ("the median acquire of one worker", "cycles-3-1", acquire("p50"), " ms", 1e-3, False),
    ("the median acquire while one server is stopped", "fault-stopped", acquire("p50"), " ms", 1e-3, False),
    ("the median acquire while one server is gone", "fault-refusing", acquire("p50"), " ms", 1e-3, False),
    ("the median acquire while one server is slow", "fault-slow", acquire("p50"), " ms", 1e-3, False),
    ("the median hand-over among 8 waiters of one process, in RedisLease of one `Locker`", "handover", gap("p50"), " ms", 1e-3, False),
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


def absolute(results, text, cell, peer, value, factor, unit, limit):
    """One line of the goals: a figure that has a limit of its own."""
    figures = [value(row) * factor for row in results.results["rows"] if (row["cell"], row["peer"]) == (cell, peer) and "failed" not in row]
    if not figures:
        return f"| {text} | – | {limit} {unit} | not measured |"
    median = statistics.median(figures)
    return f"| {text} | {spread(figures, f' {unit}')} | at most {limit} {unit} | {'met' if median <= limit else 'missed'} |"


def goals(results):
    results = Results(results)
    (ours, raw, rslock), median = COMPARED, acquire("p50")
    slowest = lambda row: row["acquire_us"]["p99"] + row["release_us"]["p99"]
    gaps = {text: gap(percentile) for text, percentile in [("median", "p50"), ("99th percentile", "p99")]}
    return "\n".join(line for line in [
        "| goal | ratio or figure | limit | |",
        "|---|---:|---:|---|",
        ratio(results, "cycles a second with 256 workers: RedisLease / rslock", ("cycles-3-256", ours), ("cycles-3-256", rslock), throughput, 1.5, True),
        ratio(results, "cycles a second of one worker: RedisLease, guard dropped / rslock", ("cycles-3-1", DROPS), ("cycles-3-1", rslock), throughput, 0.6, True),
        ratio(results, "cycles a second of one worker: RedisLease, release awaited / rslock", ("cycles-3-1", ours), ("cycles-3-1", rslock), throughput, 0.6, True),
        ratio(results, "99th percentile of one worker: RedisLease, guard dropped / rslock", ("cycles-3-1", DROPS), ("cycles-3-1", rslock), slowest, 2, False),
        ratio(results, "99th percentile of one worker: RedisLease, release awaited / rslock", ("cycles-3-1", ours), ("cycles-3-1", rslock), slowest, 2, False),
        *(ratio(results, f"{text} hand-over among 8 waiters of one process: RedisLease (one `Locker`) / rslock", ("handover", ours), ("handover", rslock), value, 1, False)
          for text, value in gaps.items()),
        *(absolute(results, f"{text} hand-over among 8 waiters of one `Locker`", "handover", ours, gaps[text], 1e-3, "ms", limit)
          for text, limit in [("median", 1), ("99th percentile", 5)]),
        absolute(results, "the new locks of the table above, all acquired after", "renew", ours, lambda row: row["acquire_seconds"], 1, "s", 0.5),
        ratio(results, "acquire: one server stopped / all healthy", ("fault-stopped", ours), ("fault-none", ours), median, 1.2, False),
        ratio(results, "the same, processors may sleep", ("fault-stopped-asleep", ours), ("fault-none-asleep", ours), median, None, False),
        ratio(results, "raw limit, acquire: two servers that must both answer / three servers", ("fault-two", raw), ("fault-none", raw), median, None, False),
        ratio(results, "the same, processors may sleep", ("fault-two-asleep", raw), ("fault-none-asleep", raw), median, None, False),
        ratio(results, "renewals for each server CPU second: RedisLease / raw limit", ("renew", ours), ("renew", raw),
              lambda row: row["renewals"] / row["server_cpu"], 0.8, True),
        ratio(results, "acquire of one worker: lock layer / raw limit", ("cycles-3-1", LAYER), ("cycles-3-1", raw), median, 1.1, False),
        ratio(results, "cycles a second with 256 workers: lock layer / raw limit", ("cycles-3-256", LAYER), ("cycles-3-256", raw), throughput, None, True),
        # Of measures that are only for comparison, what this run did not measure has no row.
    ] if "not measured" not in line or "| – | – |" not in line)
