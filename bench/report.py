#!/usr/bin/env python3
"""Writes docs/comparison.md, its plots and docs/comparison/results.json from the results of bench/run.py.

    bench/report.py [target/bench/results.json]
    bench/report.py --check      whether docs/comparison.md is what docs/comparison/results.json gives; needs no matplotlib
"""

import difflib
import json
import pathlib
import sys

import measured as measurement
from rows import FEW, Results, acquire, goals, number, places, table, throughput, variants

ROOT = pathlib.Path(__file__).parent.parent
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
  cloud. An acquire of RedisLease has one round trip, or two if another program has raised the counters of the servers
  meanwhile; those of most others have one.
- Servers and clients compete for the same cores, so the throughput of many workers shows the cost of both together.
- RedisLease is measured as its documentation uses it: the crate `redislease-locker` with its defaults, in tasks of a runtime with two
  threads, and each release is awaited. The library has a thread of its own, so that a runtime that is blocked loses no lock. A
  worker that is alone waits for that thread at each step, which costs more than the round trips on this machine. The raw limit, which has no
  such thread, does not wait for its releases.
- In the row of hand-overs all waiters are in one process. In RedisLease, a release wakes the request of the same `Locker` whose present
  delay began first; the peers, except Redisson, retry after a random delay. Waiters in other processes retry in RedisLease too: the row
  with a `Locker` for each waiter, which only RedisLease was measured with.
- RedisLease sends no messages between processes. PUBLISH and SUBSCRIBE need a right of their own in the ACL of each server, and a second
  connection to each server from each waiting process. A message is lost with its server or its connection, so a waiter must retry all
  the same. With the default delays, at most 250 ms, a waiter makes some five attempts a second: 31 commands on each server, those
  inside the scripts included (one to three `redislease run` that wait for a lock that is held).
- A message would also help little. With `CLIENT TRACKING`, which needs no right to channels, each server told 8 waiting programs of each
  change of the key, and they tried again at once (`handover-told` of the bench program, 5 rounds in turns on 2026-12-01, commit 88c7bea5, two
  cores (AMD EPYC) of a host that other machines use): p50 5.1 ms and p99 12.0 ms, against 5.6 ms and 14.9 ms when they retry and 2.0 ms and
  4.7 ms within one `Locker`. In a quieter hour (commit c2792b81): 2.6 and 5.9 ms, 3.3 and 11.5 ms, 0.8 and 3.1 ms. A hand-over then costs 59
  commands on each server in place of 17, and 61 messages, because all of them try at the same moment and one can win.
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
    if missing := [bug["test"] for bug in bugs if f"fn {bug['test']}(" not in (ROOT / bug["file"]).read_text()]:
        raise SystemExit(f"error: bench/field_bugs.json names tests that do not exist: {', '.join(missing)}")
    results = Results(results)
    seen = lambda bug: SEEN[bug["seen"]](results) if "seen" in bug else "not tried"
    rows = [f"| {bug['bug']} | {bug['peer']} | {bug['issue']} | {seen(bug)} | `{bug['file']}`: `{bug['test']}` |" for bug in bugs]
    return "\n".join([
        "## The tests for the field bugs of peers\n",
        "Each test fails if RedisLease has the bug; those in `crates/locker` use only the public interface of the library. \"Seen in this run\": which peers showed it in the table above.\n",
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
