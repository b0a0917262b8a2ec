"""The calibrated thresholds of tool calls, by the weights that they were calibrated for
(docs/benchmarks/tool-calls.md). Other weights get those of `CallThresholds`."""

from __future__ import annotations

from pathlib import Path

from model.decode.call_decision import CallThresholds
from model.engine.bundled import is_made_for
from model.hub.catalog import QWEN_05B, QWEN_15B

_CALIBRATED = (
    (QWEN_05B, CallThresholds(call=-5.2, name_weight=4.0, expected=2.0, another=-6.5, optional=6.9)),
    (
        QWEN_15B,
        CallThresholds(
            call=-4.7,
            name_weight=8.0,
            expected=2.0,
            another=-6.8,
            optional=3.7,
            fit_weight=3.0,
            fit_call=-1.5,
            fit_call_assistant=-8.0,
            several_weight=0.2,
            several_another=-6.5,
            continues=2.5,
            continues_name=-1.0,
        ),
    ),
)


def call_thresholds(path: Path) -> CallThresholds:
    """The thresholds for a checkpoint."""
    for entry, thresholds in _CALIBRATED:
        [file] = entry.files
        if is_made_for(path, file.sha256, file.size):
            return thresholds
    return CallThresholds()
