"""A Python function as a tool: type hints become the schema of its arguments, the docstring its description."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import threading
import typing
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from agent.capture.form_runner import Dialogue
from agent.tools.protocol import HOLDING_PHRASE, InPrograms, ToolOutput, ToolTraits
from chat.types import Tool

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

MAX_OUTPUT_CHARACTERS = 8000
"""A tool's output is cut to this length: about half of the language model's context."""

_MAX_HUNG = 16
"""Calls of one function that have exceeded their time limit and still run. Their threads cannot be stopped, so the
function is not called again until one of them ends."""


class _ThreadForEach(Executor):
    """Does work in a thread of its own: one that hangs takes no other's place, and does not keep the process alive."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = Future[T]()
        future.set_running_or_notify_cancel()  # it cannot be cancelled any more

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)
            except BaseException as error:  # SystemExit, which would end the event loop
                future.set_exception(_ended(error))

        threading.Thread(target=run, name="tool", daemon=True).start()
        return future


def _ended(error: BaseException) -> RuntimeError:
    """The error of a call that wanted to end the process."""
    return RuntimeError(f"the function raised {type(error).__name__}")


_THREADS = _ThreadForEach()
"""For functions that are not async."""

_SUPERFLUOUS = ("title", "default", "additionalProperties")

_TRAITS = "_rejoinder_traits"
_ARGUMENT = re.compile(r"^(\w+)(?:\s*\([^)]*\))?:\s*+(.+)$")
_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")


class BadTool(ValueError):
    """A function that cannot be a tool. `function` is the function."""

    def __init__(self, message: str, function: Callable[..., Any]) -> None:
        super().__init__(message)
        self.function = function


class Spoken(str):
    """A result that is said to the user as it is. Of any other result the language model makes a sentence."""


@dataclass(frozen=True)
class Caller:
    """Who calls. A parameter with this type hint is not part of the schema.

    Attributes:
        owner: whose data the call is about; the same for the same person in another conversation.
        dialogue: asks them for data. A tool takes it as a parameter with the type hint `Dialogue`.
    """

    owner: str
    dialogue: Dialogue | None = None


@dataclass(frozen=True)
class ServerTool:
    """A tool that the server runs.

    Attributes:
        run: makes a call with the arguments, an object.
    """

    declaration: Tool
    traits: ToolTraits
    run: Callable[[dict[str, Any], Caller], typing.Awaitable[ToolOutput]]

    @property
    def name(self) -> str:
        """Its name."""
        return self.declaration.name


