#!/usr/bin/env python3
"""Measures RedisLease and its peers in turns on the same redis-servers, and prints one table and the goals.

    bench/run.py [--quick] [--only cycles,faults,handover,renew,lost,crash,stories] [--peers ours,rslock] [--keep]

Results go to target/bench/results.json. With --only, the other measures of an earlier run stay in that file.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import sys
import time

import measured
import peers as library
import rows
from servers import Server, SlowProxy, awake, cpu_seconds
from stories import Stories

ROOT = pathlib.Path(__file__).parent.parent
RESULTS = ROOT / "target" / "bench" / "results.json"
KINDS = ["cycles", "faults", "handover", "renew", "lost", "crash", "stories"]

class Run(Stories):
    def __init__(self, quick, wanted):
        self.rounds = 1 if quick else 5
        # Of the measures whose rounds take longer.
        self.slow_rounds = 1 if quick else 3
        self.seconds = 0.5 if quick else 1.0
        self.quick = quick
        self.rows, self.missing, self.commands = [], {}, {}
        self.processes = {}
        self.serial = 0
        built = {}
        for peer in library.PEERS:
            if wanted and not {peer.name, peer.argument} & wanted:
                continue
            try:
                if peer.language not in built:
                    print(f"build the {peer.language} programs ...", file=sys.stderr)
                    try:
                        built[peer.language] = library.BUILD[peer.language]()
                    except library.Missing as missing:
                        built[peer.language] = missing
                if isinstance(built[peer.language], library.Missing):
                    raise built[peer.language]
                self.commands[peer] = built[peer.language]
                self.processes[peer] = library.Process(built[peer.language], peer.argument)
            except library.Missing as missing:
                self.missing[peer.name] = str(missing)
        self.servers = [Server() for _ in range(5)]

    def stop(self):
        for process in self.processes.values():
            process.stop()
        for server in self.servers:
            server.stop()

    def prefix(self):
        self.serial += 1
        return f"bench-{os.getpid()}-{self.serial}"

    def request(self, what, nodes, **more):
        return {"do": what, "nodes": nodes, "prefix": self.prefix(), "ttl_ms": 10_000, **more}

    def note(self, cell, peer, round_, **figures):
        self.rows.append({"cell": cell, "peer": peer.name, "round": round_, **figures})
        print(f"  {cell:24} {peer.name:22} {json.dumps(figures)[:150]}", file=sys.stderr)

    def restart(self, peer):
        self.processes[peer].stop()
        self.processes[peer] = library.Process(self.commands[peer], peer.argument)

    @contextlib.contextmanager
    def alone(self, peer):
        """The programs of the other peers are stopped meanwhile."""
        others = [process.process for other, process in self.processes.items() if other != peer]
        try:
            for other in others:
                other.send_signal(signal.SIGSTOP)
            # It was stopped itself: its timers expire, and it may connect again.
            time.sleep(0.3)
            yield
        finally:
            for other in others:
                other.send_signal(signal.SIGCONT)

    def ask(self, cell, peer, round_, request, timeout=60):
        """One cell of one peer. A peer that does not answer is started again."""
        with self.alone(peer):
            answer = self.processes[peer].ask(timeout, **request)
        if answer is None:
            self.note(cell, peer, round_, failed=f"no answer within {timeout} s")
            self.restart(peer)
        elif not answer.get("unsupported"):
            self.note(cell, peer, round_, **answer)
        return answer

    def in_turns(self, rounds, measure, peers=None):
        """Each of `rounds` begins with another peer, so that no peer always follows the same one."""
        order = peers or list(self.processes)
        for round_ in rounds:
            for peer in order[round_ % len(order):] + order[: round_ % len(order)]:
                measure(peer, round_)

    def addresses(self, count):
        return [server.address for server in self.servers[:count]]

    def warm_up(self, nodes, workers=32, peers=None):
        for peer in peers or list(self.processes):
            if self.processes[peer].ask(60, **self.request("cycles", nodes, workers=workers, seconds=self.seconds)) is None:
                self.restart(peer)

    def cycles(self):
        for count in [3] if self.quick else [3, 5]:
            nodes = self.addresses(count)
            self.warm_up(nodes)
            for workers in [1, 64, 256]:
                def measure(peer, round_, nodes=nodes, workers=workers):
                    if not (peer.single and len(nodes) > 3):
                        request = self.request("cycles", nodes, workers=workers, seconds=self.seconds)
                        self.ask(f"cycles-{len(nodes)}-{workers}", peer, round_, request)
                self.in_turns(range(self.rounds), measure)
                # The goals compare these peers. The machine changes more between rounds than the peers differ.
                if count == 3 and not self.quick:
                    compared = [peer for peer in self.processes if peer.name in [*rows.COMPARED, rows.DROPS, rows.LAYER]]
                    self.in_turns(range(self.rounds, 3 * self.rounds), measure, compared)

    def faults(self):
        """One worker, while the last of three servers is stopped, slow, or gone. A peer that needs 100 ms or more for an acquire with
        a stopped server, or does not answer, is measured once in that state: for as long as five acquires take."""
        server = Server()
        proxy = SlowProxy(server, 0.05)
        try:
            near = [*self.addresses(2), server.address]
            waiting = set()

            def stopped(peer, round_, cell):
                """The first request after the stop is not preceded by another; its first acquire is a figure of its own."""
                request = self.request("cycles", near, workers=1, seconds=self.seconds)
                with self.alone(peer):
                    # The client may notice the stop.
                    time.sleep(1)
                    answer = self.processes[peer].ask(20, **request)
                    if answer and answer["cycles"] < 5 and not self.quick:
                        first = answer["acquire_us"]["first"]
                        # A cycle that has begun is completed.
                        longer = self.request("cycles", near, workers=1, seconds=4.5 * answer["seconds"] / max(answer["cycles"], 1))
                        answer = self.processes[peer].ask(longer["seconds"] * 1.5 + 20, **longer)
                        if answer:
                            answer["acquire_us"]["first"] = first
                if answer is None:
                    self.note(cell, peer, round_, failed="no answer within 20 s")
                    self.restart(peer)
                else:
                    self.note(cell, peer, round_, **answer)
                return answer

            def measure(state, nodes, round_, peers=None):
                def one(peer, round_):
                    if not peer.single and (state, peer) not in waiting:
                        if state.startswith("stopped"):
                            answer = stopped(peer, round_, f"fault-{state}")
                        else:
                            request = self.request("cycles", nodes, workers=1, seconds=self.seconds)
                            answer = self.ask(f"fault-{state}", peer, round_, request, timeout=20)
                        slow = state.startswith("stopped") and answer and (answer["acquire_us"]["p50"] or 100_001) > 100_000
                        if not answer or slow:
                            waiting.add((state, peer))
                self.in_turns([round_], one, peers)

            own = [peer for peer in self.processes if peer.name in rows.COMPARED[:2]]
            ours = own[:1]

            def healthy_and_stopped(round_, suffix, peers):
                self.warm_up(near, workers=1, peers=peers)
                measure(f"none{suffix}", near, round_, peers)
                # What an acquire costs that needs two of two servers, without any failure.
                measure(f"two{suffix}", self.addresses(2), round_, own)
                server.pause()
                measure(f"stopped{suffix}", near, round_, ours if suffix else peers)
                server.resume()

            with awake():
                for round_ in range(self.rounds):
                    healthy_and_stopped(round_, "", None)
                self.warm_up([*self.addresses(2), proxy.address], workers=1)
                for round_ in range(self.slow_rounds):
                    measure("slow", [*self.addresses(2), proxy.address], round_)
            # As a machine without the programs that keep its processors running.
            if own:
                for round_ in range(self.rounds):
                    healthy_and_stopped(round_, "-asleep", own)
            with awake():
                server.kill()
                for round_ in range(self.slow_rounds):
                    measure("refusing", near, round_)
        finally:
            proxy.stop()
            server.stop()

    def handover(self):
        def measure(peer, round_):
            if "handover" in peer.measures:
                request = self.request("handover", self.addresses(3), workers=8, seconds=2 * self.seconds)
                self.ask("handover", peer, round_, request)
            if "apart" in peer.measures:
                request = self.request("handover-apart", self.addresses(3), workers=8, seconds=2 * self.seconds)
                self.ask("handover-apart", peer, round_, request)
        self.in_turns(range(self.slow_rounds), measure)

    def renew(self):
        count = 1000 if self.quick else 10_000
        # They do not take or renew all locks in time, and are not tried again.
        failed = set()

        def measure(peer, round_):
            if "renew" not in peer.measures or peer in failed:
                return
            nodes = self.addresses(1 if peer.single else 3)
            request = self.request("renew", nodes, workers=count, seconds=6 * self.seconds, interval_ms=3000)
            process = self.processes[peer]
            servers = [server.process.pid for server in self.servers[: len(nodes)]]
            with self.alone(peer):
                held = process.ask(30, **request)
                before = cpu_seconds(servers), cpu_seconds([process.pid])
                window = process.answer(30) if held else None
            if window is None:
                what = f"renew {count:,} locks" if held else f"take {count:,} locks"
                self.note("renew", peer, round_, failed=f"did not {what} within 30 s")
                failed.add(peer)
                return self.restart(peer)
            used = cpu_seconds(servers) - before[0], cpu_seconds([process.pid]) - before[1]
            figures = {**held, "acquire_seconds": held["seconds"], **window}
            while window and not window.get("done"):
                window = process.answer(30)
                figures |= window or {}
            if window is None:
                self.restart(peer)
            if figures.get("lost") == held["held"]:
                failed.add(peer)
                took = f"{held['seconds']:.0f} s, longer than the lease of {request['ttl_ms'] // 1000} s"
                return self.note("renew", peer, round_, failed="not measured", because=f"the bench takes all {count:,} locks before "
                                 f"it renews, which takes {peer.name} {took}")
            self.note("renew", peer, round_, **figures | {"server_cpu": used[0], "client_cpu": used[1], "window": request["seconds"]})
        self.in_turns(range(self.slow_rounds), measure)

    def lost(self):
        """Two of three servers are stopped; how long until the holder is told."""
        def measure(peer, round_):
            if "lost" not in peer.measures:
                return
            stopped = [Server() for _ in range(3)]
            try:
                process = library.Process(self.commands[peer], peer.argument)
                request = self.request("lost", [server.address for server in stopped], seconds=8, ttl_ms=3000)
                if process.ask(20, **request) is None:
                    return self.note("lost", peer, round_, failed="did not acquire")
                time.sleep(0.5)
                for server in stopped[1:]:
                    server.pause()
                began = time.monotonic()
                noticed = process.answer(10)
                figures = {"seconds": time.monotonic() - began} if noticed and noticed.get("noticed") else {"failed": "no signal within 8 s"}
                self.note("lost", peer, round_, **figures)
                process.stop()
            finally:
                for server in stopped:
                    server.stop()
        self.in_turns(range(self.slow_rounds), measure)

    def crash(self):
        """The owner is killed; how long until another process has the lock."""
        def measure(peer, round_):
            if "crash" not in peer.measures:
                return
            nodes = self.addresses(1 if peer.single else 3)
            owner, taker = (library.Process(self.commands[peer], peer.argument) for _ in range(2))
            try:
                request = self.request("hold", nodes, ttl_ms=2000)
                taker.ask(20, **self.request("cycles", nodes, workers=1, seconds=0.1, ttl_ms=2000))
                held = owner.ask(20, **request)
                if not held:
                    return self.note("crash", peer, round_, failed="did not acquire")
                owner.process.kill()
                began = time.monotonic()
                taken = taker.ask(20, **request | {"do": "take"})
                figures = {"seconds": time.monotonic() - began} if taken else {"failed": "not free within 20 s"}
                self.note("crash", peer, round_, **figures)
            finally:
                owner.stop()
                taker.stop()
        self.in_turns(range(self.slow_rounds), measure)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", default=bool(os.environ.get("QUICK")))
    arguments.add_argument("--only", default=",".join(KINDS))
    arguments.add_argument("--peers", default="")
    arguments.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = arguments.parse_args()
    kinds = options.only.split(",")
    if unknown := set(kinds) - set(KINDS):
        raise SystemExit(f"error: {unknown} is not one of {KINDS}")
    began, about = time.monotonic(), measured.header()
    run = Run(options.quick, set(filter(None, options.peers.split(","))))
    about["load"] = os.getloadavg()[0]
    try:
        for kind in kinds:
            getattr(run, kind)()
        redis = run.servers[0].version
    finally:
        run.stop()
    results = about | {
        "redis": redis, "versions": library.versions(), "quick": options.quick, "missing": run.missing, "rows": [],
    }
    if set(kinds) != set(KINDS) and options.output.exists():
        # Replaces the rows of these kinds. The others keep their run.
        before = json.loads(options.output.read_text())
        again = [f"{', '.join(kinds)} ({results['date']}, commit {measured.commit(about)})"]
        results = before | {"again": before.get("again", []) + again}
        results["rows"] = [row for row in before["rows"] if rows.kind(row["cell"]) not in kinds]
    results["rows"] += run.rows
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1))
    print(f"{rows.table(results)}\n\n{rows.goals(results)}")
    print(f"{time.monotonic() - began:.0f} s; results: {options.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
