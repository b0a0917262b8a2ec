"""Errors of HTTP requests, in OpenAI's form: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from server.access.admission import Refused
from server.access.keys import ApiKey
from server.access.usage import UsageMeter, current_meter, key_name
from server.context import AccessDenied, ServerContext
from server.request_body import discard_rest, json_body

T = TypeVar("T", bound=BaseModel)

_CLIENT_CLOSED_REQUEST = 499


class APIError(Exception):
    """A request that cannot be answered.

    Args:
        message: one sentence that says what is wrong and what to do.
        param: the field of the request, such as `messages[0].content`.
        code: what programs compare, such as `model_not_found`.
        retry_after_s: when to try again, for status 429 and 503.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int = 1,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self._retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        kind = {401: "authentication_error", 403: "authentication_error", 429: "rate_limit_error"}.get(
            self.status, "invalid_request_error" if self.status < 500 else "server_error"
        )
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The HTTP response."""
        headers = {"retry-after": str(self._retry_after_s)} if self.status in (429, 503) else {}
        return JSONResponse(self.body(), self.status, headers)


Handler = Callable[[Request], Awaitable[Response]]


def endpoint(context: ServerContext, handler: Handler) -> Handler:
    """A route of the text API, which counts for the key of whoever asks."""

    def authenticate(request: Request) -> ApiKey | None:
        key = context.authenticate(request)
        context.admission.check(key)
        current_meter.set(UsageMeter(context.admission.usage, key_name(key)))
        return key

    return guarded(authenticate, handler)


def guarded(authenticate: Callable[[Request], ApiKey | None], handler: Handler) -> Handler:
    """A route that checks who asks, and turns errors into responses. The handler finds the key in `request.state`.

    Args:
        authenticate: raises AccessDenied or Refused.
    """

    @wraps(handler)
    async def route(request: Request) -> Response:
        try:
            request.state.key = authenticate(request)
            return await handler(request)
        except APIError as error:
            return error.response()
        except AccessDenied as error:
            return APIError(error.status, error.message, code=error.code).response()
        except Refused as error:
            status = 429 if error.code == "quota_exceeded" else 503
            return APIError(status, error.message, code=error.code, retry_after_s=error.retry_after_s).response()
        except HTTPException as error:  # of the body
            await discard_rest(request, error)
            response = APIError(error.status_code, error.detail).response()
            response.headers.update(error.headers or {})
            return response
        except ClientDisconnect:
            return Response(status_code=_CLIENT_CLOSED_REQUEST)

    return route


async def unknown_route(request: Request, error: Exception) -> Response:
    """The response where there is no route, or none for the method: in OpenAI's form in its API."""
    assert isinstance(error, HTTPException)
    if request.url.path.startswith("/v1/"):
        message = f"this server has no {request.method} {request.url.path}: check the address and the method"
        return APIError(404, message, code="unknown_url").response()
    return PlainTextResponse(error.detail, error.status_code, error.headers)


async def read_json(request: Request, model: type[T]) -> T:
    """The validated body of a request. Raises APIError."""
    body = await json_body(request)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> APIError:
    # Every member of a union reports why it does not match; the deepest one was meant.
    first = max(error.errors(include_url=False, include_input=False), key=lambda details: len(details["loc"]))
    path, kind = field_path(first["loc"]), first["type"]
    if kind == "json_invalid":
        return APIError(400, f"the body is not valid JSON ({first['ctx']['error']})")
    if kind == "extra_forbidden":
        return APIError(400, f"there is no parameter {path!r}", path, "unknown_parameter")
    if kind == "missing":
        return APIError(400, f"the parameter {path!r} is missing", path, "missing_required_parameter")
    message = first["msg"].removeprefix("Value error, ")
    return APIError(400, f"{path}: {message}" if path else message, path or None, "invalid_value")


def field_path(location: Sequence[str | int]) -> str:
    """`("messages", 0, "content")` → `messages[0].content`. The members of unions, which pydantic adds, are left out:
    types and classes, whose names no field has."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part.islower() and part not in _BUILTIN_TYPES:
            path += f".{part}" if path else part
    return path


_BUILTIN_TYPES = frozenset({"str", "int", "float", "bool", "dict", "none"})
