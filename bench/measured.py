#!/usr/bin/env python3
"""What is known about a measurement when it begins: date, commit, machine. Results keep it, and the pages take it from there.

    bench/measured.py [--tree DIRECTORY]   prints it as one JSON object
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).parent.parent


def machine():
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    memory = int(next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal"))) // 1_000_000
    system = next((line.split("=", 1)[1].strip().strip('"') for line in open("/etc/os-release") if line.startswith("PRETTY_NAME")), "")
    return f"{os.cpu_count()} cores ({cpu}), {memory} GB, {system}, Linux {platform.release().split('-')[0]}"


def git(*words, tree=ROOT):
    return subprocess.run(["git", *words], capture_output=True, text=True, cwd=tree).stdout.strip()


def header(tree=ROOT):
    """About a measurement of the sources in `tree`. Files that git does not track are not part of a build."""
    return {
        "date": datetime.date.today().isoformat(),
        "commit": git("rev-parse", "--short", "HEAD", tree=tree),
        "dirty": bool(git("status", "--porcelain", "--untracked-files=no", tree=tree)),
        "machine": machine(),
        "load": os.getloadavg()[0],
    }


def commit(about):
    """The commit of a measurement as text."""
    return about["commit"] + (" with uncommitted changes" if about.get("dirty") else "")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tree", type=pathlib.Path, default=ROOT, help="the sources that are measured")
    print(json.dumps(header(arguments.parse_args().tree)))


if __name__ == "__main__":
    main()
