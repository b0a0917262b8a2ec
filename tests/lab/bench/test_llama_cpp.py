"""The comparison with llama.cpp, where llama.cpp itself does not work."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.bench.llama_cpp import LlamaCpp, LlamaCppFailed


def test_a_llama_cpp_that_ends_by_itself_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LlamaCppFailed, match=r"llama.cpp ended with code 1, so there is no comparison with it"):
        LlamaCpp(tmp_path / "there-is-no-such.gguf", 64)
