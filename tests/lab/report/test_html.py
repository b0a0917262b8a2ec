"""The report as an HTML page."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.report.html import render_page
from lab.report.measure import Measurement
from tests.lab.report.samples import MEASUREMENTS, SPOKEN_BY_TWO, answered, run_of

HOSTILE = '<script>alert("1")</script> & \x00 \'"'


@pytest.mark.parametrize(
    "measurements",
    [MEASUREMENTS, [], [replace(MEASUREMENTS[0], text=HOSTILE, response_text=HOSTILE, name=HOSTILE)]],
)
@pytest.mark.parametrize("compared", [False, True])
def test_the_page_is_well_formed_and_self_contained(measurements: list[Measurement], compared: bool) -> None:
    others = [run_of(MEASUREMENTS[:2], "2025-01-01T00:00:00+00:00")] if compared else []
    html = render_page(run_of(measurements), others)
    doctype, _, rest = html.partition("\n")
    assert doctype == "<!DOCTYPE html>"
    root = ElementTree.fromstring(rest)
    assert not list(root.iter("script")) and not list(root.iter("link")) and not list(root.iter("img"))
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not attributes & {"src", "href", "srcset"} and not [name for name in attributes if name.startswith("on")]
    assert "url(" not in html and "@import" not in html and "<script" not in html


@given(st.lists(st.builds(answered, st.floats(-500, 20_000), st.text(max_size=8)), max_size=12))
def test_every_run_has_a_well_formed_page(measurements: list[Measurement]) -> None:
    ElementTree.fromstring(render_page(run_of(measurements)).partition("\n")[2])


def test_the_page_has_a_table_of_voices_only_if_voices_were_synthesized() -> None:
    _, _, voices = render_page(run_of(SPOKEN_BY_TWO)).partition("<h2>Voices</h2>")
    table = voices.partition("<h2>")[0]
    assert "en_US-joe-medium" in table and "kokoro:bf_emma" in table
    assert "<h2>Voices</h2>" not in render_page(run_of(MEASUREMENTS))


def test_the_page_of_a_turn_log_leaves_out_what_only_a_client_can_observe() -> None:
    html = render_page(run_of([answered(500, from_turn_log=True)]))
    assert "missed" not in html.partition("<h2>Kinds")[0]
