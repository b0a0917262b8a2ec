"""Secrets by name: from the environment, or from files, as systemd (`LoadCredential=`), Docker and Kubernetes provide
them. No secret has to be on the command line, which every user of a machine can read."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER_VARIABLE = "CREDENTIALS_DIRECTORY"
"""Names the folder of the files. systemd sets it."""


def credential(name: str) -> str | None:
    """The secret in an environment variable, or else in the file of that name; None if there is neither.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not text.
    """
    return os.environ.get(name) or credential_file(name)


def credential_file(name: str) -> str | None:
    """The secret in a file, without white space around it; None if there is no such file, or it is empty.

    Raises:
        OSError, ValueError: as above.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    path = Path(folder or "", name)
    if not folder or not path.is_file():
        return None
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except UnicodeDecodeError:
        raise ValueError(f"the secret {path} is not UTF-8 text") from None
    except OSError as error:
        raise OSError(f"cannot read the secret {path} ({error.strerror})") from None
