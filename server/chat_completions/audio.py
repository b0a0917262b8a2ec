"""`/v1/audio/transcriptions` and `/v1/audio/speech`, with the speech models of the voice conversations."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, aclosing, asynccontextmanager
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from agent.dictation.cleaner import CleanText
from server.access.keys import ApiKey
from server.access.usage import Usage, current_meter
from server.api_errors import APIError, read_json
from server.budgets import UPLOAD
from server.chat_completions.audio_files import SPEECH_FORMATS, SpeechEncoder, SpeechFormat
from server.chat_completions.decoder import RecordingDecoder, RecordingTooLong
from server.chat_completions.requests import RequestLimit
from server.chat_completions.streaming import event_stream, unless_disconnected
from server.context import ServerContext
from server.request_body import limited
from server.response_format import StrictModel, VoiceID
from server.server_sent_events import DONE, event
from server.speech_times import viseme_times, word_times
from voice.asr import Segment
from voice.audio.codec import PCM16, RECOGNITION_RATE, from_pcm16
from voice.recordings import transcribe_recording
from voice.speech_models import SpeechModels
from voice.speech_times import SpeechTimes
from voice.tts import DEFAULT_VOICE, UnknownVoice, Voice
from voice.word_alignment import Word

_MAX_FIELD_BYTES = 1 << 16

MAX_RECORDING_S = 2 * 3600.0
"""Longest recording. It takes a core about six minutes."""

MAX_SPEECH_CHARACTERS = 4096
"""OpenAI's limit for the text of one request."""

_TRANSCRIPT_FORMATS = ("json", "text", "verbose_json", "srt", "vtt")

_CLEAN_FORMATS = ("json", "verbose_json")
"""They have room for the raw words."""

Timestamps = Literal["word", "viseme"]

_IGNORED_FIELDS = {"model", "prompt", "temperature", "include[]", "chunking_strategy"}

_GRANULARITIES = "timestamp_granularities[]"
"""`word`, `segment` or both, as fields of the same name. Segments are there in any case."""


class Transcriptions:
    """Transcribes recordings, one at a time: live conversations need the recognizer too.

    Args:
        context: its speech models transcribe, and its admission knows how much of its day a key has left.
        limit: counts the recordings from before their first byte is read.
    """

    def __init__(self, context: ServerContext, decoder: RecordingDecoder, limit: RequestLimit) -> None:
        self._context, self._speech_models, self._admission = context, context.speech_models, context.admission
        self._decoder, self._limit, self._turn = decoder, limit, asyncio.Lock()

    async def handle(self, request: Request) -> Response:
        """One request. Raises APIError, Refused, ClientDisconnect."""
        with ExitStack() as held:
            held.enter_context(self._limit.slot())
            data, fields = await _read_upload(request)
            response_format, language = _check_fields(fields, self._speech_models.recognizer.languages)
            transcribing = self._transcribing(data, language, request.state.key)
            if fields.get("stream") == "true":
                events = _transcript_events(transcribing, held.pop_all())
                return await event_stream(request, events)

            async def transcript() -> Response:
                async with transcribing as (audio, segments):
                    found = [segment async for segment in segments]
                    timed = await self._words(audio, found, language) if _wants_words(fields) else None
                clean = await self._clean(found) if fields.get("clean") == "true" else None
                return _transcript(found, response_format, language, len(audio) / RECOGNITION_RATE, clean, timed)

            return await unless_disconnected(request, transcript())

    @asynccontextmanager
    async def _transcribing(
        self, data: bytes, language: str, key: ApiKey | None
    ) -> AsyncIterator[tuple[PCM16, AsyncIterator[Segment]]]:
        """A recording, and its segments."""
        models = self._speech_models
        async with self._turn:
            audio = await self._decode(data, key)
            seconds = len(audio) / RECOGNITION_RATE
            if meter := current_meter.get():
                meter.add(Usage(seconds=seconds, audio_in_s=seconds))
            recognizer = models.recognizer.for_language(language)
            found = transcribe_recording(recognizer, audio, models.recognition_executor)
            async with aclosing(found) as segments:  # type: ignore[type-var]
                yield audio, segments

    async def _words(self, audio: PCM16, segments: list[Segment], language: str) -> list[Word]:
        """The words of the segments, with times from the start of the recording."""
        models, found = self._speech_models, list[Word]()
        recognizer, loop = models.recognizer.for_language(language), asyncio.get_running_loop()
        for segment in segments:
            start, end = (round(seconds * RECOGNITION_RATE) for seconds in (segment.start_s, segment.end_s))
            if start < end:
                part = from_pcm16(audio[start:end].tobytes())
                words = await loop.run_in_executor(models.recognition_executor, recognizer.words, part, segment.text)
                found += [word.shifted(segment.start_s) for word in words]
        return found

    async def _clean(self, segments: list[Segment]) -> CleanText:
        self._context.dictation.prepare()
        return await self._context.dictation.clean(_text(segments))

    async def _decode(self, data: bytes, key: ApiKey | None) -> PCM16:
        left_s = self._admission.seconds_left(key)
        try:
            return await self._decoder.decode(data, min(left_s, MAX_RECORDING_S))
        except RecordingTooLong:
            if key is not None and left_s < MAX_RECORDING_S:
                message = f"the recording is longer than the {left_s / 60:.1f} minutes that {key.name!r} has left today"
                raise self._admission.quota_refusal(f"{message} (UTC)") from None
            message = f"the recording is longer than {MAX_RECORDING_S / 60:.0f} minutes"
            raise APIError(400, message, "file", "recording_too_long") from None


