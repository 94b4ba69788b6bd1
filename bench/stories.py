"""What happens to locks that others hold, tried with each library. A part of `run.Run`."""

import json
import signal
import time

import peers as library
from servers import Server, Watch

# The store of the story of the paused owner. A write comes with the fencing token of its lock, if there is one. The store refuses a
# write whose token is smaller than one that it has seen. Tokens are compared as decimal strings: Lua's numbers are not exact.
STORE = """
local last, token = redis.call('HGET', KEYS[1], 'token'), ARGV[1]
if token ~= '' and last and (#token < #last or #token == #last and token < last) then return 'refused' end
redis.call('HSET', KEYS[1], 'value', ARGV[2])
if token ~= '' then redis.call('HSET', KEYS[1], 'token', token) end
return 'accepted'
"""

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


class Stories:
    """Methods of `run.Run`, which has the servers and the programs of the peers."""

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
            attempt = request | {"do": "take", "nodes": self.addresses(3)}
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