def tool(
    *,
    read_only: bool = False,
    consequential: bool = False,
    question: str = "",
    holding_phrase: str = HOLDING_PHRASE,
    timeout_s: float = ToolTraits.timeout_s,
    opens_calls: bool = False,
    in_programs: InPrograms = "",
    outgoing: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Say how calls of a function are made: see `ToolTraits`."""
    traits = ToolTraits(
        read_only, consequential, holding_phrase, timeout_s, question, opens_calls, in_programs, outgoing
    )

    def mark(function: F) -> F:
        setattr(function, _TRAITS, traits)
        return function

    return mark


def function_tool(function: Callable[..., Any]) -> ServerTool:
    """The tool that a function is.

    Raises:
        BadTool: it has no docstring, or a parameter has no type hint or one without a JSON schema.
    """
    name = function.__name__
    traits: ToolTraits = getattr(function, _TRAITS, ToolTraits())
    description, about = _read_docstring(inspect.getdoc(function) or "")
    if not description:
        raise BadTool(f"{name} has no docstring: say in one what it does and when to call it", function)
    arguments, provided = _arguments_model(function, about)
    schema = _brief(arguments.model_json_schema())
    _check_dialogue(function, traits, asks=Dialogue in provided.values())
    if traits.opens_calls and schema.get("required"):
        raise BadTool(f"{name} opens calls, so it cannot have arguments without a default", function)

    hung: set[Future[Any]] = set()

    async def run(given: dict[str, Any], who: Caller) -> ToolOutput:
        try:
            checked = arguments.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        values = {field: getattr(checked, field) for field in arguments.model_fields}
        if Dialogue in provided.values() and who.dialogue is None:
            raise ValueError("The user cannot be asked here: the tool needs a spoken conversation.")
        values |= {field: who if kind is Caller else who.dialogue for field, kind in provided.items()}
        bound = partial(function, **values)
        if inspect.iscoroutinefunction(function):
            try:
                return as_output(await bound())
            except (SystemExit, KeyboardInterrupt) as error:
                raise _ended(error) from error
        hung.difference_update([call for call in hung if call.done()])
        if len(hung) >= _MAX_HUNG:
            raise ValueError(f"{name} hangs: {len(hung)} earlier calls of it have not returned.")
        call = _THREADS.submit(bound)
        try:
            return as_output(await asyncio.wrap_future(call))
        except asyncio.CancelledError:
            hung.add(call)
            raise

    return ServerTool(Tool(name, description, schema), traits, run)


def _check_dialogue(function: Callable[..., Any], traits: ToolTraits, *, asks: bool) -> None:
    """Check that a function that asks the user for data can. Raises BadTool."""
    if asks and not inspect.iscoroutinefunction(function):
        raise BadTool(f"{function.__name__} takes a Dialogue, so it has to be an `async def`", function)
    if asks and traits.read_only:
        raise BadTool(f"{function.__name__} asks the user, so it cannot be read_only", function)


def as_output(result: Any) -> ToolOutput:
    """What a function returned, for the language model: text as it is, anything else as JSON."""
    if isinstance(result, BaseModel):
        result = result.model_dump(mode="json")
    text = str(result) if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
    if result is None:
        text = "Done."
    if len(text) > MAX_OUTPUT_CHARACTERS:
        text = text[:MAX_OUTPUT_CHARACTERS] + " [cut]"
    return ToolOutput(text, text if isinstance(result, Spoken) else "")


def _arguments_model(function: Callable[..., Any], about: Mapping[str, str]) -> tuple[type[BaseModel], dict[str, type]]:
    """A model of the arguments, and the parameters that are none: those that take the caller and the dialogue."""
    name = function.__name__
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise BadTool(f"the type hints of {name} cannot be read ({error})", function) from None
    fields: dict[str, Any] = {}
    provided: dict[str, type] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise BadTool(f"{name} takes {parameter}: a tool has named parameters only", function)
        if parameter.name not in hints:
            raise BadTool(f"the parameter {parameter.name!r} of {name} has no type hint", function)
        if hints[parameter.name] in (Caller, Dialogue):
            provided[parameter.name] = hints[parameter.name]
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], Field(default, description=about.get(parameter.name)))
    try:
        model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except (PydanticUserError, TypeError, NameError) as error:
        reason = str(error).splitlines()[0]
        raise BadTool(f"the parameters of {name} have no JSON schema ({reason})", function) from None
    return model, provided


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description in a docstring, and what its section `Args` says about each parameter (Google's style)."""
    description: list[str] = []
    about: dict[str, str] = {}
    section, last = "", ""
    for line in text.splitlines():
        stripped = line.strip()
        if heading := _SECTION.match(stripped):
            section = heading[1]
        elif not section:
            description.append(stripped)
        elif section in ("Args", "Arguments", "Parameters"):
            if match := _ARGUMENT.match(stripped):
                last, about[match[1]] = match[1], match[2]
            elif last and stripped:
                about[last] += f" {stripped}"
    return " ".join(" ".join(description).split()), about


def _brief(schema: Any) -> Any:
    """A schema without what only makes prompts longer. The model itself checks the arguments."""
    if isinstance(schema, list):
        return [_brief(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    named = "properties", "$defs"  # their keys are names
    brief = {key: {name: _brief(part) for name, part in schema[key].items()} for key in named if key in schema}
    rest = {key: _brief(value) for key, value in schema.items() if key not in (*named, *_SUPERFLUOUS)}
    return {**({"type": rest.pop("type")} if "type" in rest else {}), **brief, **rest}