async def _read_upload(request: Request) -> tuple[bytes, dict[str, str]]:
    """The recording and the fields. Raises APIError, and HTTPException if the form cannot be read."""
    with limited(request, UPLOAD) as counted:
        async with counted.form(max_files=1, max_fields=16, max_part_size=_MAX_FIELD_BYTES) as form:
            fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
            if _GRANULARITIES in fields:
                fields[_GRANULARITIES] = " ".join(map(str, form.getlist(_GRANULARITIES)))
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise APIError(400, "send the recording as the form field 'file'", "file")
            return await file.read(), fields


def _check_fields(fields: dict[str, str], languages: Sequence[str]) -> tuple[str, str]:
    """The response format and the language. Raises APIError if a field asks for something else than there is."""
    unknown = fields.keys() - _IGNORED_FIELDS - {"language", "response_format", "stream", "clean", _GRANULARITIES}
    unknown = {name for name in unknown if not name.startswith("chunking_strategy[")}
    if unknown:
        name = min(unknown)
        raise APIError(400, f"there is no parameter {name!r}", name, "unknown_parameter")
    language = fields.get("language") or "en"
    if language not in languages:
        raise APIError(
            400,
            f"this recognizer does not know the language {language!r}: use one of {', '.join(languages)}",
            "language",
        )
    response_format = fields.get("response_format", "json")
    if response_format not in _TRANSCRIPT_FORMATS:
        raise APIError(400, f"response_format must be one of {', '.join(_TRANSCRIPT_FORMATS)}", "response_format")
    if set(fields.get(_GRANULARITIES, "").split()) - {"word", "segment"}:
        raise APIError(400, "timestamp_granularities are word and segment", _GRANULARITIES)
    if _wants_words(fields) and (response_format != "verbose_json" or fields.get("stream") == "true"):
        message = "for the times of words, ask for response_format verbose_json, without stream"
        raise APIError(400, message, _GRANULARITIES)
    if fields.get("clean", "false") not in ("true", "false"):
        raise APIError(400, "clean must be true or false", "clean")
    if fields.get("clean") == "true":
        if response_format not in _CLEAN_FORMATS or fields.get("stream") == "true":
            formats = " or ".join(_CLEAN_FORMATS)
            raise APIError(400, f"with clean, ask for response_format {formats}, without stream", "clean")
        if language != "en":
            raise APIError(400, f"only English can be cleaned up, not {language!r}", "clean")
    return response_format, language


def _wants_words(fields: dict[str, str]) -> bool:
    return "word" in fields.get(_GRANULARITIES, "").split()


def _text(segments: list[Segment]) -> str:
    return " ".join(segment.text for segment in segments)


def _transcript(
    segments: list[Segment],
    response_format: str,
    language: str,
    seconds: float,
    clean: CleanText | None,
    timed: list[Word] | None,
) -> Response:
    text = _text(segments) if clean is None else clean.text
    if response_format == "text":
        return PlainTextResponse(text + "\n")
    if response_format == "srt":
        return PlainTextResponse("\n".join(f"{n}\n{_cue(segment, ',')}" for n, segment in enumerate(segments, 1)))
    if response_format == "vtt":
        return PlainTextResponse("\n".join(("WEBVTT\n", *(_cue(segment, ".") for segment in segments))))
    usage = {"type": "duration", "seconds": max(1, round(seconds))}
    raw = {} if clean is None else {"raw": clean.raw, "objection": clean.objection or None}
    if response_format == "json":
        return JSONResponse({"text": text, **raw, "usage": usage})
    details = [
        {"id": n, "start": segment.start_s, "end": segment.end_s, "text": segment.text}
        for n, segment in enumerate(segments)
    ]
    words = [{"word": word.text, "start": round(word.start_s, 2), "end": round(word.end_s, 2)} for word in timed or ()]
    return JSONResponse(
        {"task": "transcribe", "language": language, "duration": seconds, "text": text, **raw, "segments": details,
         **({} if timed is None else {"words": words}), "usage": usage}
    )  # fmt: skip


