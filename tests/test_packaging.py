"""What the package offers to install can be installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


def test_no_extra_needs_a_build_without_isolation() -> None:
    """flash-attn's build imports torch, which pip's isolated build environment lacks, so it cannot be an extra: the
    documentation says how to install it separately."""
    extras = [requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra]
    assert not [requirement for requirement in extras if requirement.startswith("flash-attn")]
