"""General models from the hub: how long turns may take with each (`rejoinder models recommend`), and those that were
pulled, which `--model auto` prefers to the bundled coders of their size."""

from __future__ import annotations

from collections.abc import Mapping

from model.hub import catalog
from model.hub.catalog import ModelEntry, ModelFile
from server.serving.model_record import ModelHistory
from server.serving.runtime import hub_models

SAME_SIZE = 1.1
"""Models whose sizes differ by less than this factor have the same size."""

_SPEECH_MS = 250
"""Of a turn's latency, the part that is the same with every language model: the wait for the end of the turn, the
transcript and the voice. The rest is proportional to the bytes of the weights, which every token reads once."""


def pulled_models() -> list[ModelEntry]:
    """The general models that were pulled completely."""
    hub, known = hub_models(), {one.repository for one in catalog.GENERAL_MODELS}
    return [
        ModelEntry(
            name=one.name,
            kind="language",
            title=one.repository,
            authors="",
            licence=one.licence,
            files=tuple(ModelFile(file.path, file.size, file.digest, (), file.path) for file in one.files),
            pip_extra="",
            hub_repository=one.repository,
            main_file=one.main_file,
            rating=_assumed_rating(one.size),
            is_rated=False,
        )
        for one in hub.recorded()
        if one.repository in known and hub.is_complete(one)
    ]


def _assumed_rating(size: int) -> int:
    """The rating of an unrated model: a little better than the best bundled one of its size or below."""
    return 1 + max((one.rating for one in catalog.LANGUAGE_MODELS if one.size < size * SAME_SIZE), default=0)


def expected_ms(size: int, histories: Mapping[str, ModelHistory]) -> tuple[int, str] | None:
    """The median latency of a turn to expect of a model, by the largest bundled one that was tried here, and the name
    of that one; None if none was tried.

    Args:
        size: of its weights, in bytes.
        histories: what this machine has shown, by the name of the model.
    """
    for one in catalog.LANGUAGE_MODELS:
        median = histories.get(one.name, ModelHistory()).median_ms
        if median is not None:
            fixed = min(_SPEECH_MS, median // 2)  # of a quick machine, at least half grows with the size
            return round(fixed + (median - fixed) * size / one.size), one.name
    return None