def _cue(segment: Segment, decimal: str) -> str:
    """A segment as a subtitle: SubRip and WebVTT differ in the decimal sign."""
    return f"{_time(segment.start_s, decimal)} --> {_time(segment.end_s, decimal)}\n{segment.text}\n"


def _time(seconds: float, decimal: str) -> str:
    milliseconds = round(seconds * 1000)
    hours, milliseconds = divmod(milliseconds, 3_600_000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    return f"{hours:02}:{minutes:02}:{milliseconds // 1000:02}{decimal}{milliseconds % 1000:03}"


async def _transcript_events(
    transcribing: AbstractAsyncContextManager[tuple[PCM16, AsyncIterator[Segment]]], held: ExitStack
) -> AsyncIterator[str]:
    """The segments as they come. `held` is closed at the end."""
    text = ""
    with held:
        async with transcribing as (_, segments):
            async for segment in segments:
                delta = segment.text if not text else f" {segment.text}"
                text += delta
                yield event({"type": "transcript.text.delta", "delta": delta})
    yield event({"type": "transcript.text.done", "text": text})
    yield DONE


class SpeechRequest(StrictModel):
    """The body of `/v1/audio/speech`."""

    input: str = Field(min_length=1, max_length=MAX_SPEECH_CHARACTERS)
    model: str | None = None
    voice: str | VoiceID = DEFAULT_VOICE
    response_format: SpeechFormat = "mp3"
    speed: float = Field(1.0, ge=0.25, le=4)
    stream_format: Literal["audio", "sse"] = "audio"
    instructions: str | None = None
    timestamps: Timestamps | Annotated[list[Timestamps], Field(max_length=2)] | None = None

    @property
    def timed(self) -> frozenset[str]:
        """What times are asked for."""
        return frozenset([self.timestamps] if isinstance(self.timestamps, str) else self.timestamps or ())


class Speech:
    """Synthesizes text clause by clause, and streams it as it is ready."""

    def __init__(self, speech_models: SpeechModels) -> None:
        self._speech_models = speech_models

    async def handle(self, request: Request) -> Response:
        """One request. Raises APIError, ClientDisconnect."""
        body = await read_json(request, SpeechRequest)
        try:
            voice = self._speech_models.voices.find(body.voice if isinstance(body.voice, str) else body.voice.id)
        except UnknownVoice as error:
            raise APIError(400, str(error), "voice") from None
        if body.stream_format == "sse":
            return await event_stream(request, self._events(body, voice))
        if body.timed:
            return StreamingResponse(self._captioned(body, voice), media_type="application/json")
        audio = (data async for _, data in self._encoded(body, voice) if data)
        return StreamingResponse(audio, media_type=SPEECH_FORMATS[body.response_format].media_type)

    async def _encoded(self, body: SpeechRequest, voice: Voice) -> AsyncIterator[tuple[SpeechTimes, bytes]]:
        """The audio, in parts, and the times of its words and visemes, from the start of all of it."""
        encoder, start_ms = SpeechEncoder(body.response_format), 0.0
        async for speech in self._speech_models.speech(body.input, voice, body.speed):
            yield speech.times.later(start_ms), encoder.push(speech.audio)
            start_ms += speech.ms
        yield SpeechTimes(), encoder.finish()

    async def _captioned(self, body: SpeechRequest, voice: Voice) -> AsyncIterator[str]:
        """A JSON object of the audio and its times, since plain audio has no room for them. It is sent as it is ready,
        like plain audio: it may be long."""
        rest, timed = b"", dict[str, list[dict[str, Any]]]()
        yield f'{{"audio_format": "{body.response_format}", "audio": "'
        async for times, data in self._encoded(body, voice):
            data = rest + data
            whole = len(data) // 3 * 3  # base64 of parts can be joined if each has whole groups
            yield base64.b64encode(data[:whole]).decode()
            rest = data[whole:]
            for name, part in _times(times, body.timed).items():
                timed.setdefault(name, []).extend(part)
        fields = "".join(f', "{name}": {json.dumps(parts)}' for name, parts in timed.items())
        yield f'{base64.b64encode(rest).decode()}"{fields}}}'

    async def _events(self, body: SpeechRequest, voice: Voice) -> AsyncIterator[str]:
        async for times, data in self._encoded(body, voice):
            for name, part in _times(times, body.timed).items():
                if part:
                    yield event({"type": f"rejoinder.{name}", name: part})
            if data:
                yield event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})
        yield event({"type": "speech.audio.done"})
        yield DONE


def _times(times: SpeechTimes, timed: frozenset[str]) -> dict[str, list[dict[str, Any]]]:
    """The times that were asked for."""
    parts = {"words": word_times(times)} if "word" in timed else {}
    return {**parts, "visemes": viseme_times(times)} if "viseme" in timed else parts
