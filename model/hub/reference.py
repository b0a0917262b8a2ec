"""Names of models on the Hugging Face hub: `org/repo[@revision][:file or quantization]`.

Only the syntax: `selection.py` chooses the files, and `download.py` fetches them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_REVISION = "main"

_NAME = r"[A-Za-z0-9][\w.-]*"
_REFERENCE = re.compile(
    rf"(?P<repository>{_NAME}/{_NAME})(?:@(?P<revision>[\w.][\w./-]*))?(?::(?P<selection>[\w.][\w./ +-]*))?", re.ASCII
)
_FILE_SUFFIXES = (".gguf", ".safetensors", ".onnx")


@dataclass(frozen=True)
class HubReference:
    """A model on the hub.

    Attributes:
        repository: `org/repo`.
        revision: a branch, a tag or a commit.
        selection: a GGUF file of the repository, a quantization such as `Q4_K_M`, `safetensors`, or empty.
    """

    repository: str
    revision: str = DEFAULT_REVISION
    selection: str = ""

    def __str__(self) -> str:
        revision = "" if self.revision == DEFAULT_REVISION else f"@{self.revision}"
        return f"{self.repository}{revision}{':' if self.selection else ''}{self.selection}"


def parse_reference(name: str) -> HubReference | None:
    """Return the hub reference that `name` spells, or None if it is not one (a catalog name or a path)."""
    match = _REFERENCE.fullmatch(name)
    if match is None or ".." in name or (match["selection"] is None and name.endswith(_FILE_SUFFIXES)):
        return None
    return HubReference(match["repository"], match["revision"] or DEFAULT_REVISION, match["selection"] or "")
