"""Every catalog entry is complete."""

from __future__ import annotations

from model.hub import catalog


def test_the_catalog_gives_licence_authors_and_checksums_of_every_model() -> None:
    assert len({model.name for model in catalog.MODELS}) == len(catalog.MODELS)
    for model in catalog.MODELS:
        assert model.licence and model.authors and model.hub_repository and model.pip_extra
        for file in model.files:
            assert len(file.sha256) == 64 and file.size > 0 and file.parts
