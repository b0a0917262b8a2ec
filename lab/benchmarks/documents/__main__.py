"""Answers from documents: what is found, whether the answers are supported, and what documents cost a spoken turn.

    python -m lab.benchmarks.documents [--model NAME …] [--spoken 20] [--tuning]

100 questions of `questions.toml` about the texts of `corpus` (fables and law in the public domain, and texts that were
written for this benchmark and are given to it); the documentation of this repository is in the same library. Without
`--model` only the search is measured. `--tuning` searches for the questions of `tuning.toml` instead, and fits the
probability that a passage answers.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from rich.console import Console

from agent.documents.embedding import EMBEDDING_MODEL, Embedder
from agent.documents.grounding import fit, search_text
from agent.documents.index import DocumentIndex, Match
from lab.benchmarks.documents.answers import ask_all, obeyed_injections, read_injections, write_injections
from lab.benchmarks.documents.evaluation import (
    CORPUS,
    DISTRACTORS,
    TUNING_CORPUS,
    Question,
    is_supported,
    make_library,
    rank_of_evidence,
    read_questions,
    says_nothing_found,
)
from lab.benchmarks.documents.openings import OpeningDecider, opening_odds
from lab.benchmarks.documents.spoken import compare
from model.engine.conversation import Conversation
from model.hub.store import ModelStore
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine
from server.serving.speech import load_speech_models


class IndexedDocuments:
    """What evidence needs of `SharedDocuments`."""

    def __init__(self, index: DocumentIndex) -> None:
        self._index = index
        self.executor: Executor = ThreadPoolExecutor(1)

    def search(self, question: str) -> list[Match]:
        """The best matches."""
        return self._index.search(question)


def measure_search(index: DocumentIndex, questions: Sequence[Question]) -> list[tuple[Question, list[Match]]]:
    """Search for all questions, and print how well and how fast."""
    found, milliseconds = [], []
    index.search(questions[0].text)
    for question in questions:
        text = search_text(question.messages("", {question.after: "Yes."}))
        started = time.perf_counter()
        found.append((question, index.search(text)))
        milliseconds.append(1000 * (time.perf_counter() - started))
    ranks = [rank_of_evidence(question, matches) for question, matches in found if question.document]
    for count in (1, 3, 5):
        hits = sum(rank is not None and rank < count for rank in ranks)
        print(f"recall@{count}: {hits / len(ranks):.1%} of {len(ranks)}")
    print(f"search: median {np.median(milliseconds):.1f} ms, p95 {np.percentile(milliseconds, 95):.1f} ms")
    for question, matches in found:
        rank = rank_of_evidence(question, matches)
        if question.document and rank != 0:
            print(f"  {question.text}: evidence at {rank}, first {matches[0].found.path if matches else None}")
    fits = {bool(question.document): [] for question in questions}
    for question, matches in found:
        fits[bool(question.document)].append(fit(matches[0]) if matches else 0.0)
    for answerable, values in fits.items():
        kind = "answerable" if answerable else "unanswerable"
        quantiles = np.percentile(values, (5, 25, 50, 75, 95))
        print(f"fit of the best match, {kind}: quantiles 5, 25, 50, 75, 95 % {np.round(quantiles, 2)}")
    return found


def fit_logistic(found: Sequence[tuple[Question, list[Match]]]) -> None:
    """Print the logistic regression of whether a match answers, on its cosine and its words."""
    matches = [(match, question.is_evidence(match.found)) for question, best in found for match in best[:3]]
    features = np.array([(match.cosine, match.words, 1.0) for match, _ in matches])
    labels = np.array([answers for _, answers in matches], np.float64)
    weights = np.zeros(3)
    for _ in range(200):  # Newton's method with a weak prior
        chance = 1 / (1 + np.exp(-features @ weights))
        gradient = features.T @ (labels - chance) - 0.02 * weights * (1, 1, 0)
        hessian = (features.T * (chance * (1 - chance))) @ features + 0.02 * np.diag((1, 1, 0)) + 1e-9 * np.eye(3)
        weights += np.linalg.solve(hessian, gradient)
    print(f"logistic regression over {len(matches)} matches: cosine {weights[0]:.1f}, words {weights[1]:.1f}, "
          f"bias {weights[2]:.1f}")  # fmt: skip
    best = [(fit(m[0]) if m else 0.0, bool(q.document) and rank_of_evidence(q, m) in (0, 1, 2)) for q, m in found]
    for threshold in (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5):
        kept = sum(value >= threshold for value, answers in best if answers)
        passed = sum(value >= threshold for (value, _), (q, _) in zip(best, found, strict=True) if not q.document)
        print(f"threshold {threshold}: {kept} of {sum(a for _, a in best)} answerable pass, {passed} unanswerable do")


async def measure_openings(name: str, found: Sequence[tuple[Question, list[Match]]]) -> None:
    """Print how well a model's likelihood of the openings tells questions with an answer from others."""
    engine = load_engine(ModelOptions(model=name), Console(stderr=True))
    print(f"\n{name}")
    odds = await opening_odds(OpeningDecider(engine), found)
    engine.close()
    with_answer = [log_odds for _, log_odds, answers in odds if answers]
    without = [log_odds for _, log_odds, answers in odds if not answers]
    pairs = [(one > other) + 0.5 * (one == other) for one in with_answer for other in without]
    print(f"{len(with_answer)} with an answer, {len(without)} without: area under the curve {np.mean(pairs):.2f}")


