"""What `convert data` has generated so far, so that it can be interrupted and go on where it was."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.checkpoint.gguf import BadModelFile
from model.convert.corpus import TrainingText
from model.hub.store import write_atomically


@dataclass
class CorpusState:
    """Everything that the next round of generation depends on.

    Attributes:
        random: the source of all random choices.
        texts: the texts so far.
        used_messages: user messages that must not occur again, normalized.
        response_counts: how often each response was given.
        tokens_by_kind: response tokens by kind of text.
        num_response_tokens, num_looping, num_batches: response tokens, discarded responses, and batches so far.
    """

    random: random.Random
    texts: list[TrainingText] = field(default_factory=list)
    used_messages: set[str] = field(default_factory=set)
    response_counts: Counter[tuple[int, ...]] = field(default_factory=Counter)
    tokens_by_kind: Counter[str] = field(default_factory=Counter)
    num_response_tokens: int = 0
    num_looping: int = 0
    num_batches: int = 0

    def save(self, path: Path, purpose: Mapping[str, Any]) -> None:
        """Write it to a file, atomically.

        Args:
            purpose: what is being generated; a state is only continued for the same purpose.
        """
        version, numbers, gauss = self.random.getstate()
        payload = {
            "purpose": purpose,
            "random": [version, list(numbers), gauss],
            "texts": [[text.tokens, text.spans, text.kind] for text in self.texts],
            "used_messages": sorted(self.used_messages),
            "response_counts": [[tokens, count] for tokens, count in self.response_counts.items()],
            "tokens_by_kind": self.tokens_by_kind,
            "num_response_tokens": self.num_response_tokens,
            "num_looping": self.num_looping,
            "num_batches": self.num_batches,
        }
        write_atomically(path, lambda partial: partial.write_text(json.dumps(payload), encoding="utf-8"))

    @staticmethod
    def load(path: Path, purpose: Mapping[str, Any]) -> CorpusState | None:
        """Read a file that `save` wrote; None if there is none.

        Raises:
            BadModelFile: it is damaged, or was written for another purpose.
        """
        if not path.exists():
            return None
        try:
            payload = json.loads(path.read_text(encoding="utf-8"))
            version, numbers, gauss = payload["random"]
            state = CorpusState(
                random.Random(),
                [
                    TrainingText(tuple(tokens), tuple((begin, end) for begin, end in spans), kind)
                    for tokens, spans, kind in payload["texts"]
                ],
                set(payload["used_messages"]),
                Counter({tuple(tokens): count for tokens, count in payload["response_counts"]}),
                Counter(payload["tokens_by_kind"]),
                payload["num_response_tokens"],
                payload["num_looping"],
                payload["num_batches"],
            )
            state.random.setstate((version, tuple(numbers), gauss))
            found = payload["purpose"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadModelFile(f"{path} cannot be read ({error}): remove it to start over") from None
        expected = json.loads(json.dumps(purpose))
        if found != expected:
            differing = ", ".join(sorted(key for key in expected if found.get(key) != expected[key]))
            raise BadModelFile(
                f"{path} contains text that is being generated with other settings ({differing}): use the same ones, "
                "choose another folder, or remove it to start over"
            )
        return state
