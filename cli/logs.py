"""Where log records go: to standard error, formatted for people, for log collectors, or as JSON."""

from __future__ import annotations

import logging

from rich.console import Console
from rich.logging import RichHandler

from cli.console import stderr
from server.observability.logs import JSONFormatter, RedactingFormatter, Redactor


def configure_logging(*, as_json: bool = False, secrets: tuple[str, ...] = ()) -> None:
    """Write log records to standard error, without secrets, telephone numbers and e-mail addresses. Does nothing in a
    program that has set up logging itself.

    Args:
        secrets: texts to hide, in addition to what looks like a key.
    """
    root = logging.getLogger()
    own = [handler for handler in root.handlers if isinstance(handler.formatter, RedactingFormatter)]
    if len(own) < len(root.handlers):
        return
    handler = log_handler(stderr, as_json=as_json)
    assert handler.formatter is not None  # set above
    handler.setFormatter(RedactingFormatter(handler.formatter, Redactor(secrets)))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)  # replaces an earlier one of ours


def log_handler(console: Console, *, as_json: bool = False) -> logging.Handler:
    """Log records with timestamps: formatted for people on a terminal; elsewhere one line each, as log collectors
    expect."""
    if console.is_terminal and not as_json:
        rich_handler = RichHandler(console=console, show_path=False, rich_tracebacks=False, omit_repeated_times=False)
        rich_handler.setFormatter(logging.Formatter("%(message)s", datefmt="[%X]"))
        return rich_handler
    plain_handler = logging.StreamHandler(console.file)
    plain_handler.setFormatter(
        JSONFormatter() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    return plain_handler
