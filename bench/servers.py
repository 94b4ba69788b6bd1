"""Redis servers of one run, and a proxy that delays."""

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

PR_SET_PDEATHSIG = 1


def die_with_parent():
    """Runs in a child before its program: the child ends when the driver ends, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One redis-server without persistence on a port of the loopback interface."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="redislease-bench-")
        for _ in range(5):
            self.port = free_port()
            options = f"--port {self.port} --bind 127.0.0.1 --appendonly no --maxmemory-policy noeviction --loglevel warning"
            self.process = subprocess.Popen(
                ["redis-server", *options.split(), "--save", "", "--dir", self.directory.name],
                stdout=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
            )
            if self._answers():
                break
        else:
            raise SystemExit("error: redis-server does not start")
        self.address = f"127.0.0.1:{self.port}"
        self.admit()

    def _answers(self):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                return self.command("PING") == "PONG"
            except OSError:
                time.sleep(0.02)
        return False

    def command(self, *words):
        """Sends one command and returns the reply's text."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            parts = [f"*{len(words)}\r\n"] + [f"${len(word)}\r\n{word}\r\n" for word in words]
            connection.sendall("".join(parts).encode())
            with connection.makefile("rb") as reply:
                head = reply.readline().decode().strip()
                return reply.read(int(head[1:])).decode(errors="backslashreplace") if head.startswith("$") else head[1:]

    def admit(self):
        """Makes the server vote at once, as if it had waited for the longest lease of RedisLease."""
        info = dict(line.split(":", 1) for line in self.command("INFO", "server").split("\r\n") if ":" in line)
        self.version = info["redis_version"]
        self.command("SET", "redislease:fence", str(time.time_ns() // 1000))
        self.command("SET", "redislease:marker", f"{info['run_id']}:1:bench")

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.kill()
        self.directory.cleanup()


AWAKE = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while True:
    pass
"""


@contextlib.contextmanager
def awake():
    """Keeps each processor running with a program that runs only when no other wants to. Otherwise a processor that has nothing to
    do sleeps, and its wake-up, in a virtual machine as long as a round trip, is measured: the fewer servers work, the more often."""
    programs = [
        subprocess.Popen([sys.executable, "-c", AWAKE, str(cpu)], preexec_fn=die_with_parent) for cpu in os.sched_getaffinity(0)
    ]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


class Watch:
    """What a server does with the keys whose names contain `part`, by the server's own reports, none of which is left out:
    the commands of its clients that name such a key, and the times at which a key was set and deleted."""

    # Events of the types of keys that the libraries use.
    SET, GONE = {"set", "hset", "hincrby"}, {"del", "expired"}

    def __init__(self, server, part):
        self.part, self.asked, self.events = part, 0, []
        server.command("CONFIG", "SET", "notify-keyspace-events", "KA")
        self.connections = []
        for words, take in [(["MONITOR"], self._asked), (["PSUBSCRIBE", f"__keyspace@0__:*{part}*"], self._event)]:
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=5)
            parts = [f"*{len(words)}\r\n"] + [f"${len(word)}\r\n{word}\r\n" for word in words]
            connection.sendall("".join(parts).encode())
            first = connection.recv(4096)
            if not first.startswith((b"+OK", b"*3")):
                raise RuntimeError(f"{words[0]} is refused: {first!r}")
            connection.settimeout(None)
            self.connections.append(connection)
            threading.Thread(target=self._read, args=(connection, take), daemon=True).start()

    @staticmethod
    def _read(connection, take):
        try:
            with connection.makefile("rb") as lines:
                for line in lines:
                    take(line.decode(errors="replace").strip())
        except (OSError, ValueError):
            pass  # The connection is closed.

    def _asked(self, line):
        # `lua` in place of a client's address: a command of a script, whose call was counted.
        if self.part in line and "PSUBSCRIBE" not in line and not re.match(r"\+\S+ \[\d+ lua\]", line):
            self.asked += 1

    def _event(self, line):
        if line in self.SET | self.GONE:
            self.events.append((time.monotonic(), line))

    def locked(self):
        """For each time that the key was set and was not there before: how long until it was gone, or `None` when it stayed."""
        spans, since = [], None
        for at, event in list(self.events):
            if event in self.SET and since is None:
                since = at
            elif event in self.GONE and since is not None:
                spans.append(at - since)
                since = None
        return spans + [None] * (since is not None)

    def stop(self):
        for connection in self.connections:
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def cpu_seconds(pids):
    """Processor time of all threads of these processes."""
    total = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total += int(task.read_text().split()[0])
            except OSError:
                pass  # The thread has ended.
    return total / 1e9


class SlowProxy:
    """Passes bytes on to a server and delays its answers."""

    def __init__(self, target, delay):
        self.target, self.delay = target, delay
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target.port))
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
            threading.Thread(target=self._pass_late, args=(server, client), daemon=True).start()

    @staticmethod
    def _pass_on(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _pass_late(self, source, sink):
        """Two threads, so that answers are delayed in parallel."""
        waiting, filled = [], threading.Condition()

        def deliver():
            while True:
                with filled:
                    filled.wait_for(lambda: waiting)
                    at, data = waiting.pop(0)
                time.sleep(max(at - time.monotonic(), 0))
                try:
                    if not data:
                        return sink.close()
                    sink.sendall(data)
                except OSError:
                    return None

        threading.Thread(target=deliver, daemon=True).start()
        data = b"-"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            with filled:
                waiting.append((time.monotonic() + self.delay, data))
                filled.notify()

    def stop(self):
        self.listener.close()
