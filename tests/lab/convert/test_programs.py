"""Reading the examples of programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.convert.programs import read_examples


def test_a_conversation_has_what_the_user_says_and_the_programs_for_it(tmp_path: Path) -> None:
    file = tmp_path / "examples.txt"
    file.write_text(
        "U: Two plus two?\na = 2\nanswer = a + 2\n\n"
        'U: Timer.\nask("How long?")\nU: Five minutes.\nset_timer(minutes=5)\n'
    )
    assert list(read_examples(file)) == [
        (("Two plus two?", "a = 2\nanswer = a + 2"),),
        (("Timer.", 'ask("How long?")'), ("Five minutes.", "set_timer(minutes=5)")),
    ]


@pytest.mark.parametrize("text", ["answer = 2", "U: Hello.", "U: a\ntalk()\nU: b\n"])
def test_what_is_no_conversation_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "examples.txt").write_text(text)
    with pytest.raises(ValueError, match=r"a conversation|a turn"):
        list(read_examples(tmp_path / "examples.txt"))
