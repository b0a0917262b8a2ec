"""Draws the draft acceptance during training against the number of tokens trained on.

python -m lab.benchmarks.draft_curve conversion/log.jsonl docs/benchmarks/acceptance.svg
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import json
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP = 640, 360, 56, 24
COLOURS = ("#0b6e4f", "#3a86c8", "#d1812a", "#a23e48", "#6a4c93", "#555555", "#888888", "#bbbbbb")


def main() -> None:
    """Read the training log and write the SVG."""
    lines = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    points = [(line["noise_tokens"], line["acceptance"]) for line in lines if line["acceptance"]]
    max_tokens = max(tokens for tokens, _ in points)

    def coordinates(tokens: float, share: float) -> str:
        x = LEFT + (WIDTH - LEFT - 90) * tokens / max_tokens
        return f"{x:.1f},{TOP + (HEIGHT - TOP - 48) * (1 - share):.1f}"

    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"',
        ' font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tenth in range(0, 11, 2):
        left, right = coordinates(0, tenth / 10), coordinates(max_tokens, tenth / 10)
        y = left.split(",")[1]
        svg.append(f'<polyline points="{left} {right}" stroke="#ddd" fill="none"/>')
        svg.append(f'<text x="{LEFT - 8}" y="{float(y) + 4}" text-anchor="end">{tenth * 10} %</text>')
    for n in range(len(points[0][1])):
        path = " ".join(coordinates(tokens, shares[n]) for tokens, shares in points)
        x, y = coordinates(*[(tokens, shares[n]) for tokens, shares in points][-1]).split(",")
        label = "first draft" if n == 0 else f"first {n + 1}"
        svg.append(f'<polyline points="{path}" stroke="{COLOURS[n % 8]}" stroke-width="2" fill="none"/>')
        svg.append(f'<text x="{float(x) + 6}" y="{float(y) + 4}" fill="{COLOURS[n % 8]}">{label}</text>')
    middle = LEFT + (WIDTH - LEFT - 90) / 2
    caption = f"noise tokens trained on (0 to {max_tokens:,})"
    svg.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{caption}</text>')
    title = "share of positions where all of the first drafts match the base model, held-out text"
    svg.append(f'<text x="{LEFT}" y="14">{title}</text></svg>')
    Path(sys.argv[2]).write_text("\n".join(svg) + "\n")


if __name__ == "__main__":
    main()
