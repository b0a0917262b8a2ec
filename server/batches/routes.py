"""`/v1/files` and `/v1/batches`, in OpenAI's format. A key sees its own files and batches only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from inspect import unwrap
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from server.access.usage import key_name
from server.api_errors import APIError, Handler, endpoint, read_json
from server.batch_store import OPEN, Batch, BatchStore, StorageFull, StoredFile
from server.batches.runner import BatchRunner
from server.budgets import BATCH_UPLOAD
from server.context import ServerContext
from server.request_body import limited
from server.response_format import StrictModel

BATCH_ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/decide")

MAX_PAGE = 100
"""Batches of one list; of files OpenAI allows more."""

MAX_FILES_PAGE = 10_000

_PAGE_LINES = 256
"""Lines that are read at a time while a file is sent."""

Seconds = Annotated[int, Field(ge=3600, le=30 * 86_400)]


class ExpiresAfter(StrictModel):
    """How long a file is kept."""

    anchor: Literal["created_at"]
    seconds: Seconds


class BatchRequest(StrictModel):
    """The body of `POST /v1/batches`."""

    input_file_id: str
    endpoint: Literal["/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/decide"]
    completion_window: Literal["24h"]
    metadata: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None = Field(
        None, max_length=16
    )
    output_expires_after: ExpiresAfter | None = None


def batch_routes(context: ServerContext, handlers: Sequence[Route]) -> tuple[list[Route], BatchRunner]:
    """All routes, and what answers the requests.

    Args:
        handlers: the routes of the text API. Of `BATCH_ENDPOINTS`, batches use those that there are.
    """
    available: dict[str, Handler] = {
        route.path: unwrap(route.endpoint) for route in handlers if route.path in BATCH_ENDPOINTS
    }
    runner = BatchRunner(context.batches, context.admission, available)
    files, batches = Files(context.batches), Batches(context.batches, runner, available)
    table: list[tuple[str, str, Handler]] = [
        ("POST", "/v1/files", files.create),
        ("GET", "/v1/files", files.list_all),
        ("GET", "/v1/files/{id}", files.retrieve),
        ("DELETE", "/v1/files/{id}", files.delete),
        ("GET", "/v1/files/{id}/content", files.content),
        ("POST", "/v1/batches", batches.create),
        ("GET", "/v1/batches", batches.list_all),
        ("GET", "/v1/batches/{id}", batches.retrieve),
        ("POST", "/v1/batches/{id}/cancel", batches.cancel),
    ]
    return [Route(path, endpoint(context, handler), methods=[method]) for method, path, handler in table], runner


class Files:
    """Answers requests about files."""

    def __init__(self, store: BatchStore) -> None:
        self._store = store

    async def create(self, request: Request) -> Response:
        """Store an uploaded file. Raises APIError, HTTPException."""
        with limited(request, BATCH_UPLOAD) as counted:
            async with counted.form(max_files=1, max_fields=8) as form:
                fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
                file = form.get("file")
                if not isinstance(file, UploadFile):
                    raise APIError(400, "send the file as the form field 'file'", "file")
                seconds = _check_fields(fields)
                name = PurePath(file.filename or "requests.jsonl").name[:255]
                try:
                    stored = await self._store.call(
                        self._store.add_file, key_name(request.state.key), name, "batch", file.file, seconds
                    )
                except StorageFull as full:
                    raise _full(full) from None
                except ValueError as error:
                    raise APIError(400, str(error), "file", "invalid_value") from None
        return JSONResponse(stored.body())

    async def list_all(self, request: Request) -> Response:
        """The files of a key. Raises APIError."""
        query, owner = request.query_params, key_name(request.state.key)
        limit, newest = _limit(query, MAX_FILES_PAGE, MAX_FILES_PAGE), query.get("order", "desc") != "asc"
        found = await self._store.call(
            self._store.files, owner, query.get("purpose"), query.get("after", ""), limit + 1, newest_first=newest
        )
        return _list([file.body() for file in found], limit)

    async def retrieve(self, request: Request) -> Response:
        """What is known of a file. Raises APIError."""
        return JSONResponse((await self._find(request)).body())

    async def delete(self, request: Request) -> Response:
        """Delete a file. Raises APIError."""
        file = await self._find(request)
        if batch := await self._store.call(self._store.delete_file, file):
            raise APIError(400, f"the batch {batch!r} still reads this file: cancel it first", "id", "file_in_use")
        return JSONResponse({"id": file.id, "object": "file", "deleted": True})

    async def content(self, request: Request) -> Response:
        """The file itself. Raises APIError."""
        file = await self._find(request)

        async def parts() -> AsyncIterator[bytes]:
            number = 0
            while lines := await self._store.call(self._store.lines, file.id, number, _PAGE_LINES):
                number = lines[-1][0]
                yield b"".join(text for _, text in lines)

        return StreamingResponse(parts(), media_type="application/jsonl")

    async def _find(self, request: Request) -> StoredFile:
        return await find_file(self._store, request.path_params["id"], key_name(request.state.key), "id")


class Batches:
    """Answers requests about batches.

    Args:
        available: the endpoints that this server has.
    """

    def __init__(self, store: BatchStore, runner: BatchRunner, available: Mapping[str, Handler]) -> None:
        self._store, self._runner, self._available = store, runner, available

    async def create(self, request: Request) -> Response:
        """A new batch. Raises APIError."""
        body, owner = await read_json(request, BatchRequest), key_name(request.state.key)
        if body.endpoint not in self._available:
            raise APIError(400, f"this server has no {body.endpoint}: it runs without a language model", "endpoint")
        file = await find_file(self._store, body.input_file_id, owner, "input_file_id")
        seconds = None if body.output_expires_after is None else body.output_expires_after.seconds
        try:
            batch = await self._store.call(self._store.add_batch, owner, body.endpoint, file.id, body.metadata, seconds)
        except StorageFull as full:
            raise _full(full) from None
        self._runner.change()
        return await self._response(batch)

    async def list_all(self, request: Request) -> Response:
        """The batches of a key. Raises APIError."""
        query, owner = request.query_params, key_name(request.state.key)
        limit = _limit(query, 20, MAX_PAGE)
        found = await self._store.call(self._store.batches, owner, query.get("after", ""), limit + 1)
        return _list([await self._body(batch) for batch in found], limit)

    async def retrieve(self, request: Request) -> Response:
        """How far a batch is. Raises APIError."""
        return await self._response(await self._find(request))

    async def cancel(self, request: Request) -> Response:
        """Answer no more requests of a batch. What was answered stays. Raises APIError."""
        batch = await self._find(request)
        if batch.status not in OPEN:
            raise APIError(400, f"the batch is {batch.status} and cannot be cancelled", "id", "invalid_value")
        batch = await self._store.call(self._store.change, batch, "cancelling")
        self._runner.change()
        return await self._response(batch)

    async def _find(self, request: Request) -> Batch:
        """Raises APIError."""
        name = request.path_params["id"]
        batch = await self._store.call(self._store.batch, name, key_name(request.state.key))
        if batch is None:
            raise APIError(404, f"there is no batch {name!r}; batches are kept for 30 days", "id")
        return batch

    async def _response(self, batch: Batch) -> Response:
        return JSONResponse(await self._body(batch))

    async def _body(self, batch: Batch) -> dict[str, Any]:
        return batch.body(*await self._store.call(self._store.counts, batch))


async def find_file(store: BatchStore, name: str, owner: str, param: str) -> StoredFile:
    """A file of this owner. Others are told that there is none. Raises APIError."""
    file = await store.call(store.file, name, owner)
    if file is None:
        raise APIError(404, f"there is no file {name!r}: it was never stored, was deleted, or has expired", param)
    return file


def _check_fields(fields: Mapping[str, str]) -> int | None:
    """How long the file is to be kept. Raises APIError if a field asks for what there is not."""
    known = {"purpose", "expires_after[anchor]", "expires_after[seconds]"}
    if unknown := fields.keys() - known:
        name = min(unknown)
        raise APIError(400, f"there is no parameter {name!r}", name, "unknown_parameter")
    if fields.get("purpose") != "batch":
        raise APIError(400, "files have one purpose here, 'batch': requests, one a line", "purpose", "invalid_value")
    if fields.get("expires_after[anchor]", "created_at") != "created_at":
        raise APIError(400, "a file expires some time after 'created_at'", "expires_after[anchor]", "invalid_value")
    seconds = fields.get("expires_after[seconds]")
    try:
        return None if seconds is None else TypeAdapter(Seconds).validate_python(seconds)
    except ValidationError:
        raise APIError(
            400, "a file is kept for 3600 to 2592000 seconds", "expires_after[seconds]", "invalid_value"
        ) from None


def _limit(query: Mapping[str, str], default: int, most: int) -> int:
    """How many items a list may have. Raises APIError."""
    value = query.get("limit", str(default))
    if not (value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= most):
        raise APIError(400, f"limit must be a number from 1 to {most}", "limit", "invalid_value")
    return int(value)


def _list(items: list[dict[str, Any]], limit: int) -> Response:
    """A page of a list, of which one item more than fits was read."""
    page = items[:limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    more = len(items) > limit
    return JSONResponse({"object": "list", "data": page, "first_id": first, "last_id": last, "has_more": more})


def _full(full: StorageFull) -> APIError:
    return APIError(400, str(full), code="storage_full")
