"""Recordings and speech over HTTP, with fake speech models: what the formats carry is real."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import httpx
import numpy as np
import openai
import pytest
from openai import OpenAI

from server.chat_completions.audio_files import SPEECH_FORMATS, SpeechFormat
from server.chat_completions.decoder import RecordingDecoder
from tests.fakes import FakeLanguageModel, FakeVoice
from tests.real_time import HANG_S
from tests.server.live_server import serving
from voice.audio.codec import OUTPUT_RATE, from_pcm16, to_pcm16
from voice.clauses import Clause

TEXT = "Hello there, this is a sentence. Here is another one."


def wav_bytes(seconds: float, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        noise = np.random.default_rng(0).choice((-0.5, 0.5), int(seconds * rate)).astype(np.float32)
        writer.writeframes(to_pcm16(noise))
    return file.getvalue()


@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_a_recording_is_transcribed(client: OpenAI, rate: int) -> None:
    result = client.audio.transcriptions.create(file=("a.wav", wav_bytes(1.0, rate)), model="whisper-1")
    assert result.text == "What is the capital of France?"


def test_a_long_recording_is_transcribed_to_its_end(client: OpenAI) -> None:
    result = client.audio.transcriptions.create(
        file=("a.wav", wav_bytes(60)), model="whisper-1", response_format="verbose_json", language="de"
    )
    assert (result.duration, result.language) == (60, "de")
    assert result.segments is not None
    assert [(round(s.start), round(s.end)) for s in result.segments] == [(0, 28), (28, 56), (56, 60)]


def test_the_times_of_words_are_from_the_start_of_the_recording(client: OpenAI) -> None:
    result = client.audio.transcriptions.create(
        file=("a.wav", wav_bytes(30)), model="whisper-1", response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )  # fmt: skip
    assert result.segments is not None and result.words is not None
    text = " ".join(segment.text for segment in result.segments)
    assert " ".join(word.word for word in result.words) == text
    assert [(word.start, word.end) for word in result.words] == [
        (start + n, start + n + 1) for start in (0, 28) for n in range(6)
    ]


def test_subtitles_and_streams(client: OpenAI) -> None:
    data = wav_bytes(2.5)
    srt = client.audio.transcriptions.create(file=("a.wav", data), model="whisper-1", response_format="srt")
    assert srt == "1\n00:00:00,000 --> 00:00:02,500\nWhat is the capital of France?\n"  # type: ignore[comparison-overlap]
    vtt = client.audio.transcriptions.create(file=("a.wav", data), model="whisper-1", response_format="vtt")
    assert str(vtt).startswith("WEBVTT\n\n00:00:00.000 --> 00:00:02.500\nWhat")
    events = list(client.audio.transcriptions.create(file=("a.wav", data), model="whisper-1", stream=True))
    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]


@pytest.mark.parametrize("response_format", ["json", "verbose_json"])
def test_a_dictation_is_cleaned_up_beside_its_raw_words(response_format: Literal["json", "verbose_json"]) -> None:
    raw = "What is the capital of France?"
    for words, text, why in (
        (["What is the", " capital?"], "What is the capital?", None),
        (["The capital is Paris."], raw, "'paris' was not said"),
    ):
        with serving(new_language_model=partial(FakeLanguageModel, words)) as address:
            client = OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0, timeout=HANG_S)
            result: Any = client.audio.transcriptions.create(
                file=("a.wav", wav_bytes(1.0)), model="whisper-1", response_format=response_format,
                extra_body={"clean": "true"},
            )  # fmt: skip
        assert (result.text, result.raw, result.objection) == (text, raw, why)


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (b"no audio at all", {}, "cannot be read"),
        (b"", {}, "cannot be read|contains no audio"),
        (wav_bytes(0.5), {"language": "fr"}, "'fr'"),
        (wav_bytes(0.5), {"response_format": "diarized_json"}, "must be one of"),
        (wav_bytes(0.5), {"timestamp_granularities": ["word"]}, "ask for response_format verbose_json"),
        (wav_bytes(0.5), {"timestamp_granularities": ["phoneme"]}, "are word and segment"),
        (wav_bytes(0.5), {"extra_body": {"clean": "yes"}}, "clean must be true or false"),
        (wav_bytes(0.5), {"extra_body": {"clean": "true"}, "response_format": "srt"}, "with clean, ask for"),
        (wav_bytes(0.5), {"extra_body": {"clean": "true"}, "language": "de"}, "only English"),
    ],
)
def test_a_bad_recording_gets_a_sentence(client: OpenAI, data: bytes, options: dict[str, Any], words: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.audio.transcriptions.create(file=("a.wav", data), model="whisper-1", **options)  # type: ignore[call-overload]
    assert any(word in str(error.value) for word in words.split("|"))


@pytest.mark.parametrize("name", list(SPEECH_FORMATS))
def test_speech_in_every_format_lasts_as_long_as_what_was_synthesized(client: OpenAI, name: SpeechFormat) -> None:
    response = client.audio.speech.create(input=TEXT, model="tts-1", voice="alloy", response_format=name)
    data = response.read()
    assert response.response.headers["content-type"] == SPEECH_FORMATS[name].media_type
    if name == "pcm":
        samples = from_pcm16(data)
    else:
        samples = from_pcm16(asyncio.run(RecordingDecoder(OUTPUT_RATE).decode(data, 60.0)).tobytes())
    expected = len(FakeVoice().synthesize(Clause(TEXT, True)))
    assert abs(len(samples) - expected) < 0.12 * OUTPUT_RATE  # codecs pad their last frame
    assert np.abs(samples).max() > 0.2


def test_speech_as_events(client: OpenAI) -> None:
    with client.audio.speech.with_streaming_response.create(
        input=TEXT, model="tts-1", voice="fake", response_format="pcm", stream_format="sse"
    ) as response:
        lines = [line for line in response.iter_lines() if line.startswith("data: {")]
    assert len(lines) >= 3 and "speech.audio.done" in lines[-1]


def test_an_unknown_voice_gets_a_sentence(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="this server has fake, other"):
        client.audio.speech.create(input="Hi", model="tts-1", voice="nobody")


def test_speech_with_the_times_of_its_words_and_visemes(address: str, client: OpenAI) -> None:
    options = {"input": TEXT, "response_format": "pcm", "timestamps": ["word", "viseme"]}
    captioned = httpx.post(f"http://{address}/v1/audio/speech", json=options, timeout=HANG_S).json()
    plain = client.audio.speech.create(input=TEXT, model="tts-1", voice="alloy", response_format="pcm").read()
    audio = base64.b64decode(captioned["audio"])
    assert captioned["audio_format"] == "pcm" and audio == plain
    assert " ".join(word["word"] for word in captioned["words"]) == TEXT
    for times in (captioned["words"], captioned["visemes"]):
        assert times[-1]["end_ms"] == pytest.approx(len(audio) / 48, abs=2)
        assert all(one["end_ms"] == pytest.approx(other["start_ms"], abs=2) for one, other in pairwise(times))


def test_speech_events_bring_the_times_before_the_audio_of_their_clause(address: str) -> None:
    options = {"input": TEXT, "response_format": "pcm", "stream_format": "sse", "timestamps": "word"}
    with httpx.stream("POST", f"http://{address}/v1/audio/speech", json=options, timeout=HANG_S) as response:
        events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    assert {event["type"] for event in events} == {"rejoinder.words", "speech.audio.delta", "speech.audio.done"}
    words = [word for event in events if event["type"] == "rejoinder.words" for word in event["words"]]
    assert " ".join(word["word"] for word in words) == TEXT and events[0]["type"] == "rejoinder.words"


def test_unknown_timestamps_get_a_sentence(address: str) -> None:
    options = {"input": TEXT, "timestamps": "phoneme"}
    answer = httpx.post(f"http://{address}/v1/audio/speech", json=options, timeout=HANG_S)
    assert answer.status_code == 400 and "'word' or 'viseme'" in answer.json()["error"]["message"]
