"""How many dictated values a form captures right, with synthetic callers at telephone quality and the real recognizer.

    python -m lab.benchmarks.capture [--tuning] [--verbose]

Each caller answers the form's questions: says the value, agrees to a right read-back, and corrects a wrong one. What
they say is synthesized, sent through a simulated telephone line (300 to 3,400 Hz, µ-law, noise at 30 dB, 2 % of frames
lost) and transcribed turn by turn. Voice detection and endpointing are not part of it.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from agent.capture.form import Form, FormState, Heard, Phase
from agent.words.language import language
from lab.benchmarks.capture_cases import REPORTED, TUNING, Case
from lab.benchmarks.telephone import telephone
from lab.report.corpus_voices import default_voices
from model.hub.store import ModelStore
from server.serving.runtime import locate_model
from voice.asr import Recognizer, Utterance
from voice.audio.codec import RECOGNITION_RATE
from voice.clauses import Clause
from voice.tts import Voices, load_voices

_ENGLISH = language("en")

_MAX_TURNS = 10
_line = partial(telephone, snr_db=30.0, loss=0.02)


@dataclass
class Outcome:
    """One dictated value.

    Attributes:
        first: the value that was read back first, in JSON; None if it took several turns to one.
        captured: the value that the caller agreed to; None if the form gave up.
        turns: of the caller.
        transcript: what was said, heard and answered.
    """

    first: str | None = None
    captured: str | None = None
    turns: int = 0
    transcript: list[str] = field(default_factory=list)


class Caller:
    """Speaks with one voice over the line, and is transcribed.

    Args:
        seed: of the line's noise.
    """

    def __init__(self, voices: Voices, voice: str, recognizer: Recognizer, seed: int) -> None:
        self._voice, self._recognizer, self._seed = voices.find(voice), recognizer, seed

    def say(self, text: str) -> str:
        """What the recognizer makes of it."""
        self._seed += 1
        audio = _line(self._voice.synthesize(Clause(text, ends_sentence=True)), seed=self._seed)
        utterance = Utterance(self._recognizer)
        utterance.add(np.concatenate((audio, np.zeros(RECOGNITION_RATE // 10, np.float32))))
        return utterance.final()


def next_words(case: Case, form: Form, state: FormState) -> str:
    """What a caller says who wants `case.value` captured."""
    if state.inputs == 0:
        return case.said
    asked = form.field(state)
    if state.phase is Phase.CORRECTING:
        return case.again
    if state.phase is Phase.CONFIRMING:
        value = asked.to_json(asked.value(state.entry))
        return "Yes." if value == case.value else _correction(case, value)
    if isinstance(state.entry, str) and state.entry:
        digits = case.value.isdigit() and case.value.startswith(state.entry)
        if digits:
            return _ENGLISH.say_digits(case.value[len(state.entry) :])
        return case.again if "again" in state.say else "Start over."
    return case.again


def _correction(case: Case, value: str) -> str:
    """Names the digit if only one is wrong; otherwise says the value again."""
    wrong = [n for n, (a, b) in enumerate(zip(value, case.value, strict=False)) if a != b]
    if case.value.isdigit() and len(value) == len(case.value) and len(wrong) == 1:
        place = "last" if wrong[0] == len(value) - 1 else _ENGLISH.say_ordinal(wrong[0] + 1)
        return f"No, the {place} digit is {_ENGLISH.say_digits(case.value[wrong[0]])}."
    return f"No. {case.again}"


def capture(case: Case, caller: Caller) -> Outcome:
    """One dialogue."""
    form, outcome = case.form, Outcome()
    state = form.start()
    while state.outcome is None and outcome.turns < _MAX_TURNS:
        words = next_words(case, form, state)
        heard = caller.say(words)
        state = form.step(state, Heard(heard, after=state.say))
        outcome.turns += 1
        outcome.transcript.append(f"{words!r} → {heard!r} → {state.say!r}")
        if outcome.turns == 1 and state.phase is Phase.CONFIRMING:
            outcome.first = form.field(state).to_json(form.field(state).value(state.entry))
    if state.outcome == "filled":
        outcome.captured = form.to_json(state.values)["value"]
    return outcome


def main() -> None:
    cases, console = (TUNING if "--tuning" in sys.argv else REPORTED), Console()
    store = ModelStore()
    names = default_voices(store)
    voices = load_voices([locate_model(name, Console(stderr=True)) for name in names])
    recognizer = Recognizer(store.locate("whisper-base"))
    outcomes: dict[str, list[tuple[Case, Outcome]]] = defaultdict(list)
    for number, case in enumerate(track(cases, "dictating", console=Console(stderr=True))):
        caller = Caller(voices, voices.names[number % len(voices.names)], recognizer, seed=1000 * number)
        outcome = capture(case, caller)
        outcomes[case.kind].append((case, outcome))
        if "--verbose" in sys.argv:
            console.print(f"{case.kind} {case.value}", *outcome.transcript, sep="\n  ", markup=False, soft_wrap=True)
    table = Table("value", "dictated", "right at first", "right in the end", "wrong", "given up", "turns")
    for kind, results in [*outcomes.items(), ("all", [pair for pairs in outcomes.values() for pair in pairs])]:
        first = sum(outcome.first == case.value for case, outcome in results)
        right = sum(outcome.captured == case.value for case, outcome in results)
        lost = sum(outcome.captured is None for _, outcome in results)
        turns = sum(outcome.turns for _, outcome in results) / len(results)
        counts = (len(results), first, right, len(results) - right - lost, lost)
        table.add_row(kind, *map(str, counts), f"{turns:.1f}")
    console.print(table)
    console.print(f"voices: {', '.join(voices.names)}")


if __name__ == "__main__":
    main()
