#!/usr/bin/env python3
"""Counts what each part of the Lua scripts that is there for its speed saves: the instructions of a redis-server for an acquire, a
confirm and a release in calls of 64 requests and in calls of one, with the script as it is and with that part written plainly.

    hack/script-costs.py        needs valgrind and redis-server; two minutes

A count does not depend on the load of the machine.
"""

import pathlib
import re
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
SCRIPTS = ROOT / "crates" / "lock" / "src" / "nodes" / "scripts"

# Part, script, and its text with what replaces it.
PLAIN = [
    ("a free key is taken with one SET NX GET", "votes", [("if keys == 1 and not values[from] and not written[key] then", "if false then")]),
    ("all keys are read with one MGET", "votes", [
        ("call('MGET', unpack(KEYS))", "call('MGET', KEYS[1], KEYS[2])"),
        ("written[key] or values[i]\n", "written[key] or values[i] or call('GET', key)\n"),
    ]),
    ("the fence is stored once, ahead of the keys", "votes", [
        ("  if last ~= stored then call('SET', KEYS[2], format('%d', last)) end\n  stored, is_ahead = last, true\n", "  is_ahead = true\n"),
        ("  value, fence = grant_to(request)\n", "  value, fence = grant_to(request)\n  call('SET', KEYS[2], format('%d', fence)) stored = fence\n"),
        ("          local value, grant = grant_to(request)\n", "          local value, grant = grant_to(request)\n          call('SET', KEYS[2], format('%d', grant)) stored = grant\n"),
    ]),
    ("one write of the fence for all confirms", "votes", [
        ("  for i = first, last do\n    local key = KEYS[i]\n    local value = written[key] or values[i]\n",
         "  call('SET', KEYS[2], format('%d', fence)) stored = fence\n"
         "  for i = first, last do\n    local key = KEYS[i]\n    local value = written[key] or values[i]\n"),
    ]),
]


class Server:
    """A redis-server under valgrind, on a socket of its own. Valgrind counts only while a call asks it to."""

    def __init__(self, folder):
        path, counts = folder / "s", folder / "counts"
        self.counts = counts
        self.process = subprocess.Popen(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}", "redis-server", "--port", "0", "--unixsocket", str(path),
             "--save", "", "--appendonly", "no"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.socket = socket.socket(socket.AF_UNIX)
        until = time.monotonic() + 60
        while True:
            try:
                self.socket.connect(str(path))
                break
            except OSError:
                if time.monotonic() > until:
                    self.process.kill()
                    raise
                time.sleep(0.1)
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        words = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        return self.reply()

    def reply(self):
        line = self.file.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        return int(rest) if kind == b":" else rest

    def end(self):
        """The instructions of the whole process."""
        try:
            self.call("SHUTDOWN", "NOSAVE")
        except (OSError, ValueError):
            pass
        _, errors = self.process.communicate(timeout=60)
        return int(re.search(r"Collected : *(\d+)", errors).group(1))


def cycles(scripts, requests, times):
    """The instructions of a server that executes so many cycles of so many requests each."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(pathlib.Path(folder))
        try:
            votes, ends = (server.call("SCRIPT", "LOAD", scripts[name]).decode() for name in ("votes", "ends"))
            server.call("MSET", "marker", "m", "fence", "1795316710473594")
            for cycle in range(times):
                keys = [f"redislease/{{lock}}/bench/{number}" for number in range(requests)]
                attempts = [f"{cycle * requests + number + 1:032x}" for number in range(requests)]
                head = [len(keys) + 2, "marker", "fence", *keys, "m"]
                acquires = [1, 30000, "cluster/team/lease/pod-1", *(f"{attempt}:0:" for attempt in attempts)]
                grants = server.call("EVALSHA", votes, *head, 2 ** 52, requests, 0, *acquires)[3:]
                if not all(isinstance(grant, int) for grant in grants):
                    raise RuntimeError(f"not granted: {grants}")
                token = max(grants)
                confirms = [word for attempt, grant in zip(attempts, grants)
                            for word in (f"p:{attempt}:{grant}:", f"t:{attempt}:{token}:")]
                lasts = server.call("EVALSHA", votes, *head, 2 ** 52, 0, token, 1, 0, "", *confirms)[3:]
                if not all(isinstance(last, int) and last > 0 for last in lasts):
                    raise RuntimeError(f"not confirmed: {lasts}")
                ended = server.call("EVALSHA", ends, *head, 1, "pts", *(f":{attempt}:" for attempt in attempts))[3:]
                if ended != [1] * requests:
                    raise RuntimeError(f"not released: {ended}")
        except BaseException:
            server.process.kill()
            raise
        return server.end()


def cost(scripts, requests, many):
    """The instructions for one request. The difference does not contain the start of the server."""
    few = many // 4
    return (cycles(scripts, requests, many) - cycles(scripts, requests, few)) / (requests * (many - few))


def main():
    ships = {name: (SCRIPTS / f"{name}.lua").read_text() for name in ("votes", "ends")}
    base = [cost(ships, 64, 40), cost(ships, 1, 400)]
    print("| part | saves, in a call of 64 requests | saves, in a call of one |\n|---|---:|---:|")
    for name, script, replaced in PLAIN:
        text = ships[script]
        for old, new in replaced:
            if old not in text:
                raise SystemExit(f"error: {script}.lua has no such text: {old}")
            text = text.replace(old, new)
        plain = ships | {script: text}
        saves = [100 * (1 - before / cost(plain, requests, many)) for before, requests, many in zip(base, (64, 1), (40, 400))]
        print(f"| {name} | {saves[0]:.1f} % | {saves[1]:.1f} % |", flush=True)
    print(f"\nAn acquire, a confirm and a release: {base[0]:,.0f} instructions for each of 64, {base[1]:,.0f} for one alone.")


if __name__ == "__main__":
    main()
