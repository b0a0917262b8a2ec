"""Draws the acceptance of a training against what it learned from.

python -m tests.bench.curve conversion/log.jsonl docs/acceptance.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP = 640, 360, 56, 24
COLOURS = ("#0b6e4f", "#3a86c8", "#d1812a", "#a23e48", "#6a4c93", "#555555", "#888888", "#bbbbbb")


def main() -> None:
    """Read the log, write the drawing."""
    lines = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    points = [(line["noise_tokens"], line["acceptance"]) for line in lines if line["acceptance"]]
    most = max(tokens for tokens, _ in points)

    def place(tokens: float, share: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - 90) * tokens / most:.1f},{TOP + (HEIGHT - TOP - 48) * (1 - share):.1f}"

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"',
        ' font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tenth in range(0, 11, 2):
        left, right = place(0, tenth / 10), place(most, tenth / 10)
        y = left.split(",")[1]
        out.append(f'<polyline points="{left} {right}" stroke="#ddd" fill="none"/>')
        out.append(f'<text x="{LEFT - 8}" y="{float(y) + 4}" text-anchor="end">{tenth * 10} %</text>')
    for n in range(len(points[0][1])):
        path = " ".join(place(tokens, shares[n]) for tokens, shares in points)
        x, y = place(*[(tokens, shares[n]) for tokens, shares in points][-1]).split(",")
        label = "first draft" if n == 0 else f"first {n + 1}"
        out.append(f'<polyline points="{path}" stroke="{COLOURS[n % 8]}" stroke-width="2" fill="none"/>')
        out.append(f'<text x="{float(x) + 6}" y="{float(y) + 4}" fill="{COLOURS[n % 8]}">{label}</text>')
    middle = LEFT + (WIDTH - LEFT - 90) / 2
    out.append(
        f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">noise tokens learned from (0 to {most:,})</text>'
    )
    out.append(f'<text x="{LEFT}" y="14">drafts that are all what the base model says, held-out text</text></svg>')
    Path(sys.argv[2]).write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
