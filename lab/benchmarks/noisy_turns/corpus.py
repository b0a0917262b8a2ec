"""Makes a folder of the recordings for `rejoinder report --corpus FOLDER`: spoken turns in noise, to a whole server.

    python -m lab.benchmarks.noisy_turns.corpus RECORDINGS/held-out [--snr 10] [--snr 5]
    rejoinder report --corpus RECORDINGS/held-out --model qwen2.5-coder-1.5b

Every speaker whose words are known says a sentence in each of the noises at each SNR; the sentences take turns.
RECORDINGS is made by `lab.benchmarks.noisy_turns.sources`. The kinds are `10 dB`, `5 dB` and these with `, one talker`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from lab.report.recordings import MANIFEST
from voice.audio.codec import BadAudio


def main(half: Path, snr: Annotated[list[float] | None, typer.Option(help="In dB; may be repeated.")] = None) -> None:
    """Write HALF/manifest.toml."""
    turns = list(_turns(half, snr or [10.0, 5.0]))
    if not turns:
        raise BadAudio(f"{half} has no speakers or no noises: run `python -m lab.benchmarks.noisy_turns.sources` first")
    # Strings and numbers of JSON are also TOML's.
    tables = ("\n".join(["[[turn]]", *(f"{key} = {json.dumps(value)}" for key, value in t.items())]) for t in turns)
    (half / MANIFEST).write_text("\n\n".join(tables) + "\n", encoding="utf-8")
    print(f"{len(turns)} turns: {half / MANIFEST}")


def _turns(half: Path, snrs_db: list[float]) -> Iterator[dict[str, str | float]]:
    noises = sorted(path.relative_to(half).as_posix() for path in (half / "noises").glob("*.wav"))
    number = 0
    for speaker in sorted(path for path in (half / "speakers").glob("*") if path.is_dir()):
        sentences = sorted(speaker.glob("*.wav"), key=lambda path: int(path.stem))
        if not sentences or not sentences[0].with_suffix(".txt").read_text(encoding="utf-8").strip():
            continue
        for noise in noises:
            for snr_db in snrs_db:
                sentence = sentences[number % len(sentences)]
                number += 1
                yield {
                    "file": sentence.relative_to(half).as_posix(),
                    "text": sentence.with_suffix(".txt").read_text(encoding="utf-8").strip().replace(" | ", " "),
                    "kind": f"{snr_db:g} dB, one talker" if "talker" in noise else f"{snr_db:g} dB",
                    "voice": speaker.name,
                    "background": noise,
                    "snr_db": snr_db,
                }


if __name__ == "__main__":
    typer.run(main)
