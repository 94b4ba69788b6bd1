#!/usr/bin/env python3
"""Measures what one acquire and release costs, or what one renewal costs: processor time of servers and client, script calls,
bytes, reads, system calls, allocations. Optionally records where the client spends its time, as a flame graph.

    bench/profile.py [--do cycles,renew] [--workers 1,256] [--locks 10000] [--peers ours,raw,rslock] [--tree DIRECTORY]
                     [--system-calls] [--allocations] [--flame DIRECTORY --label LABEL] [--json FILE]

The program is bench/peers/rust of this tree, or of an older one, whose program is built in its own target directory. Needs perf for
flame graphs, perf and root for allocations, and strace for system calls. bench/profile_page.py writes docs/profile.md from the JSON.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import flame
import measured
import peers as library
from servers import Server, cpu_seconds


def info(server, section):
    text = server.command("INFO", section)
    return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)


def counters(servers):
    """Sums over the servers: script calls, their time in microseconds, reads, and bytes in both directions."""
    sums = dict.fromkeys(["calls", "script_us", "reads", "bytes_in", "bytes_out"], 0)
    for server in servers:
        stats, commands = info(server, "stats"), info(server, "commandstats")
        evalsha = dict(part.split("=") for part in commands.get("cmdstat_evalsha", "calls=0,usec=0").split(","))
        sums["calls"] += int(evalsha["calls"])
        sums["script_us"] += int(evalsha["usec"])
        sums["reads"] += int(stats["total_reads_processed"])
        sums["bytes_in"] += int(stats["total_net_input_bytes"])
        sums["bytes_out"] += int(stats["total_net_output_bytes"])
    return sums


def system_calls(pid, seconds):
    """System calls a second of all threads."""
    if not shutil.which("strace"):
        return None
    with tempfile.NamedTemporaryFile("r") as output:
        trace = subprocess.Popen(["strace", "-f", "-c", "-o", output.name, "-p", str(pid)], stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        trace.send_signal(signal.SIGINT)
        trace.wait()
        found = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) .*?(\w+)$", output.read(), re.M)
    return {name: int(count) for count, name in found if name != "total"}


def allocations(pid, seconds):
    """Calls of `malloc` and `calloc` (new), and of `realloc` (grown), of all threads."""
    library_path = re.search(r"\S+/libc\.so\.6", pathlib.Path(f"/proc/{pid}/maps").read_text()).group()
    names = ["malloc", "calloc", "realloc"]
    subprocess.run(["perf", "probe", "-q", "-f", "-x", library_path, *(word for name in names for word in ("-a", f"bench_{name}={name}"))], check=True)
    try:
        events = ",".join(f"probe_libc:bench_{name}" for name in names)
        options = ["-x", ";", "-e", events, "-p", str(pid), "--", "sleep", str(seconds)]
        text = subprocess.run(["perf", "stat", *options], check=True, capture_output=True, text=True).stderr
    finally:
        subprocess.run(["perf", "probe", "-q", "-d", "probe_libc:bench_*"], check=True)
    counts = {line.split(";")[2].split("bench_")[1]: int(line.split(";")[0]) for line in text.splitlines() if "bench_" in line}
    return {"new": counts["malloc"] + counts["calloc"], "grown": counts["realloc"]}


def record(pid, seconds, path, title):
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/perf.data"
        options = ["-F", "1499", "--call-graph", "dwarf,16384", "-o", data, "-p", str(pid)]
        subprocess.run(["perf", "record", "-q", *options, "--", "sleep", str(seconds)], check=True)
        script = ["perf", "script", "-i", data, "-F", "comm,ip,sym", "--no-inline"]
        text = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(flame.svg(flame.stacks(text), title))


def measure_renewals(command, peer, servers, locks, options):
    """What one renewal of one lock costs, of `locks` that are renewed every 3 s."""
    process = library.Process(command, peer)
    pids = [server.process.pid for server in servers]
    # Two renewals of each lock.
    seconds = 6

    def renew(number, while_running=lambda: None):
        """The renewals of a run, and what `while_running` returns; it begins when all locks are held."""
        request = {"do": "renew", "nodes": [server.address for server in servers], "ttl_ms": 10_000, "workers": locks}
        request |= {"prefix": f"profile-{os.getpid()}-{locks}-{number}", "seconds": seconds, "interval_ms": 3000}
        if not process.ask(60, **request):
            raise SystemExit(f"error: {peer} does not take {locks} locks")
        other, answer = while_running(), process.answer(60)
        renewals = answer["renewals"]
        while answer and not answer.get("done"):
            answer = process.answer(60)
        return renewals, other

    def costs():
        def now():
            return counters(servers), cpu_seconds(pids), cpu_seconds([process.pid])
        before = now()
        # The last moment is left out: then the locks are released.
        time.sleep(seconds - 0.2)
        return before, now()

    try:
        renew(0)
        renewals, (before, after) = renew(1, costs)
        row = {"peer": peer, "locks": locks, "renewals": renewals}
        row |= {"servers_us": (after[1] - before[1]) * 1e6 / renewals, "client_us": (after[2] - before[2]) * 1e6 / renewals}
        row |= {name: (after[0][name] - before[0][name]) / renewals for name in before[0]}
        if options.system_calls:
            renewals, calls = renew(2, lambda: system_calls(process.pid, seconds - 0.2))
            row["system_calls"] = {name: round(count / renewals, 3) for name, count in (calls or {}).items()}
            row["all_system_calls"] = sum((calls or {}).values()) / renewals
        if options.allocations:
            renewals, counts = renew(3, lambda: allocations(process.pid, seconds - 0.5))
            row |= {f"allocations_{name}": count / renewals for name, count in counts.items()}
        if options.flame:
            path = options.flame / f"profile-renew-{peer}-{options.label}.svg"
            title = f"{peer}, {locks} locks renewed every 3 s, {options.label}: processor time of the client"
            renew(4, lambda: record(process.pid, seconds - 1, path, title))
        return row
    finally:
        process.stop()


def measure(command, peer, servers, workers, seconds, options):
    process = library.Process(command, peer)
    serial = iter(range(100))

    def ask(length, while_running=None):
        request = {"do": "cycles", "nodes": [server.address for server in servers], "ttl_ms": 10_000, "workers": workers}
        request |= {"prefix": f"profile-{os.getpid()}-{workers}-{next(serial)}", "seconds": length}
        process.process.stdin.write(json.dumps(request).encode() + b"\n")
        other = while_running() if while_running else None
        return process.answer(60), other

    try:
        ask(0.5)
        pids = [server.process.pid for server in servers]
        before = counters(servers), cpu_seconds(pids), cpu_seconds([process.pid])
        answer, _ = ask(seconds)
        after = counters(servers), cpu_seconds(pids), cpu_seconds([process.pid])
        cycles = answer["cycles"]
        row = {"peer": peer, "workers": workers, "cycles_a_second": cycles / answer["seconds"]}
        row |= {"acquire_p50_us": answer["acquire_us"]["p50"]}
        row |= {"servers_us": (after[1] - before[1]) * 1e6 / cycles, "client_us": (after[2] - before[2]) * 1e6 / cycles}
        row |= {name: (after[0][name] - before[0][name]) / cycles for name in before[0]}
        if options.flame and workers > 1:
            path = options.flame / f"profile-{peer}-{options.label}.svg"
            title = f"{peer}, {workers} workers, {options.label}: processor time of the client"
            ask(3, lambda: (time.sleep(0.5), record(process.pid, 2, path, title)))
        if options.system_calls:
            # strace slows the client, so the calls are counted for the cycles of this run.
            answer, calls = ask(1.5, lambda: system_calls(process.pid, 2.5))
            row["system_calls"] = {name: round(count / answer["cycles"], 2) for name, count in (calls or {}).items()}
        if options.allocations:
            # The probes end before the cycles do.
            answer, counts = ask(2, lambda: (time.sleep(0.3), allocations(process.pid, 1))[1])
            a_second = answer["cycles"] / answer["seconds"]
            row |= {f"allocations_{name}": count / a_second for name, count in counts.items()}
        return row
    finally:
        process.stop()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--peers", default="ours,raw,rslock")
    arguments.add_argument("--do", default="cycles", help="cycles, renew, or both, separated by a comma")
    arguments.add_argument("--workers", default="1,256")
    arguments.add_argument("--locks", default="10000", help="locks that are renewed every 3 s")
    arguments.add_argument("--seconds", type=float, default=2)
    arguments.add_argument("--tree", type=pathlib.Path, default=measured.ROOT, help="the sources that are measured")
    arguments.add_argument("--binary", help="the program, if it is already built from the tree")
    arguments.add_argument("--flame", type=pathlib.Path)
    arguments.add_argument("--label", default="now")
    arguments.add_argument("--system-calls", action="store_true")
    arguments.add_argument("--allocations", action="store_true")
    arguments.add_argument("--json", type=pathlib.Path)
    options = arguments.parse_args()
    command = [options.binary] if options.binary else library.build_rust(options.tree)
    about = measured.header(options.tree)
    kinds = options.do.split(",")
    if unknown := set(kinds) - {"cycles", "renew"}:
        raise SystemExit(f"error: {unknown} is not cycles or renew")
    servers = [Server() for _ in range(3)]
    rows = []
    try:
        for kind in kinds:
            for count in map(int, (options.locks if kind == "renew" else options.workers).split(",")):
                for peer in options.peers.split(","):
                    if kind == "renew":
                        rows.append(measure_renewals(command, peer, servers, count, options))
                    else:
                        rows.append(measure(command, peer, servers, count, options.seconds, options))
                    text = ", ".join(f"{name} {value:.{3 if kind == 'renew' else 1}f}" for name, value in rows[-1].items() if isinstance(value, float))
                    what = "locks, for each renewal" if kind == "renew" else "workers, for each cycle"
                    print(f"{peer:8} {count:4} {what}: {text}", rows[-1].get("system_calls", ""), flush=True)
    finally:
        for server in servers:
            server.stop()
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"measured": about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
