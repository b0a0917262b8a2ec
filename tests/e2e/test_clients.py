"""Other people's software, and the command line, against the real models."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from tests.e2e.conftest import record, say, transcribe
from voice.asr import Recognizer
from voice.audio import SPEAKING_RATE, Samples, from_pcm16, to_pcm16
from voice.tts import Voice

STRICT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


async def speak(connection: Any, sound: Samples) -> None:
    """Send sound as a microphone would, in real time."""
    block = SPEAKING_RATE // 50
    for start in range(0, len(sound), block):
        audio = base64.b64encode(to_pcm16(sound[start : start + block])).decode()
        await connection.input_audio_buffer.append(audio=audio)
        await asyncio.sleep(0.02)


async def test_the_openai_client_holds_a_spoken_conversation(server: str, voice: Voice, recognizer: Recognizer) -> None:
    client = AsyncOpenAI(api_key="none", websocket_base_url=server.replace("http", "ws") + "/v1")
    questions = [("What is the capital of France?", "Paris"), ("And what is the capital of Germany?", "Berlin")]
    async with client.realtime.connect(model="rejoinder") as connection:
        await connection.session.update(
            session={"type": "realtime", "audio": {"input": {"turn_detection": {"type": "server_vad"}}}}
        )
        for question, word in questions:
            asking = asyncio.create_task(speak(connection, say(voice, question, before=0.3, after=2.0)))
            sound, said, heard = b"", "", ""
            async with asyncio.timeout(60):
                async for event in connection:
                    STRICT.validate_python(event.model_dump())
                    if event.type == "conversation.item.input_audio_transcription.completed":
                        heard = event.transcript
                    elif event.type == "response.output_audio.delta":
                        sound += base64.b64decode(event.delta)
                    elif event.type == "response.output_audio_transcript.done":
                        said = event.transcript
                    elif event.type == "error":
                        raise AssertionError(event.error.message)
                    elif event.type == "response.done":
                        break
            await asking
            assert question.split()[-1].strip("?") in heard
            assert word in said
            assert word in transcribe(recognizer, from_pcm16(sound), SPEAKING_RATE)
            assert event.response.status == "completed"
            assert event.response.usage.output_tokens > 3
        assert event.response.usage.input_token_details.cached_tokens > 60  # persona and first turn were kept


def rejoinder(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "server.cli", *arguments], capture_output=True, text=True, timeout=280)


def test_ask_answers_a_written_question() -> None:
    done = rejoinder("ask", "What is the capital of France?", "--json")
    assert done.returncode == 0, done.stderr
    assert "Paris" in json.loads(done.stdout)["answer"]


def test_ask_answers_a_spoken_question_aloud(tmp_path: Path, voice: Voice, recognizer: Recognizer) -> None:
    question, reply = tmp_path / "question.wav", tmp_path / "reply.wav"
    record(question, say(voice, "What is the capital of France?", before=0.3, after=0.5))
    done = rejoinder("ask", "--wav", str(question), "--out", str(reply))
    assert done.returncode == 0, done.stderr
    assert "capital of France" in done.stdout and "Paris" in done.stdout
    with wave.open(str(reply)) as file:
        assert file.getframerate() == SPEAKING_RATE
        sound = from_pcm16(file.readframes(file.getnframes()))
    assert "Paris" in transcribe(recognizer, sound, SPEAKING_RATE)


def test_ask_says_when_a_recording_holds_no_speech(tmp_path: Path) -> None:
    question = tmp_path / "silence.wav"
    record(question, np.zeros(2 * SPEAKING_RATE, np.float32))
    done = rejoinder("ask", "--wav", str(question))
    assert done.returncode == 1
    assert "no speech was found in" in done.stderr and "Traceback" not in done.stderr


def test_a_damaged_model_is_said_to_be_damaged(tmp_path: Path, language_model: Path) -> None:
    broken = tmp_path / "broken.gguf"
    with language_model.open("rb") as whole:
        broken.write_bytes(whole.read(8 << 20))
    done = rejoinder("ask", "hello", "--model", str(broken))
    assert done.returncode == 1
    assert "cut short" in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
