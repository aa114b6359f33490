#!/usr/bin/env python3
"""plot.py TITLE NAME=FILE... > picture.svg: how many times faster than the peer, over the message size.

Each FILE holds the rows of `chorale bench … --vs PEER --format json`, one object a line; each becomes one line of the
picture. Above 1 chorale is faster.
"""
import json
import math
import sys

WIDTH, HEIGHT = 860, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 48, 56
COLOURS = ["#0b6e99", "#c4572c", "#4b8b3b", "#7a4fa3", "#8a6d1f", "#444444"]


def size_name(n):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:g} {unit}"
        n /= 1024
    return f"{n:g} TiB"


def rows_of(path):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.startswith("{")]
    points = [(r["bytes"], r["ratio"]) for r in rows if r.get("ratio")]
    if not points:
        sys.exit(f"plot.py: {path} has no row with a ratio; was the bench run with --vs and --format json?")
    return points, rows[0]["peer"]


def main():
    if len(sys.argv) < 3 or any("=" not in a for a in sys.argv[2:]):
        sys.exit(__doc__)
    series = []
    for argument in sys.argv[2:]:
        name, path = argument.split("=", 1)
        points, peer = rows_of(path)
        series.append((name, points, peer))
    sizes = [math.log2(b) for _, points, _ in series for b, _ in points]
    low, high = min(sizes), max(sizes)
    top = max(2.0, math.ceil(max(r for _, points, _ in series for _, r in points) * 2) / 2)

    def x(size):
        return LEFT + (math.log2(size) - low) / max(high - low, 1) * (WIDTH - LEFT - RIGHT)

    def y(ratio):
        return TOP + (1 - ratio / top) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="16">{sys.argv[1]}</text>']
    for half in range(int(top * 2) + 1):
        r = half / 2
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(r):.1f}" y2="{y(r):.1f}" '
                   f'stroke="{"#333" if r == 1 else "#ddd"}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(r) + 4:.1f}" text-anchor="end">{r:g}×</text>')
    for exponent in range(math.ceil(low), math.floor(high) + 1):
        if (exponent - math.ceil(low)) % 3 == 0:
            out.append(f'<text x="{x(2 ** exponent):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">'
                       f'{size_name(2 ** exponent)}</text>')
    for index, (name, points, peer) in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        line = " ".join(f"{x(b):.1f},{y(r):.1f}" for b, r in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x(b):.1f}" cy="{y(r):.1f}" r="3" fill="{colour}"/>' for b, r in points]
        out.append(f'<text x="{LEFT + index * 260}" y="{HEIGHT - 12}" fill="{colour}">{name}, {peer}\'s time over ours</text>')
    print("\n".join(out + ["</svg>"]))


main()
