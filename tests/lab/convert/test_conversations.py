"""Conversations of one's own: no line is lost silently, a tenth is held out by content, and only responses are
trained on."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from chat.types import Message
from lab.convert.conversations import (
    Conversation,
    encode_conversations,
    encode_responses,
    read_conversations,
    split_held_out,
    with_instructions,
)
from model.checkpoint.chat_template import CHATML, ChatTemplate
from model.checkpoint.gguf import BadModelFile
from model.engine.loader import LoadedModel

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "shop.jsonl"


def _line(*turns: tuple[str, object]) -> str:
    return json.dumps({"messages": [{"role": role, "content": content} for role, content in turns]})


def test_the_conversations_of_the_example_are_read() -> None:
    conversations = read_conversations(EXAMPLE, answered=True)
    assert 60 <= len(conversations) <= 120
    assert len({one.digest for one in conversations}) == len(conversations)


def test_every_bad_line_is_reported_with_its_number_and_nothing_is_read(tmp_path: Path) -> None:
    good = _line(("user", "hello"), ("assistant", "hello to you"))
    bad = {
        2: ("{", "it is not JSON"),
        3: ("[]", "it has no `messages`"),
        4: ('{"messages": []}', "`messages` is not a list of messages"),
        6: (_line(("user", "a"), ("robot", "b")), "has the role 'robot'"),
        7: (_line(("user", " "), ("assistant", "b")), "a message of the user has no text"),
        8: (_line(("user", 3), ("assistant", "b")), "a message of the user has no text"),
        9: (_line(("user", "a")), "the assistant says nothing"),
        10: ('{"messages": ["a"]}', "has the role None"),
    }
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(bad.get(number, ("" if number == 5 else good,))[0] for number in range(1, 12)))
    with pytest.raises(BadModelFile) as raised:
        read_conversations(path, answered=True)
    reported = str(raised.value).splitlines()[1:]
    assert [line.partition(" is not")[0] for line in reported] == [f"line {number}" for number in bad]
    for line, (_, reason) in zip(reported, bad.values(), strict=True):
        assert reason in line
    path.write_text("{\n" * 13)
    with pytest.raises(BadModelFile, match="and 3 more lines"):
        read_conversations(path, answered=True)


def test_the_held_out_tenth_depends_on_the_content_alone() -> None:
    conversations = [Conversation(n, (Message("user", f"question {n // 2}"),)) for n in range(80)]
    training, held_out = split_held_out(conversations)
    assert len(held_out) == 8 and len(training) == 72
    assert not {one.digest for one in training} & {one.digest for one in held_out}, "equal ones are on the same side"
    shuffled = random.Random(1).sample(conversations, 80)
    assert {one.line for one in split_held_out(shuffled)[1]} == {one.line for one in held_out}


def test_only_responses_are_trained_on_with_the_token_that_ends_them(model: LoadedModel) -> None:
    said = [("user", "hello"), ("assistant", "Paris"), ("user", "and France"), ("assistant", "the capital")]
    conversation = Conversation(1, tuple(Message(*one) for one in said))
    [text] = encode_responses(with_instructions(conversation, "hello to you"), model.template, model.stop_tokens)
    decoded = [model.tokenizer.decode(text.tokens[begin : end - 1]) for begin, end in text.spans]
    assert decoded == ["Paris", "the capital"]
    assert {text.tokens[end - 1] for _, end in text.spans} <= model.stop_tokens
    first = text.spans[0][0]
    prompt = [Message("system", "hello to you"), Message("user", "hello")]
    assert [*text.tokens[:first]] == model.template.encode(prompt), "what a server would ask"


def test_a_template_that_shortens_earlier_responses_gives_a_text_for_each(model: LoadedModel) -> None:
    forgetful = "(message.content if loop.last or message.role == 'user' else 'x')"
    template = ChatTemplate(CHATML.replace("message.content", forgetful), model.tokenizer)
    messages = [Message(role, "Paris") for role in ("user", "assistant", "user", "assistant")]
    texts = encode_responses(messages, template, model.stop_tokens)
    assert [len(text.spans) for text in texts] == [1, 1]
    assert [*texts[1].tokens[: texts[1].spans[0][0]]] == template.encode(messages[:3])


def test_a_template_that_writes_responses_in_another_way_than_it_prompts_is_rejected(model: LoadedModel) -> None:
    template = ChatTemplate(CHATML.replace("assistant\n{% endif %}", "assistant: {% endif %}"), model.tokenizer)
    with pytest.raises(ValueError, match="does not write responses as it prompts for them"):
        encode_responses([Message("user", "a"), Message("assistant", "b")], template, model.stop_tokens)


def test_own_instructions_replace_those_of_the_server() -> None:
    own = Conversation(1, (Message("system", "x"), Message("user", "a")))
    assert with_instructions(own, "y")[0].content == "x"


def test_a_conversation_that_cannot_be_trained_on_is_named_by_its_line(model: LoadedModel) -> None:
    context = model.decoder.config.context_length
    long = Conversation(7, (Message("user", "a"), Message("assistant", "a b " * context)))
    with pytest.raises(ValueError, match=f"line 7 has [0-9]+ tokens, more than the model's context of {context}"):
        encode_conversations([long], "x", model)
    broken = replace(model, template=ChatTemplate("{{ raise_exception('no') }}", model.tokenizer))
    with pytest.raises(ValueError, match=r"the conversation in line 7 cannot be used: .* no"):
        encode_conversations([long], "x", broken)