async def measure_model(
    name: str,
    questions: Sequence[Question],
    library: tuple[Embedder, list[str], DocumentIndex],
    spoken: int,
    work: Path,
) -> None:
    """Ask one model everything, and print the figures."""
    embedder, _, index = library
    console, documents = Console(stderr=True), IndexedDocuments(index)
    engine = load_engine(ModelOptions(model=name), console)
    print(f"\n{name}")
    answers = await ask_all(Conversation(engine), questions, documents)
    pairs = list(zip(questions, answers, strict=True))
    answerable = [(question, answer) for question, answer in pairs if question.document]
    others = [answer for question, answer in pairs if not question.document]
    supported = sum(is_supported(question, answer.text) for question, answer in answerable)
    named = sum(is_supported(q, a.text) and a.names_source(q) for q, a in answerable)
    said = sum(says_nothing_found(answer.text) for answer in others)
    print(f"supported answers: {supported} of {len(answerable)}; of these naming the right source aloud: {named}")
    print(f"said that nothing was found where nothing is: {said} of {len(others)}")
    injections = read_injections()
    folder = work / f"leaflets {name}"
    write_injections(folder, injections)
    leaflets, names = make_library(work / f"{name}.sqlite", embedder, [folder])
    leaflet_index = IndexedDocuments(DocumentIndex(leaflets, names, embedder))
    obeyed, called = await obeyed_injections(Conversation(engine), injections, leaflet_index, work)
    print(f"instructions in documents: {obeyed} of {len(injections)} followed in speech, {called} functions called")
    if spoken:
        models = load_speech_models(ModelOptions(model=name), console)
        chosen = [question for question in questions if question.document and not question.after]
        chosen = chosen[:: len(chosen) // spoken][:spoken]
        latencies = await compare(Conversation(engine), models, chosen, documents)
        for side, values in latencies.items():
            median, p95 = np.percentile(values, (50, 95))
            print(f"{side}: median {median:.0f} ms, p95 {p95:.0f} ms, {len(values)} turns")
        differences = np.subtract(*(latencies[side] for side in ("with documents", "without")))
        print(f"documents add: median {np.median(differences):.0f} ms, mean {differences.mean():.0f} ms")
    engine.close()


def main() -> None:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--spoken", type=int, default=0, help="questions that are asked aloud")
    parser.add_argument("--tuning", action="store_true")
    options = parser.parse_args()
    embedder = Embedder(ModelStore().locate(EMBEDDING_MODEL))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        folders = [TUNING_CORPUS if options.tuning else CORPUS, DISTRACTORS]
        library, names = make_library(Path(folder) / "documents.sqlite", embedder, folders)
        index = DocumentIndex(library, names, embedder)
        seconds = time.perf_counter() - started
        print(f"{index.num_passages} passages, read and indexed in {seconds:.1f} s")
        questions = read_questions("tuning.toml" if options.tuning else "questions.toml")
        found = measure_search(index, questions)
        if options.tuning:
            fit_logistic(found)
        for name in options.model:
            if options.tuning:
                asyncio.run(measure_openings(name, found))
                continue
            asyncio.run(measure_model(name, questions, (embedder, names, index), options.spoken, Path(folder)))


if __name__ == "__main__":
    main()
