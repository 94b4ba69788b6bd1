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
import report
from servers import Server, SlowProxy, Watch, awake, cpu_seconds

ROOT = pathlib.Path(__file__).parent.parent
RESULTS = ROOT / "target" / "bench" / "results.json"
KINDS = ["cycles", "faults", "handover", "renew", "lost", "crash", "stories"]

# The store of the story of the paused owner. A write comes with the fencing token of its lock, if there is one. The store refuses a
# write whose token is smaller than one that it has seen. Tokens are compared as decimal strings: Lua's numbers are not exact.
STORE = """
local last, token = redis.call('HGET', KEYS[1], 'token'), ARGV[1]
if token ~= '' and last and (#token < #last or #token == #last and token < last) then return 'refused' end
redis.call('HSET', KEYS[1], 'value', ARGV[2])
if token ~= '' then redis.call('HSET', KEYS[1], 'token', token) end
return 'accepted'
"""


class Run:
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
                    compared = [peer for peer in self.processes if peer.name in report.COMPARED]
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
                request = self.request("cycles", near, workers=1, seconds=self.seconds, at_once=True)
                with self.alone(peer):
                    # A new lease of RedisLease may wait for its turn, whatever the servers do.
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

            own = [peer for peer in self.processes if peer.name in report.COMPARED[:2]]
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

    def stories(self):
        """What happens to locks that others hold, tried with each library."""
        def measure(peer, round_):
            if "crash" not in peer.measures:
                return
            nodes = self.addresses(1 if peer.single else 3)
            self.note("stories", peer, round_, **self.paused_owner(peer, nodes))
            for story in (self.foreign, self.extension_after_loss, self.extension_after_expiry, self.prefix_of_owner):
                if seen := story(peer, nodes):
                    self.note("stories", peer, round_, **seen)
            if not peer.single:
                self.note("stories", peer, round_, **self.failed_acquire(peer))
            if "several" in peer.measures:
                self.several(peer, nodes, round_)
        self.in_turns([0], measure)

    def found(self, request, server, least=1):
        """Whether this server has at least so many keys of a request."""
        script = "return #redis.call('KEYS', ARGV[1])"
        return int(self.servers[server].command("EVAL", script, "0", f"*{request['prefix']}-*")) >= least

    def locks(self, request, servers):
        """Names and values of the keys of a request, on each of the servers."""
        return [server.command("EVAL", KEYS_AND_VALUES, "0", f"*{request['prefix']}-*") for server in servers]

    def several(self, peer, nodes, round_):
        """One lock over two resources: on how many servers both are locked."""
        request = self.request("several", nodes)
        answer = self.processes[peer].ask(20, **request)
        if answer is None:
            self.note("stories", peer, round_, several="did not acquire")
            return self.restart(peer)
        # A library may have answered after a majority.
        time.sleep(0.2)
        both = sum(self.found(request, server, 2) for server in range(len(nodes)))
        self.note("stories", peer, round_, several={"servers": both, "of": len(nodes), "by": answer.get("by")})

    def paused_owner(self, peer, nodes):
        """The owner is paused for longer than its lease, and releases when it goes on. Meanwhile another process has the lock. Each of
        them writes to a store with its token, the owner after its pause."""
        store, resource = self.servers[-1], self.prefix()

        def write(answer, value):
            return store.command("EVAL", STORE, "1", resource, str(answer.get("token", "")), value)

        owner, taker = (library.Process(self.commands[peer], peer.argument) for _ in range(2))
        servers = self.servers[: len(nodes)]
        try:
            request = self.request("stale", nodes, ttl_ms=1000, seconds=0.5)
            taker.ask(20, **self.request("cycles", nodes, workers=1, seconds=0.1))
            held = owner.ask(20, **request)
            if not held or not held.get("held"):
                return {"failed": "did not acquire"}
            owner.process.send_signal(signal.SIGSTOP)
            taken = taker.ask(20, **request | {"do": "take", "ttl_ms": 20_000})
            if not taken or not taken.get("held"):
                return {"failed": "the lock was not free after its lease"}
            # A library may go on after it has a majority.
            time.sleep(0.3)
            before = self.locks(request, servers)
            if write(taken, "of the next owner") != "accepted":
                raise RuntimeError("the store refuses the owner of the lock")
            owner.process.send_signal(signal.SIGCONT)
            late = write(held, "of the paused owner")
            ended = owner.answer(10)
            if not ended or not ended.get("done"):
                return {"failed": "the paused owner did not answer its release"}
            time.sleep(0.3)
            kept = any(before) and before == self.locks(request, servers)
            value = store.command("HGET", resource, "value")
            tokens = [held.get("token"), taken.get("token")]
            return {"kept": "yes" if kept else "no", "late": late, "value": value, "tokens": tokens}
        finally:
            owner.stop()
            taker.stop()

    def foreign(self, peer, nodes):
        """A client that never had the lock releases it."""
        owner, other = (library.Process(self.commands[peer], peer.argument) for _ in range(2))
        servers = self.servers[: len(nodes)]
        try:
            request = self.request("hold", nodes, ttl_ms=20_000)
            if not owner.ask(20, **request):
                return {"failed": "did not acquire"}
            time.sleep(0.3)
            before = self.locks(request, servers)
            answer = other.ask(20, **request | {"do": "foreign"})
            if answer and answer.get("unsupported"):
                return {"foreign": "no such call"}
            if not answer or not answer.get("done"):
                return {"foreign": "no answer"}
            time.sleep(0.3)
            return {"foreign": "yes" if any(before) and before == self.locks(request, servers) else "**no**"}
        finally:
            owner.stop()
            other.stop()

    def extension(self, peer, nodes, ttl_ms, seconds, meanwhile=lambda request: None):
        """One extension after some seconds: the request and the answer, or `None` if the library has no such call."""
        owner = library.Process(self.commands[peer], peer.argument)
        try:
            request = self.request("extension", nodes, ttl_ms=ttl_ms, seconds=seconds)
            held = owner.ask(20, **request)
            if not held or not held.get("held"):
                return request, None
            meanwhile(request)
            return request, owner.answer(seconds + 30)
        finally:
            owner.stop()

    def extension_after_loss(self, peer, nodes):
        """The keys on two of three servers are deleted, and the owner extends: what happens to its key on the third."""
        if len(nodes) < 3:
            return None

        def delete(request):
            time.sleep(0.3)
            for server in self.servers[:2]:
                server.command("EVAL", DELETE, "0", f"*{request['prefix']}-*")

        request, answer = self.extension(peer, nodes, 20_000, 1.0, delete)
        if not answer:
            return {"survivor": "no such call"}
        if answer["extended"]:
            return {"survivor": "**the extension succeeds**"}
        time.sleep(0.3)
        return {"survivor": "stays" if self.found(request, 2) else "**deleted**"}

    def extension_after_expiry(self, peer, nodes):
        """The owner extends a lock that has expired."""
        _, answer = self.extension(peer, nodes, 500, 1.0)
        return {"expired": "**extended**" if answer["extended"] else "refused"} if answer else {"expired": "no such call"}

    def prefix_of_owner(self, peer, nodes):
        """The owner \"ab\" asks for a lock that the owner \"abc\" holds."""
        process = library.Process(self.commands[peer], peer.argument)
        try:
            answer = process.ask(20, **self.request("prefix", nodes, ttl_ms=20_000))
        finally:
            process.stop()
        if not answer or answer.get("unsupported"):
            return {"prefix": "no name of an owner"}
        return {"prefix": "**takes the lock**" if answer["taken"] else "refused"}

    def failed_acquire(self, peer):
        """Two of three servers refuse for 6 s. What happens on the third, by its own reports."""
        apart = Server()
        owner, taker = (library.Process(self.commands[peer], peer.argument) for _ in range(2))
        request = self.request("hold", [*self.addresses(2), apart.address], ttl_ms=20_000)
        watch = Watch(self.servers[2], request["prefix"])
        try:
            if not owner.ask(20, **request):
                return {"failed": "did not acquire"}
            attempt = request | {"do": "take", "nodes": self.addresses(3), "polls": True}
            taker.process.stdin.write(json.dumps(attempt).encode() + b"\n")
            if taker.answer(6) is not None:
                return {"failed": "took the lock of another owner"}
            # An attempt may be under way.
            until, spans = time.monotonic() + 3, watch.locked()
            while None in spans and time.monotonic() < until:
                time.sleep(0.001)
                spans = watch.locked()
            return {"unlocked": {"asked": watch.asked, "locked_ms": [span and span * 1000 for span in spans]}}
        finally:
            owner.stop()
            taker.stop()
            watch.stop()
            self.servers[2].command("CONFIG", "SET", "notify-keyspace-events", "")
            apart.stop()


# What identifies a lock on a server: the names and the values of its keys. Times to live are not part of it.
KEYS_AND_VALUES = """
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', key).ok
  local value = kind == 'hash' and table.concat(redis.call('HGETALL', key), ' ') or kind == 'string' and redis.call('GET', key) or kind
  found[#found + 1] = key .. ' = ' .. value
end
table.sort(found)
return table.concat(found, '; ')
"""

DELETE = """
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end
return 'deleted'
"""


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
        results["rows"] = [row for row in before["rows"] if report.kind(row["cell"]) not in kinds]
    results["rows"] += run.rows
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1))
    print(f"{report.table(results)}\n\n{report.goals(results)}")
    print(f"{time.monotonic() - began:.0f} s; results: {options.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
