"""The files in deploy/: they name metrics and options that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

from server.access.admission import Admission
from server.observability.metrics import Metrics, stage_readings
from server.observability.stages import StageExecutor
from server.operations.load import admission_readings
from tests.fakes import InlineExecutor

DEPLOY = Path(__file__).parent.parent / "deploy"


def test_grafana_asks_for_metrics_that_exist() -> None:
    metrics = Metrics([*admission_readings(Admission()), *stage_readings([StageExecutor("x", InlineExecutor())])])
    known = set(re.findall(r"^# TYPE (\w+)", metrics.text().decode(), re.MULTILINE))
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    asked = {
        name.removesuffix("_bucket") for text in expressions for name in re.findall(r"(?:rejoinder|process)_\w+", text)
    }
    assert len(asked) > 10
    assert asked - known == set()
