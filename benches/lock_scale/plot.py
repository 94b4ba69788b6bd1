#!/usr/bin/env python3
"""Draws the table of the bench lock_scale: plot.py TABLE PICTURE. hack/lock-scale.sh runs it."""

import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

# Title, unit, limit at 100,000 leases, and the columns of the table.
PANELS = [
    ("CPU while all leases are held", "cores", 0.3, ["cores: client", "cores: 3 servers"]),
    ("Memory of the client", "MB", 200, ["memory MB"]),
    ("Time until all leases are held", "s", None, ["all held", "all adopted", "all held again"]),
    ("Commands on one node", "per second", None, ["commands/s a node: steady", "30 s after an outage of 60 s"]),
]


def rows(text):
    """The rows of a table in Markdown, each by column."""
    lines = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in text.splitlines() if line.startswith("|")]
    head, _, *body = lines
    return [dict(zip(head, cells, strict=True)) for cells in body]


def number(text):
    return float(text.split()[0])


def main(table, picture):
    measured = rows(pathlib.Path(table).read_text())
    leases = [number(row["leases"]) for row in measured]
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8), layout="constrained")
    for axis, (title, unit, limit, columns) in zip(axes.flat, PANELS, strict=True):
        for column in columns:
            axis.plot(leases, [number(row[column]) for row in measured], marker="o", label=column)
        if limit is not None:
            axis.plot([100_000], [limit], marker="_", markersize=24, linestyle="none", color="red", label="limit for 100,000")
        axis.set(title=title, xlabel="leases", ylabel=unit, xscale="log", yscale="log")
        axis.grid(which="major", alpha=0.3)
        axis.legend()
    pathlib.Path(picture).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
