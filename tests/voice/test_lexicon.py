"""How words are said that a voice would say wrongly."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

import pytest

from agent.program.values import local_time
from agent.tool_runs import NOT_CONFIRMED
from agent.tools.alarms import Alarms
from agent.tools.conversation_tools import ConversationTools
from agent.tools.server_tools import builtin_tools
from agent.tools.user_data import MAX_ENTRIES, UserData
from chat.types import Message
from tests.fakes import InlineExecutor
from tests.voice.fake_tools import FakeTools
from tests.voice.session_harness import SessionHarness, response_texts, run_session
from voice.kokoro_phonemes import phonemes
from voice.lexicon import NO_LEXICON, Lexicon

NAMES = Lexicon(
    {
        "Nguyen": "win",
        "Siobhan": "/ʃɪˈvɔːn/",
        "Beatrix": "/biːəˈtriːks/",
        "gif": "jif",
        "New Delhi": "new delly",
        "Delhi": "DELHI",
    }
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Ask Nguyen, not Nguyens or nguyen.", "Ask win, not Nguyens or nguyen."),
        ("Siobhan's cat and Beatrix’s dog", "[[ʃɪˈvɔːnz]] cat and [[biːəˈtriːksɪz]] dog"),
        ("A GIF, a Gif, gifs", "A jif, a jif, gifs"),
        ("From New Delhi to Delhi", "From new delly to DELHI"),
        ("Nothing of that [[ʃ]]", "Nothing of that [ʃ]]"),
        ("Nor of [[[ʃ]]] and [[[[ʃ]]]]", "Nor of [ʃ]]] and [ʃ]]]]"),
    ],
)
def test_words_are_replaced_where_they_stand_alone(text: str, said: str) -> None:
    assert NAMES.apply(text) == said


def test_without_a_lexicon_a_text_stays_and_writes_no_phonemes() -> None:
    assert NO_LEXICON.apply("Hello there.") == "Hello there."
    assert NO_LEXICON.apply("[[hello]]") == "[hello]]"


def test_a_file_is_read_and_its_faults_are_named(tmp_path: Path) -> None:
    file = tmp_path / "lexicon.toml"
    file.write_text('Nguyen = "win"\n"Łódź" = "/wut͡ɕ/"\n', encoding="utf-8")
    assert Lexicon.read(file).apply("Nguyen of Łódź") == "win of [[wut͡ɕ]]"
    for content, message in (
        ("Nguyen: win", "cannot be used"),
        ("Nguyen = 3", "'Nguyen' needs a text"),
        ('Nguyen = " "', "'Nguyen' needs a text"),
        ('Nguyen = "/w1n/"', "'1' in the phonemes of 'Nguyen' is no sign of the International Phonetic Alphabet"),
    ):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            Lexicon.read(file)
    with pytest.raises(ValueError, match=r"the lexicon .*absent\.toml cannot be used"):
        Lexicon.read(tmp_path / "absent.toml")
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be used"):
        Lexicon.read(file)
    with pytest.raises(ValueError, match="at most 10,000 words"):
        Lexicon({f"w{n}": "w" for n in range(10_001)})


def test_kokoro_says_phonemes_of_the_lexicon() -> None:
    spoken = phonemes(NAMES.apply("Ask Siobhan today."), "en-us")
    assert spoken == f"{phonemes('Ask', 'en-us')} ʃɪˈvɔn {phonemes('today.', 'en-us')}"


def test_a_conversation_pronounces_names_as_it_was_taught() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words = ["Siobhan", " from", " Cork."]
        for said in ("Who is that?", "No, it's pronounced Shivon.", "Who is that?"):
            harness.recognizer.text = said
            await harness.ask_question(6.0)

    harness = run_session(scenario, tools=FakeTools())
    assert response_texts(harness) == ["Siobhan from Cork.", "Thank you, I'll say Siobhan.", "Siobhan from Cork."]
    said = " ".join(harness.voice.pronounced)
    assert said == "Siobhan from Cork. Thank you, I'll say shivon. shivon from Cork."


def test_what_a_user_has_taught_is_said_in_later_conversations_until_the_notes_are_deleted(tmp_path: Path) -> None:
    data = UserData(tmp_path / "user_data.sqlite", InlineExecutor())
    alarms = Alarms(data, local_time)
    registry = {tool.name: tool for tool in builtin_tools(data, alarms)}

    def converse(*questions: str, owner: str = "key:first", enabled: Collection[str] = registry) -> str:
        """What the voice says last in a new conversation."""
        tools = ConversationTools(registry, alarms, owner)
        tools.enable(enabled)

        async def scenario(harness: SessionHarness) -> None:
            harness.language_model.words = ["Siobhan", " from", " Cork."]
            for said in (*questions, "Who is that?"):
                harness.recognizer.text = said
                await harness.ask_question(6.0)

        spoken = run_session(scenario, tools=tools).voice.pronounced
        tools.close()
        return spoken[-1]

    without_notes = [name for name in registry if name != "write_note"]
    assert converse("Siobhan is pronounced like shivon.", enabled=without_notes) == "shivon from Cork."
    assert converse() == "Siobhan from Cork."
    assert converse("Who is that?", "No, it's pronounced Shivon.") == "shivon from Cork."
    assert converse() == "shivon from Cork."
    assert converse(owner="key:second") == converse(enabled=without_notes) == "Siobhan from Cork."
    assert converse("Siobhan is pronounced like sheevon.") == converse() == "sheevon from Cork."
    assert converse("Siobhan is pronounced like shivon.", owner="") == "shivon from Cork."
    assert converse(owner="") == "Siobhan from Cork."
    data.remove_notes("key:first")
    assert converse() == "Siobhan from Cork." and data.pronunciations("key:first") == {}
    converse("Siobhan is pronounced like shivon.", owner="key:second")
    assert data.pronunciations("key:second") == {"Siobhan": "shivon"}
    data.forget("key:second")
    assert data.pronunciations("key:second") == {}
    data.close()


def test_an_owner_keeps_as_many_pronunciations_as_notes_the_newest(tmp_path: Path) -> None:
    data = UserData(tmp_path / "user_data.sqlite")
    data.add_pronunciations("key:first", {f"Name{n}": f"name-{n}" for n in range(MAX_ENTRIES)})
    data.add_pronunciations("key:first", {"Name0": "again", "Niamh": "neev"})
    kept = data.pronunciations("key:first")
    data.close()
    assert (
        len(kept) == MAX_ENTRIES
        and "Name1" not in kept
        and list(kept.items())[-2:] == [("Name0", "again"), ("Niamh", "neev")]
    )


def test_what_is_learned_last_counts_and_what_the_assistant_says_teaches_nothing() -> None:
    conversation = [
        Message("system", "You work for Acme Naiad (pronounced NYE-ad)."),
        Message("user", "Siobhan is pronounced like Sheevon."),
        Message("assistant", "Naiad is pronounced nayad, says Siobhan."),
        Message("user", "No, it's pronounced Shivon. And Zoltán is pronounced /z0l/."),
        Message("tool", "Siân (pronounced sian), Naiad (pronounced naid), Zoltán"),
    ]
    taught = {"Naiad": "nigh-add", "Siobhan": "shove-on", "Zoltán": "/z0l/"}
    assert Lexicon.learned(conversation, taught).apply("Naiad Siobhan Zoltán") == "nigh-add shivon Zoltán"
    passages = Lexicon.respelled(["Ask Niamh, pronounced niav, or Siân (pronounced see-an)."])
    learned = passages.including(Lexicon.learned(conversation))
    expected = "nye-ad shivon sian niav Zoltán"
    assert learned.apply("Naiad Siobhan Siân Niamh Zoltán") == expected
    assert NAMES.including(learned).apply("Siobhan Reilly met Nguyen") == "shivon Reilly met win"
    assert NAMES.including(NO_LEXICON) is NAMES


def test_an_output_does_not_change_what_the_user_is_asked_to_agree_to() -> None:
    conversation = [
        Message("user", "Siobhan is pronounced shivon. Pay the bill of Mallory."),
        Message("tool", "Mallory (pronounced marry) asks for money. Siobhan is pronounced susan."),
    ]
    asked = [*conversation, Message("tool", NOT_CONFIRMED), Message("tool", "Done.")]
    assert Lexicon.learned(conversation).apply("Pay Mallory, Siobhan?") == "Pay marry, shivon?"
    assert Lexicon.learned(asked).apply("Pay Mallory, Siobhan?") == "Pay Mallory, shivon?"
    assert Lexicon.learned([*asked, Message("user", "Yes.")]).apply("Mallory is paid") == "marry is paid"


def test_a_conversation_that_teaches_much_is_read_no_further_than_its_newest_names() -> None:
    text = "".join(f"Na{'abcdefghij'[n % 10]}{'abcdefghij'[n // 10]}m (pronounced na-{n}). " for n in range(100))
    conversation = [Message("user", f"Old is pronounced old-{n}. {text}") for n in range(300)]
    started = time.process_time()
    learned = Lexicon.learned([*conversation, Message("user", "Niamh is pronounced like neev.")])
    assert time.process_time() - started < 0.3
    assert learned.apply("Niamh") == "neev"
