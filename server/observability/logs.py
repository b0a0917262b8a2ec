"""Log records on standard error, for people, for log collectors or as JSON, without secrets, phone numbers and e-mail
addresses."""

from __future__ import annotations

import json
import logging
import re
import traceback
from copy import copy
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.logging import RichHandler

from agent.matched_text import MAX_LOG_MESSAGE, for_patterns

_START, _END = r"(?:(?<![\w.+-])|(?<=%[\da-fA-F]{2}))", r"(?![\w-])"
_PLUS, _GAP = r"(?:\+|%(?:25)*2[bB])", r"(?:[ ()+-]|%(?:25)*2[089bBdD])"
"""Where a number may begin and end, and what may stand in it: also as URLs write it, `%2B1%20415` or `4111+1111`."""

_PATTERNS = (
    (re.compile(r"\b(rj_|ek_|sk-)[\w-]{6,}"), r"\1[hidden]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), r"\1 [hidden]"),
    (re.compile(r"(openai-insecure-api-key\.|rejoinder-resume\.)[\w.~+/=-]+"), r"\1[hidden]"),
    (re.compile(r"([?&](?:token|api_key|key|secret)=)[^&\s'\"]+"), r"\1[hidden]"),
    (re.compile(r"(?<!\w)[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"), "[e-mail]"),
    (re.compile(rf"{_START}{_PLUS}\d(?:{_GAP}{{0,2}}\d){{6,14}}{_END}"), "[number]"),
    (re.compile(rf"{_START}\(?\d{{3}}{_GAP}{{1,2}}\d{{3}}{_GAP}\d{{4}}{_END}"), "[number]"),
    (re.compile(rf"{_START}\d{{4}}{_GAP}\d{{4,6}}{_GAP}\d{{4,5}}(?:{_GAP}\d{{1,7}})?{_END}"), "[number]"),
    (re.compile(rf"{_START}\d{{9,19}}{_END}(?!%(?![\da-fA-F]{{2}})|\.\d)"), "[number]"),
)
"""What is replaced. Numbers of 9 to 19 digits are those of telephones and payment cards, which are also written in
groups; the server's own figures are shorter."""

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Redactor:
    """Replaces what must not be in a log.

    Args:
        secrets: further texts to hide, such as a carrier's token.
    """

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self._secrets = tuple(sorted((secret for secret in secrets if len(secret) >= 4), key=len, reverse=True))

    def __call__(self, text: str) -> str:
        """The text without secrets, telephone numbers and e-mail addresses."""
        for secret in self._secrets:
            text = text.replace(secret, "[hidden]")
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text


def where_it_failed(error: BaseException) -> str:
    """A traceback with the types of the exceptions, but not their messages, which may quote what people said."""
    lines, cause = list[str](), error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        lines += [where_it_failed(cause), "which led to"]
    lines += [line.rstrip("\n") for line in traceback.format_tb(error.__traceback__)]
    code = f" {error.errno}" if isinstance(error, OSError) and error.errno is not None else ""
    lines.append(f"{type(error).__name__}{code}")
    if isinstance(error, BaseExceptionGroup):
        lines += [where_it_failed(each) for each in error.exceptions]
    return "\n".join(lines)


class RedactingFormatter(logging.Formatter):
    """Redacts what another formatter makes of a record, tracebacks included."""

    def __init__(self, inner: logging.Formatter, redact: Redactor) -> None:
        super().__init__(datefmt=inner.datefmt)
        self._inner, self._redact = inner, redact

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        message, record = record.getMessage(), copy(record)
        if len(message) > MAX_LOG_MESSAGE:
            record.msg, record.args = for_patterns(message, MAX_LOG_MESSAGE), ()
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = where_it_failed(record.exc_info[1])
        return self._redact(self._inner.format(record))


class JSONFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, `exception`, and the record's own fields, such as
    `turn_id`."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS},
        }
        if record.exc_text:
            fields["exception"] = record.exc_text
        return json.dumps(fields, ensure_ascii=False, default=str)


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
    handler = log_handler(Console(stderr=True), as_json=as_json)
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
