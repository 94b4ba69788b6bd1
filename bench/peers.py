"""The programs that are compared: how each is built, what it promises, and how the driver talks to it."""

import dataclasses
import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import time

from servers import die_with_parent

HERE = pathlib.Path(__file__).parent
SOURCES = HERE / "peers"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "redislease" / "bench"


WHEN_EXTENDING = "only when the program extends"

# The measures that most programs have.
USUAL = frozenset({"cycles", "handover", "renew", "crash"})


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    version: str
    language: str
    argument: str
    # What it promises, by its documentation.
    token: str
    loss: str
    renews: str
    restart: str
    single: bool = False
    # Which measures its program has. `several`: the library has a lock over several resources. Cycles and faults have all.
    measures: frozenset = USUAL
    # The peer of which it is a variant with another option. Variants have a table of their own.
    variant_of: str = ""


ALL = USUAL | {"lost"}
SEVERAL = frozenset({"several"})
PEERS = [
    Peer("RedisLease", "this commit", "rust", "library", "yes, grows on the quorum", "yes, before the keys end", "by itself",
         "a restarted server waits before it votes", measures=ALL | SEVERAL | {"apart"}),
    Peer("raw limit", "this commit", "rust", "raw", "(the scripts of RedisLease)", "no", "no", "no",
         measures=frozenset({"cycles", "renew"})),
    Peer("rslock", "0.10.0", "rust", "rslock", "no", "`using` returns an error", "`using`", "no", measures=ALL),
    Peer("redsync", "4.18.1", "go", "redsync", "no", WHEN_EXTENDING, "by hand", "no"),
    Peer("bsm/redislock", "0.9.4", "go", "redislock", "no", WHEN_EXTENDING, "by hand", "no", single=True),
    Peer("redlock (npm)", "5.0.0-beta.2", "node", "redlock", "no", "`using` aborts a signal", "`using`", "no", measures=ALL | SEVERAL),
    Peer("redlock-universal", "0.8.5", "node", "redlock-universal", "no", "`using` aborts a signal", "`using`", "no", measures=ALL | SEVERAL),
    Peer("pottery", "3.0.1", "python", "", "no", WHEN_EXTENDING, "by hand, three times", "no"),
    Peer("Redisson RedLock", "4.7.0", "java", "redlock", "no", "no", "by itself", "no", measures=USUAL | SEVERAL),
    Peer("Redisson RFencedLock", "4.7.0", "java", "fenced", "yes, of one server", "no", "by itself", "no", single=True,
         measures=USUAL | SEVERAL),
    Peer("RedisLease, guard dropped", "this commit", "rust", "library-drops", "", "", "", "", measures=frozenset(), variant_of="RedisLease"),
    Peer("RedisLease, lock layer", "this commit", "rust", "ours", "", "", "", "", measures=frozenset({"renew"}), variant_of="RedisLease"),
    Peer("redsync, `WithFailFast(true)`", "4.18.1", "go", "redsync-failfast", "", "", "", "", measures=frozenset(),
         variant_of="redsync"),
]


class Missing(Exception):
    """Why a peer cannot be measured here."""


def _run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        raise Missing(f"`{' '.join(map(str, command[:3]))} …` failed: {done.stdout.strip().splitlines()[-1:]}")
    return done.stdout


def _tool(name):
    path = shutil.which(name)
    if path is None:
        raise Missing(f"{name} is not installed")
    return path


def _fresh(folder, files):
    """A folder in the cache with copies of `files`; whether they are the same as at the last build."""
    folder.mkdir(parents=True, exist_ok=True)
    same = True
    for file in files:
        copy = folder / file.name
        if not copy.exists() or copy.read_bytes() != file.read_bytes():
            shutil.copy(file, copy)
            same = False
    if not same:
        (folder / "built").unlink(missing_ok=True)
    return (folder / "built").exists()


def build_rust(tree=HERE.parent):
    """The program of the sources in `tree`. Only this tree builds in a target directory that the environment names."""
    own = tree.resolve() == HERE.parent.resolve()
    target = own and os.environ.get("CARGO_TARGET_DIR") or str(tree.resolve() / "target")
    _tool("cargo")
    folder = tree / "bench" / "peers" / "rust"
    _run("cargo", "build", "--locked", "--release", "--quiet", cwd=folder, env={**os.environ, "CARGO_TARGET_DIR": target})
    return [f"{target}/release/peer"]


def build_go():
    _tool("go")
    binary = CACHE / "go" / "peer"
    _run("go", "build", "-o", binary, ".", cwd=SOURCES / "go")
    return [str(binary)]


def build_node():
    node, folder = _tool("node"), CACHE / "node"
    if not _fresh(folder, [SOURCES / "node" / name for name in ("package.json", "package-lock.json", "main.js")]):
        _run(_tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
        (folder / "built").touch()
    return [node, str(folder / "main.js")]


def build_python():
    folder = CACHE / "python"
    if not _fresh(folder, [SOURCES / "python" / name for name in ("requirements.txt", "main.py")]):
        _run(_tool("python3"), "-m", "venv", folder / "venv")
        _run(folder / "venv/bin/pip", "install", "--quiet", "-r", folder / "requirements.txt")
        (folder / "built").touch()
    return [str(folder / "venv/bin/python"), str(folder / "main.py")]


def build_java():
    java, folder = _tool("java"), CACHE / "java"
    if not _fresh(folder, [SOURCES / "java" / "pom.xml", SOURCES / "java" / "src" / "Peer.java"]):
        _run(_tool("mvn"), "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib", cwd=folder)
        _run(_tool("javac"), "-nowarn", "-cp", f"{folder}/lib/*", "-d", folder / "classes", folder / "Peer.java")
        (folder / "built").touch()
    return [java, "-cp", f"{folder}/classes:{folder}/lib/*", "Peer"]


def versions():
    """Versions of toolchains and of the Redis clients below the peers."""
    found = {}
    for name, command in {
        "rustc": ["rustc", "--version"], "Go": ["go", "env", "GOVERSION"], "Node.js": ["node", "--version"],
        "Python": [str(CACHE / "python" / "venv" / "bin" / "python"), "--version"], "Java": ["java", "--version"],
    }.items():
        try:
            text = _run(*command)
        except (Missing, OSError):
            continue
        if number := re.search(r"\d+(\.\d+)+", text):
            found[name] = number.group()
    pinned = {
        "go-redis": (SOURCES / "go" / "go.mod", r"redis/go-redis/v9 v(\S+)"),
        "ioredis": (SOURCES / "node" / "package.json", r'"ioredis": "([^"]+)"'),
        "redis-py": (SOURCES / "python" / "requirements.txt", r"(?m)^redis==(\S+)"),
    }
    for name, (file, pattern) in pinned.items():
        if number := re.search(pattern, file.read_text()):
            found[name] = number.group(1)
    return found


BUILD = {"rust": build_rust, "go": build_go, "node": build_node, "python": build_python, "java": build_java}


class Process:
    """A running peer."""

    def __init__(self, command, argument):
        CACHE.mkdir(parents=True, exist_ok=True)
        self.errors = open(CACHE / "errors.log", "ab")
        self.process = subprocess.Popen(
            [*command, *([argument] if argument else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, preexec_fn=die_with_parent, bufsize=0,
        )
        self.buffer = b""

    @property
    def pid(self):
        return self.process.pid

    def ask(self, timeout=30, **request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        return self.answer(timeout)

    def answer(self, timeout=30):
        """The next line; `None` when none comes in time or the process has ended."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return None
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.errors.close()
