"""Trains the classifier that finds phonemes in speech whose synthesizer does not say where they are."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from voice.phoneme_alignment import FRAMES_PER_S, SOUNDS, Floats, features, sound_classes
from voice.pronunciation import Pronunciation

_HIDDEN, _EPOCHS, _BATCH, _RATE, _DECAY = 64, 20, 512, 2e-3, 1e-4

_PITCHES = (0.78, 0.88, 1.0, 1.13, 1.26)
"""Each recording is also heard slower and faster, like voices that are lower and higher."""


def train(spoken: Sequence[tuple[Pronunciation, int]], path: Path) -> float:
    """Write the classifier of these recordings, each with its sample rate. Returns the share of right frames."""
    torch.manual_seed(0)
    spoken = [(one, round(rate * pitch)) for one, rate in spoken for pitch in _PITCHES]
    labelled = [_labelled(*each) for each in spoken]
    seen = torch.from_numpy(np.concatenate([frames for frames, _ in labelled]))
    labels = torch.from_numpy(np.concatenate([classes for _, classes in labelled]))
    layers = nn.Sequential(nn.Linear(seen.shape[1], _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, len(SOUNDS)))
    optimizer = torch.optim.AdamW(layers.parameters(), _RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4 * _RATE, total_steps=_EPOCHS * (len(seen) // _BATCH))
    for _ in range(_EPOCHS):
        order = torch.randperm(len(seen))
        for start in range(0, len(seen) - _BATCH + 1, _BATCH):
            chosen = order[start : start + _BATCH]
            loss = nn.functional.cross_entropy(layers(seen[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    counts = np.bincount(labels.numpy(), minlength=len(SOUNDS)) + 1
    stored: dict[str, Any] = {
        "log_share": _rounded(np.log(counts / counts.sum())),
        "frames": _rounded(_mean_frames(spoken)),
    }
    for number, layer in ((1, layers[0]), (2, layers[2])):
        assert isinstance(layer, nn.Linear)
        stored[f"weights_{number}"] = _quantized(layer.weight.detach().numpy().T)
        stored[f"bias_{number}"] = _rounded(layer.bias.detach().numpy())
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    with torch.inference_mode():
        return float((layers(seen).argmax(1) == labels).float().mean())


def _labelled(spoken: Pronunciation, rate: int) -> tuple[Floats, NDArray[np.int64]]:
    """The features of the frames that belong to a sound, and its class."""
    frames = features(spoken.samples, rate)
    classes = np.full(len(frames), -1)
    for start, end, sound in _stretches(spoken, rate):
        classes[round(start) : round(end)] = sound
    return frames[classes >= 0], classes[classes >= 0]


def _stretches(spoken: Pronunciation, rate: int) -> list[tuple[float, float, int]]:
    """Where each sound is, in frames, and its class. Signs of stress and length belong to the sound next to them."""
    assert spoken.lengths is not None
    ends = np.cumsum(spoken.lengths) / rate * FRAMES_PER_S
    stretches: list[tuple[float, float, int]] = []
    start = 0.0
    for end, classes in zip(ends.tolist(), sound_classes(spoken.symbols), strict=True):
        if not classes:
            if stretches and stretches[-1][2]:
                stretches[-1] = (stretches[-1][0], end, stretches[-1][2])
                start = end
            continue
        bounds = np.linspace(start, end, len(classes) + 1).tolist()
        stretches += zip(bounds[:-1], bounds[1:], classes, strict=True)
        start = end
    return stretches


def _mean_frames(spoken: Sequence[tuple[Pronunciation, int]]) -> NDArray[np.float64]:
    lengths: list[list[float]] = [[3.0] for _ in SOUNDS]
    for each in spoken:
        for start, end, sound in _stretches(*each):
            lengths[sound].append(end - start)
    return np.array([max(1.5, float(np.mean(values))) for values in lengths])


def _quantized(weights: Floats) -> dict[str, Any]:
    scale = float(np.abs(weights).max()) / 127
    data = np.round(weights / scale).astype(np.int8).tobytes()
    return {"shape": list(weights.shape), "scale": scale, "int8": base64.b64encode(data).decode("ascii")}


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 4) for value in values]
