"""The report's figures, its corpus, its limits and its page: nothing here takes real time."""

from __future__ import annotations

import json
import wave
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from server import reporting
from server.cli import app as cli
from server.report import corpus as corpus_module
from server.report.corpus import Overlap, SpokenTurn, bounds_ms, built_in, choose, from_folder
from server.report.figures import as_json, distribution, figures
from server.report.limits import broken, parse
from server.report.lines import KINDS
from server.report.measure import Measurement, Reply, Sighting, measure
from server.report.page import page
from server.report.player import Player
from server.report.run import Run, read
from server.report.show import show
from voice.audio import SPEAKING_RATE, BadAudio, Samples, to_pcm16
from voice.clauses import Clause


class FakeSpeaker:
    """A tone of 60 ms a word, in silence."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, clause: Clause, speed: float = 1.0) -> Samples:
        self.said.append(clause.text)
        length = int(len(clause.text.split()) * 0.06 * SPEAKING_RATE / speed)
        tone = 0.5 * np.sin(np.arange(length) / 8)
        return np.concatenate((np.zeros(500), tone, np.zeros(4000))).astype(np.float32)


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> list[SpokenTurn]:
    return built_in(FakeSpeaker, tmp_path_factory.mktemp("corpus"), "fake")


# The corpus.


def test_the_corpus_has_sixty_turns_of_every_kind(turns: list[SpokenTurn]) -> None:
    assert len(turns) >= 60
    assert {turn.kind for turn in turns} == set(KINDS)
    assert len({turn.name for turn in turns}) == len(turns)


def test_nothing_is_spoken_outside_the_labels(turns: list[SpokenTurn]) -> None:
    for turn in turns:
        floor = 0.01 * np.abs(turn.audio).max()
        first, last = (round(at * SPEAKING_RATE / 1000) for at in (turn.speech_start_ms, turn.speech_end_ms))
        assert np.abs(turn.audio[:first]).max(initial=0) < floor
        assert np.abs(turn.audio[last + 1 :]).max(initial=0) < floor
        assert abs(turn.audio[last]) >= floor


def test_a_pause_is_as_long_as_it_says_and_its_first_half_sounds_unfinished(turns: list[SpokenTurn]) -> None:
    turn = next(turn for turn in turns if turn.kind == "pause")
    loud = np.flatnonzero(np.abs(turn.audio) >= 0.01 * np.abs(turn.audio).max())
    assert np.diff(loud).max() / SPEAKING_RATE == pytest.approx(0.3, abs=0.02)
    assert "," in turn.text


def test_a_background_is_as_much_quieter_as_it_says(turns: list[SpokenTurn]) -> None:
    for kind, snr_db in (("noise-20db", 20), ("noise-10db", 10)):
        for turn in (turn for turn in turns if turn.kind == kind):
            assert turn.background is not None
            spoken = turn.audio[np.abs(turn.audio) >= 0.01 * np.abs(turn.audio).max()]
            ratio = np.mean(np.square(spoken)) / np.mean(np.square(turn.background))
            assert 10 * np.log10(ratio) == pytest.approx(snr_db, abs=0.2)


def test_a_corpus_is_made_once_and_left_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(out: BinaryIO, **sounds: object) -> None:
        out.write(b"half")
        raise OSError("the disk is full")

    with monkeypatch.context() as broken_disk, pytest.raises(OSError, match="disk is full"):
        broken_disk.setattr(corpus_module.np, "savez", fails)
        built_in(FakeSpeaker, tmp_path, "fake")
    assert not list(tmp_path.iterdir())
    first = built_in(FakeSpeaker, tmp_path, "fake")
    second = built_in(lambda: pytest.fail("made twice"), tmp_path, "fake")
    assert [turn.speech_end_ms for turn in first] == [turn.speech_end_ms for turn in second]


def test_a_short_report_has_turns_of_many_kinds_and_the_same_ones_again(turns: list[SpokenTurn]) -> None:
    names = [turn.name for turn in choose(turns, (), 9, seed=3)]
    assert len({name.rpartition("-")[0] for name in names}) == 9
    assert names == [turn.name for turn in choose(turns, (), 9, seed=3)]
    assert len(choose(turns, ("short",), 30, seed=3)) == 30
    with pytest.raises(ValueError, match="no turns of kind 'shouted'"):
        choose(turns, ("shouted",), None, seed=3)


def record(path: Path, samples: Samples, rate: int = SPEAKING_RATE) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(to_pcm16(samples))


def test_a_folder_of_recordings_is_a_corpus(tmp_path: Path) -> None:
    record(tmp_path / "a.wav", FakeSpeaker().say(Clause("one two three", True)))
    (tmp_path / "a.txt").write_text("One, two, three?\n")
    record(tmp_path / "b.wav", FakeSpeaker().say(Clause("mhm", True)))
    (tmp_path / "b.txt").write_text("")
    first, second = from_folder(tmp_path)
    assert (first.name, first.text, first.expected, second.expected) == ("a", "One, two, three?", "answer", "none")
    assert first.speech_end_ms == pytest.approx(500 / 24 + 180, abs=1)


def test_a_wrong_folder_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadAudio, match="there is no folder"):
        from_folder(tmp_path / "nowhere")
    with pytest.raises(BadAudio, match=r"holds no \.wav file"):
        from_folder(tmp_path)
    record(tmp_path / "a.wav", np.zeros(2400, np.float32))
    with pytest.raises(BadAudio, match=r"no a\.txt beside it"):
        from_folder(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(BadAudio, match="nothing but silence"):
        from_folder(tmp_path)


# The player.


def tone(seconds: float, lead: float = 0.0) -> Samples:
    return np.concatenate((np.zeros(round(lead * SPEAKING_RATE)), np.full(round(seconds * SPEAKING_RATE), 0.5))).astype(
        np.float32
    )


def test_leading_silence_is_not_heard() -> None:
    player = Player()
    player.push(10.0, "r", "i", tone(0.1, lead=0.15))
    assert player.first_audible() == pytest.approx(10.15)


def test_running_dry_is_counted_and_a_new_answer_is_not_running_dry() -> None:
    player = Player()
    player.push(0.0, "r", "i", tone(0.1))
    player.push(0.05, "r", "i", tone(0.1))
    player.push(0.3, "r", "i", tone(0.1))
    player.push(2.0, "s", "j", tone(0.1))
    assert [(round(at, 3), round(length, 3)) for at, length in player.gaps] == [(0.2, 0.1)]


def test_a_cleared_player_says_what_was_heard() -> None:
    player = Player()
    player.push(0.0, "r", "i", tone(1.0))
    player.push(0.1, "r", "i", tone(1.0))
    assert player.clear(1.25) == ("i", 1250)
    assert player.last_audible("r") == pytest.approx(1.25)
    assert player.clear(1.3) is None


@given(st.lists(st.integers(1, 48_000), min_size=1, max_size=8), st.floats(0.001, 10))
def test_a_cleared_player_plays_at_once_what_comes_next(sizes: list[int], at: float) -> None:
    player = Player()
    for size in sizes:
        player.push(0.0, "r", "i", np.full(size, 0.5, np.float32))
    length = player.end
    player.clear(at)
    assert player.end == min(at, length)
    assert player.heard_ms("i") == pytest.approx(1000 * min(at, length), abs=1.01)
    assert player.push(at + 1, "s", "j", tone(0.1)).start == at + 1
    assert not player.gaps


@given(st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 4800)), min_size=1, max_size=20))
def test_a_player_plays_everything_in_order_and_never_two_at_once(pushed: list[tuple[float, int]]) -> None:
    player, now = Player(), 0.0
    for wait, size in pushed:
        now += wait
        player.push(now, "r", "i", np.full(size, 0.5, np.float32))
    assert all(a.end <= b.start for a, b in zip(player.pieces, player.pieces[1:], strict=False))
    dry = sum(length for _, length in player.gaps)
    sounding = sum(size for _, size in pushed) / SPEAKING_RATE
    assert player.end - player.pieces[0].start == pytest.approx(sounding + dry, abs=0.001 * len(pushed))


def seen_of(player: Player, **more: object) -> Sighting:
    turn = SpokenTurn("t-1", "t", "said", tone(1.0), 0.0, 1000.0)
    return Sighting(turn, 0.0, 1.0, player, **more)  # type: ignore[arg-type]


def test_an_answer_that_stops_for_nobody_was_broken_off_and_one_that_we_end_was_not() -> None:
    for stopped_at, broken_off in ((2.0, True), (3.0, False)):
        player = Player()
        player.push(1.4, "r", "i", tone(5.0, lead=0.1))
        player.clear(stopped_at)
        turn = measure(seen_of(player, finished=3.0))
        assert (turn.latency_ms, turn.broken_off) == (500, broken_off)


@pytest.mark.parametrize(
    ("timelines", "text", "outcome"),
    [
        ({"s": {"latency_ms": None}}, "Sugar and milk.", "resumed"),
        ({"s": {"latency_ms": 700.0}}, "sugar and milk.", "broken"),
        ({}, " sugar and milk.", "resumed"),
        ({}, "You are welcome.", "broken"),
    ],
)
def test_an_answer_that_falls_silent_and_goes_on_was_resumed(
    timelines: dict[str, Any], text: str, outcome: str
) -> None:
    player = Player()
    player.push(1.5, "r", "i", tone(5.0))
    player.clear(2.4)
    player.push(3.4, "s", "j", tone(2.0, lead=0.1))
    replies = [Reply("r", 1.4, 2.4, "cancelled"), Reply("s", 3.4, text=text)]
    seen = seen_of(player, over_began=2.2, finished=6.0, replies=replies, timelines=timelines)
    over = Overlap("right", tone(0.2), 0.0, 200.0, 700.0, interrupts=False)
    turn = measure(replace(seen, turn=replace(seen.turn, over=over)))
    assert (turn.backchannel, turn.pause_ms) == (outcome, pytest.approx(1100, abs=1) if outcome == "resumed" else None)


@pytest.mark.parametrize(("done", "underruns"), [(None, 1), (2.6, 0), (3.5, 1)])
def test_a_player_that_is_still_dry_when_the_turn_ends_ran_dry_too(done: float | None, underruns: int) -> None:
    player = Player()
    player.push(1.5, "r", "i", tone(1.0))
    turn = measure(seen_of(player, finished=3.0, replies=[Reply("r", 1.4, done, "completed")]))
    assert (turn.underruns, turn.underrun_ms) == (underruns, 500 * underruns)


def test_the_stages_are_those_of_the_response_that_was_heard() -> None:
    player = Player()
    player.push(1.4, "second", "i", tone(1.0))
    told = {
        "first": {"stages_ms": {"sending": 9.0}},
        "second": {"stages_ms": {"sending": 3.0}, "guesses": 2, "over": 0.9},
    }
    turn = measure(seen_of(player, timelines=told, committed=[0.8]))
    assert (turn.stages_ms, turn.guesses, turn.over, turn.early_commit) == ({"sending": 3.0}, 2, 0.9, True)


# The figures.


def answered(latency: float, name: str = "short-1", **more: object) -> Measurement:
    return replace(
        Measurement(name, name.rpartition("-")[0], "said"), latency_ms=latency, first_audio_ms=latency, **more
    )  # type: ignore[arg-type]


MEASURED = [
    answered(400, stages_ms={"end_of_turn": 250.0, "transcription": 100.0}, guesses=2, guess_kept=True, underruns=1),
    answered(
        600,
        "long-1",
        stages_ms={"end_of_turn": 350.0, "transcription": 150.0},
        guesses=1,
        guess_kept=False,
        drafts_spoken=1,
        drafts_dropped=2,
    ),
    replace(Measurement("number-1", "number", "five, six"), cut_off=True),
    replace(Measurement("short-2", "short", "hm"), missed=True, early_commit=True),
    answered(900, "interruption-1", barge_in_stop_ms=180.0, barge_in_sent_ms=150.0),
    answered(800, "backchannel-1", backchannel="survived"),
]


def test_the_figures_of_some_turns() -> None:
    found = figures(MEASURED)
    assert (found.turns, found.answered, found.missed, found.false_cutoffs, found.early_commits) == (6, 4, 1, 1, 1)
    assert found.latency is not None and found.barge_in_stop is not None
    assert (found.latency.p50, found.latency.max, found.latency.n) == (700, 900, 4)
    assert found.barge_in_stop.p95 == 180
    assert (found.survived, found.broken, found.underruns) == (1, 0, 1)
    assert found.stages_ms["transcription"] == {"p50": 125.0, "p95": 147.5}
    assert (found.guesses, found.guesses_kept, found.guesses_wasted) == (3, 1, 2)
    assert (found.drafts_spoken, found.drafts_dropped) == (1, 2)
    said = as_json(found)
    assert {"turns", "turn_latency_ms", "false_cutoffs", "barge_in_stop_ms", "stages_ms"} <= set(said)
    assert said["false_cutoffs"] == {"count": 1, "share": 0.1667}


def test_what_only_a_client_hears_is_not_known_of_real_conversations() -> None:
    found = figures([answered(500, live=True)])
    assert as_json(found)["false_cutoffs"] is None and as_json(found)["turn_latency_ms"]["p50"] == 500
    assert "false_cutoffs" not in broken([parse("p50=600")], found)
    assert "was not measured" in broken([parse("missed=0")], found)[0]
    assert "missed" not in page(run_of([answered(500, live=True)])).partition("<h2>Kinds")[0]


def test_nothing_measured_has_figures_too() -> None:
    found = figures([])
    assert (found.latency, found.guesses, found.cutoff_share) == (None, None, 0)


@given(st.lists(st.floats(0, 20_000), min_size=1, max_size=60), st.integers(0, 5))
def test_percentiles_are_in_order_and_the_interval_lies_among_the_values(values: list[float], seed: int) -> None:
    found = distribution(values, seed)
    assert found is not None
    assert found.p50 <= found.p90 <= found.p95 <= found.p99 <= found.max
    low, high = found.p95_interval
    assert min(values) - 0.1 <= low <= high <= max(values) + 0.1
    assert found == distribution(values, seed)


# Limits.


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("p95=880", "turn latency p95 is 885 ms, above the limit of 880 ms"),
        ("p95=1000", None),
        ("false_cutoffs=5", "false cut-offs is 16.67 %, above the limit of 5 %"),
        ("missed=0", "missed turns is 1, above the limit of 0"),
        ("underruns=1", None),
        ("barge_in_stop_p95=100", "barge-in stop p95 is 180 ms, above the limit of 100 ms"),
    ],
)
def test_a_broken_limit_is_a_sentence(said: str, sentence: str | None) -> None:
    assert broken([parse(said)], figures(MEASURED)) == ([] if sentence is None else [sentence])


def test_a_latency_that_was_never_measured_keeps_no_limit() -> None:
    assert "was not measured" in broken([parse("p95=1000")], figures([]))[0]


@pytest.mark.parametrize("said", ["p95", "p95=", "p96=1", "p95=fast"])
def test_a_limit_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match=f"--limit {said}"):
        parse(said)


# What comes out.


def run_of(measured: list[Measurement], date: str = "2026-01-02T03:04:05+00:00") -> Run:
    return Run(date, "ws://server", "corpus", {"cpu": "A <fast> one", "cores": 2, "gpu": None}, {}, {}, measured)


def test_a_run_is_written_and_read_again(tmp_path: Path) -> None:
    run = run_of(MEASURED)
    run.write(tmp_path / "run.json")
    assert read(tmp_path / "run.json") == run
    said = json.loads((tmp_path / "run.json").read_text())
    assert said["turns"] == 6 and len(said["measurements"]) == 6 and said["machine"]["cores"] == 2


def test_what_is_no_report_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1]")
    code, said = command("--compare", str(tmp_path / "x.json"))
    assert (code, "is no report that" in said) == (1, True)
    assert "there is no report" in command("--compare", str(tmp_path / "y.json"))[1]


HOSTILE = '<script>alert("1")</script> & \x00 \'"'


@pytest.mark.parametrize("measured", [MEASURED, [], [replace(MEASURED[0], text=HOSTILE, answer=HOSTILE, name=HOSTILE)]])
@pytest.mark.parametrize("compared", [False, True])
def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(measured: list[Measurement], compared: bool) -> None:
    others = [run_of(MEASURED[:2], "2025-01-01T00:00:00+00:00")] if compared else []
    written = page(run_of(measured), others)
    doctype, _, rest = written.partition("\n")
    assert doctype == "<!DOCTYPE html>"
    root = ElementTree.fromstring(rest)
    assert not list(root.iter("script")) and not list(root.iter("link")) and not list(root.iter("img"))
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not attributes & {"src", "href", "srcset"} and not [name for name in attributes if name.startswith("on")]
    assert "url(" not in written and "@import" not in written and "<script" not in written


@given(st.lists(st.builds(answered, st.floats(-500, 20_000), st.text(max_size=8)), max_size=12))
def test_any_run_has_a_page(measured: list[Measurement]) -> None:
    ElementTree.fromstring(page(run_of(measured)).partition("\n")[2])


def test_the_table_shows_both_runs_and_their_difference() -> None:
    out = Console(record=True, width=120, file=open("/dev/null", "w"))  # noqa: SIM115
    show(run_of(MEASURED), out, run_of(MEASURED[:1]))
    said = " ".join(out.export_text().split())
    assert "turn latency p50 │ 700 ms │ 400 ms │ +300" in said
    assert "interruption" in said


# The command.


def command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["report", *arguments], env={"COLUMNS": "400", "NO_COLOR": "1"})
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture
def measured_at_once(monkeypatch: pytest.MonkeyPatch, turns: list[SpokenTurn]) -> None:
    async def spoken(wanted: reporting.Wanted, turns: list[SpokenTurn]) -> list[Measurement]:
        return MEASURED

    monkeypatch.setattr(reporting, "_corpus", lambda wanted: turns)
    monkeypatch.setattr(reporting, "_spoken", spoken)


@pytest.mark.usefixtures("measured_at_once")
def test_a_broken_limit_ends_the_command_with_3_after_everything_was_written(tmp_path: Path) -> None:
    files = ("--json", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html"))
    assert command("--limit", "p95=2000", *files)[0] == 0
    code, said = command("--limit", "p95=100", "--limit", "missed=0", *files)
    assert code == 3
    assert "above the limit of 100 ms" in said and "missed turns is 1" in said
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert command("--compare", str(tmp_path / "r.json"))[0] == 0


@pytest.mark.usefixtures("measured_at_once")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--limit", "p95"], "a limit looks like p95=1000"),
        (["--kind", "shouted"], "no turns of kind 'shouted'"),
        (["--json", "/no/such/folder/r.json"], "there is no folder /no/such/folder"),
        (["--live", "/no/such.sqlite"], "there is no timelines file"),
        (["--phone", "twilio", "--eagerness", "low"], "a telephone cannot ask"),
    ],
)
def test_wrong_wishes_are_said_in_a_sentence(arguments: list[str], said: str) -> None:
    code, output = command(*arguments)
    assert code == 1
    assert said in output


def test_labels_come_from_the_waveform() -> None:
    assert bounds_ms(tone(0.1, lead=0.05)) == (pytest.approx(50, abs=0.1), pytest.approx(150, abs=0.1))
    with pytest.raises(BadAudio):
        bounds_ms(np.zeros(100, np.float32))
