"""How the language model's likelihood of an opening tells whether passages answer a question."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agent.documents.grounding import NOTHING_FOUND, Grounding, fit
from agent.documents.index import Match
from agent.instructions import INSTRUCTIONS
from lab.benchmarks.documents.evaluation import Question
from model.decode.option_tree import OptionTree
from model.engine.decision import Decider

_MIN_FIT = 0.1


class OpeningDecider(Decider):
    """Scores how likely a response begins with each text, whatever follows it."""

    def _tree(self, options: Sequence[str]) -> OptionTree:
        model = self._engine.model
        return OptionTree([model.tokenizer.encode(option) for option in options], range(model.grammars.vocabulary))


async def opening_odds(
    decider: Decider, found: Sequence[tuple[Question, list[Match]]]
) -> list[tuple[float, float, bool]]:
    """For each question the fit of its best passage, the log odds of an opening that names a source against one that
    finds nothing, and whether the passages answer. Questions that have an answer are asked a second time, without the
    passages that have it."""
    odds = []
    for question, matches in found:
        without = [match for match in matches if not question.is_evidence(match.found)]
        for candidates in (matches, without) if question.document else (matches,):
            chosen = [match for match in candidates if fit(match) >= _MIN_FIT][:3]
            answers = any(question.is_evidence(match.found) for match in chosen)
            if not chosen or (candidates is matches and question.document and not answers):
                continue
            prompt = Grounding(tuple(match.found for match in chosen)).prompt(
                question.messages(INSTRUCTIONS, {question.after: "Yes."})
            )
            options = (f"According to {chosen[0].found.title},", NOTHING_FOUND)
            source, nothing = (await decider.score(prompt, options)).probabilities
            log_odds = math.log((source + 1e-12) / (nothing + 1e-12))
            odds.append((fit(chosen[0]), log_odds, answers))
            mark = "+" if answers else "-"
            print(f"{mark} {question.text} fit {odds[-1][0]:.2f} log odds {log_odds:.1f}", flush=True)
    return odds
