"""Limits for the metrics of a report."""

from __future__ import annotations

import pytest

from lab.report.figures import compute_metrics
from lab.report.limits import exceeded_limits, parse_limit
from tests.lab.report.samples import MEASUREMENTS, answered


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("p95=880", "turn latency p95 is 885 ms, above the limit of 880 ms"),
        ("p95=1000", None),
        ("false_cutoffs=5", "false cut-offs is 16.67 %, above the limit of 5 %"),
        ("missed=0", "missed turns is 1, above the limit of 0"),
        ("underruns=1", None),
        ("barge_in_stop_p95=100", "barge-in stop p95 is 180 ms, above the limit of 100 ms"),
    ],
)
def test_an_exceeded_limit_has_a_message(argument: str, message: str | None) -> None:
    messages = exceeded_limits([parse_limit(argument)], compute_metrics(MEASUREMENTS))
    assert messages == ([] if message is None else [message])


def test_a_metric_that_was_not_measured_does_not_meet_its_limit() -> None:
    assert "was not measured" in exceeded_limits([parse_limit("p95=1000")], compute_metrics([]))[0]
    logged = compute_metrics([answered(500, from_turn_log=True)])
    assert "false_cutoffs" not in exceeded_limits([parse_limit("p50=600")], logged)
    assert "was not measured" in exceeded_limits([parse_limit("missed=0")], logged)[0]


@pytest.mark.parametrize("argument", ["p95", "p95=", "p96=1", "p95=fast"])
def test_an_invalid_limit_is_rejected(argument: str) -> None:
    with pytest.raises(ValueError, match=f"--limit {argument}"):
        parse_limit(argument)
