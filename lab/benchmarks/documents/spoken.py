"""What documents add to a spoken turn: the same questions, with and without documents, in turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from agent.documents.evidence import DocumentEvidence
from agent.documents.search import SharedDocuments
from agent.language_model import LanguageModel
from lab.benchmarks.documents.evaluation import Question
from lab.benchmarks.session_turn import ask_aloud
from voice.clauses import Clause
from voice.speech_models import SpeechModels


async def compare(
    model: LanguageModel, models: SpeechModels, questions: Sequence[Question], documents: SharedDocuments
) -> dict[str, list[float]]:
    """The latency of the questions with and without documents, in ms. The order alternates."""
    latencies: dict[str, list[float]] = defaultdict(list)
    voice = models.voices.default
    for number, question in enumerate(questions):
        audio = voice.synthesize(Clause(question.text, True))
        sides = {"with documents": documents, "without": None}
        for name in list(sides)[:: 1 if number % 2 else -1]:
            found = sides[name]
            evidence = None if found is None else DocumentEvidence(found)
            response = await ask_aloud(model.fork(), models, audio, documents=evidence)
            latency = response.metrics.latency_ms()
            if latency is not None:
                latencies[name].append(latency)
                cached = f"{response.metrics.cached_tokens} of {response.metrics.prompt_tokens} tokens cached"
                print(f"{name}: {question.text} {latency:.0f} ms, {cached} → {response.item.text.strip()}", flush=True)
    return latencies
