"""What the classifier reads that estimates whether what a user has said so far is a complete turn, from the state of
the last layer after the last word. `model/convert/train_turn_completion.py` trains it. It knows words, not sound or
time.
"""

from __future__ import annotations

import re

from chat.types import Message
from model.checkpoint.chat_template import ChatTemplate

_PUNCTUATION = re.compile(r"[^\w\s.:'’]|_|[.:](?!\d)|(?<!\d)[.:]|['’](?!\w)|(?<!\w)['’]")


def normalize_text(text: str) -> str:
    """Lower case without punctuation, because a speech recognizer ends every transcript with a full stop. Apostrophes
    inside words, and points and colons inside numbers, stay."""
    return " ".join(_PUNCTUATION.sub(" ", text.lower()).replace("’", "'").split())


def user_turn_prefix(template: ChatTemplate) -> list[int]:
    """Token ids that precede a user's first words in a conversation without instructions.

    Raises:
        ValueError: the template refuses a conversation that starts with a user message.
    """
    one, other = (template.encode([Message("user", text)], add_generation_prompt=False) for text in "ab")
    return one[: next(n for n, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)]
