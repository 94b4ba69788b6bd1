"""Flame graphs as SVG from the output of `perf script -F comm,ip,sym`."""

import collections
import html
import re

WIDTH, ROW, LEAST = 1200, 16, 0.3


def stacks(text):
    """The stacks with the number of their samples; the outermost frame first."""
    counts = collections.Counter()
    for sample in text.split("\n\n"):
        lines = [line for line in sample.splitlines() if line.strip()]
        if len(lines) < 2:
            continue
        frames = [re.sub(r"\s*[0-9a-f]+\s+", "", line, count=1).strip() or "?" for line in lines[1:]]
        # Type parameters make names long, and hashes make them differ.
        frames = [re.sub(r"::h[0-9a-f]{16}$", "", re.sub(r"<[^<>]*>", "<>", frame)) for frame in frames]
        counts[(lines[0].strip(), *reversed(frames))] += 1
    return counts


def svg(counts, title):
    tree = lambda: {"count": 0, "parts": collections.defaultdict(tree)}
    root = tree()
    for stack, count in counts.items():
        root["count"] += count
        node = root
        for frame in stack:
            node = node["parts"][frame]
            node["count"] += count
    total, shapes, deepest = max(root["count"], 1), [], 0

    def draw(node, name, left, depth):
        nonlocal deepest
        width = node["count"] / total * WIDTH
        if width < LEAST:
            return
        deepest = max(deepest, depth)
        share = f"{node['count'] / total:.1%}"
        red = 200 + sum(map(ord, name)) % 55
        label = html.escape(name[: int(width / 6.5)]) if width > 30 else ""
        shapes.append((depth, f'<g><title>{html.escape(name)}: {share}</title><rect x="{left:.1f}" width="{width:.1f}" height="{ROW - 1}" '
                              f'y="@{depth}@" fill="rgb({red},{90 + red % 110},60)"/><text x="{left + 2:.1f}" y="@{depth}@" dy="11">{label}</text></g>'))
        for part, child in sorted(node["parts"].items()):
            draw(child, part, left, depth + 1)
            left += child["count"] / total * WIDTH

    draw(root, "all", 0, 0)
    height = (deepest + 3) * ROW
    body = "\n".join(re.sub(r"@(\d+)@", lambda at: str(height - (int(at[1]) + 1) * ROW), shape) for _, shape in shapes)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">\n'
            f'<rect width="100%" height="100%" fill="white"/><text x="4" y="16" font-size="14">{html.escape(title)}; {total} samples</text>\n{body}\n</svg>\n')
