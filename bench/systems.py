#!/usr/bin/env python3
"""Writes docs/comparison-systems.md from the results of `make bench-systems`.

    bench/systems.py [target/bench/systems.json]
"""

import json
import pathlib
import re
import statistics
import sys

import measured

ROOT = pathlib.Path(__file__).parent.parent

# What each promises, by its documentation.
PROMISES = {
    "RedisLease": {
        "fencing token": "yes, in status and in an annotation of the pod",
        "works across clusters": "yes",
        "the program needs": "nothing, or a reader of its own pod's label",
        "depends on": "three Redis masters; the API server only for changes of the holder",
    },
    "client-go": {
        "fencing token": "no",
        "works across clusters": "only through the API server of one cluster",
        "the program needs": "client-go, and rights on Leases",
        "depends on": "the API server, at every renewal",
    },
    "etcd": {
        "fencing token": "yes, the revision of the key",
        "works across clusters": "yes, with one etcd for all",
        "the program needs": "a client of etcd",
        "depends on": "an etcd that the programs reach",
    },
}

# What each memory cell leaves out.
WITHOUT = {"RedisLease": "without Redis", "client-go": "without the API server", "etcd": "without etcd"}

PAGE = """# Comparison with other leader elections

`make bench-systems` measures three whole systems in one run on a real control plane ([how](../bench/README.md)), each with
a lease of 15 s. `bench/systems.py` wrote this page. [Lock libraries](comparison.md) have a page of their own.

- Date: {date}, commit {commit}.
- Machine: {machine}. Everything shares the cores. The API server is a real one, the kubelets are simulated.
- client-go {client_go}, with the durations of Kubernetes' own components (15 s, 10 s, 2 s), against the same API
  server. etcd's client {etcd}, with its `concurrency` package, against an etcd of its own.

{table}

## Goals

{goals}

- A failover of RedisLease is one after a pod that ended in order (a release) or was killed (a proof): {failovers} in all. Of
  fewer than 100 values, the p99 is the largest. The other systems were measured {others} times after a release: no goal depends on their p99.
- client-go renews with a write every 2 s. Its renewals are counted by this interval, those of RedisLease by the operator's metric.

## What the figures do not say

- "Ends in order": with RedisLease, the leader is a pod, and the time begins when the API server shows that its processes have ended.
  With client-go and etcd the time begins with SIGTERM, because the leader itself releases the lock.
- "Killed": all processes of the leader are gone and are not started again. For RedisLease, the bench writes the pod status that a
  kubelet would write, and the time begins with it. So two times are not included: until the kubelet notices, and until the program of
  the next leader reads its label. A container with `restartPolicy: Always`, as those of every Deployment, is restarted, and its pod
  does not become `Failed`. client-go and etcd can only wait for the end of the lease. When a node vanishes, nobody reports
  anything, and RedisLease waits too.
- Each leader ends at a random moment, 0 to 4.4 s after the next candidate stands by, with the same waits for each system. client-go
  tries every 2 s, times a random number from 1 to 2.2.
- The memory of client-go and etcd is that of two small programs that do nothing else. Each further candidate adds as much. The
  memory of RedisLease is that of one operator, which serves all leases of a cluster; candidates need none.
- etcd renews a lease without a write to its log, and so does Redis.
"""


def seconds(values):
    text = lambda value: f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
    return f"{text(statistics.median(values))} ({text(min(values))}–{text(max(values))})"


def times(values):
    return f"{seconds(values)}, {len(values)} time{'s' * (len(values) > 1)}"


def lines(systems):
    for promise in PROMISES["RedisLease"]:
        yield promise, lambda row, promise=promise: PROMISES[row["system"]][promise]
    yield "leader ends in order: the next one leads after", lambda row: times(row["released"])
    yield "leader is killed: the next one leads after", lambda row: times(row["crashed"])
    yield "writes to the API server or etcd an hour, while nothing happens", lambda row: f"{row['held']['writes_an_hour']:,.0f}"
    yield "memory", lambda row: f"{row['held']['memory_mb']:.0f} MB, {row['held']['processes']} process{'es' * (row['held']['processes'] > 1)} ({WITHOUT[row['system']]})"


# Seconds, and writes to the API server for each renewal.
GOALS = {"failover": 0.25, "writes": 0}


def percentile(values, percent):
    """The smallest value that is not below `percent` % of the values."""
    return sorted(values)[-(-len(values) * percent // 100) - 1]


def goals(systems):
    ours, client_go = (next(row for row in systems if row["system"] == name) for name in ("RedisLease", "client-go"))
    failover = percentile(ours["released"] + ours["crashed"], 99)
    theirs = statistics.median(client_go["released"])
    per_renewal = [row["held"]["writes_an_hour"] / row["held"]["renewals_an_hour"] for row in (ours, client_go)]
    met = lambda is_met: "met" if is_met else "missed"
    return "\n".join([
        "| goal | RedisLease | limit | client-go | |",
        "|---|---:|---:|---:|---|",
        f"| failover after a release or a proof, p99 | {failover * 1000:.0f} ms | at most {GOALS['failover'] * 1000:.0f} ms "
        f"| {theirs:.1f} s after a release, median | {met(failover <= GOALS['failover'])} |",
        f"| writes to the API server for each renewal | {per_renewal[0]:.2f} | {GOALS['writes']:.0f} | {per_renewal[1]:.2f} "
        f"| {met(per_renewal[0] <= GOALS['writes'])} |",
    ])


def table(systems):
    text = ["| | " + " | ".join(row["system"] for row in systems) + " |", "|---|" + "---|" * len(systems)]
    return "\n".join(text + [f"| {label} | " + " | ".join(map(cell, systems)) + " |" for label, cell in lines(systems)])


def version(module):
    found = re.search(rf"{re.escape(module)} v(\S+)", (ROOT / "bench" / "systems" / "go.mod").read_text())
    return found.group(1)


def main():
    path = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target" / "bench" / "systems.json")
    results = json.loads(path.read_text())
    about, systems = results["measured"], sorted(results["systems"], key=lambda row: list(PROMISES).index(row["system"]))
    ours, client_go = (next(row for row in systems if row["system"] == name) for name in ("RedisLease", "client-go"))
    page = PAGE.format(
        date=about["date"], commit=measured.commit(about), machine=about["machine"],
        client_go=version("k8s.io/client-go"), etcd=version("go.etcd.io/etcd/client/v3"), table=table(systems),
        goals=goals(systems), failovers=len(ours["released"] + ours["crashed"]), others=len(client_go["released"]),
    )
    (ROOT / "docs" / "comparison-systems.md").write_text(page)
    print(f"written: docs/comparison-systems.md\n\n{goals(systems)}")


if __name__ == "__main__":
    main()
