"""The OpenAI client and the command line against the real models."""

from __future__ import annotations

import asyncio
import base64
import json
import wave
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter
from typer.testing import CliRunner, Result

from cli.main import app
from tests.e2e.conftest import synthesize, transcribe, write_recording
from tests.real_time import HANG_S, retried_under_load
from voice.asr import Recognizer
from voice.audio.codec import OUTPUT_RATE, Samples, from_pcm16, to_pcm16
from voice.tts import Voice

STRICT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


async def speak(connection: Any, audio: Samples) -> None:
    """Send audio in real time, as a microphone does."""
    block = OUTPUT_RATE // 50
    for start in range(0, len(audio), block):
        encoded = base64.b64encode(to_pcm16(audio[start : start + block])).decode()
        await connection.input_audio_buffer.append(audio=encoded)
        await asyncio.sleep(0.02)


@retried_under_load(attempts=3)
async def test_the_openai_client_holds_a_spoken_conversation(server: str, voice: Voice, recognizer: Recognizer) -> None:
    client = AsyncOpenAI(api_key="none", websocket_base_url=server.replace("http", "ws") + "/v1")
    questions = [("What is the capital of France?", "Paris"), ("And what is the capital of Germany?", "Berlin")]
    async with client.realtime.connect(model="rejoinder") as connection:
        await connection.session.update(
            session={"type": "realtime", "audio": {"input": {"turn_detection": {"type": "server_vad"}}}}
        )
        for question, word in questions:
            speaking = asyncio.create_task(speak(connection, synthesize(voice, question, before=0.3, after=2.0)))
            audio, response, transcript = b"", "", ""
            async with asyncio.timeout(2 * HANG_S):
                async for event in connection:
                    STRICT.validate_python(event.model_dump())
                    if event.type == "conversation.item.input_audio_transcription.completed":
                        transcript = event.transcript
                    elif event.type == "response.output_audio.delta":
                        audio += base64.b64decode(event.delta)
                    elif event.type == "response.output_audio_transcript.done":
                        response = event.transcript
                    elif event.type == "error":
                        raise AssertionError(event.error.message)
                    elif event.type == "response.done":
                        break
            await speaking
            assert question.split()[-1].strip("?") in transcript
            assert word in response
            assert word in transcribe(recognizer, from_pcm16(audio), OUTPUT_RATE)
            assert event.response.status == "completed"
            assert event.response.usage.output_tokens > 3
        assert (
            event.response.usage.input_token_details.cached_tokens > 60
        )  # the instructions and the first turn were cached


WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city now",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@retried_under_load(attempts=3)
async def test_a_spoken_question_calls_a_function_and_its_result_is_spoken(
    server: str, voice: Voice, recognizer: Recognizer
) -> None:
    client = AsyncOpenAI(api_key="none", websocket_base_url=server.replace("http", "ws") + "/v1")
    async with client.realtime.connect(model="rejoinder") as connection:
        await connection.session.update(session={"type": "realtime", "tools": [WEATHER], "tool_choice": "required"})
        question = synthesize(voice, "What is the weather like in London?", before=0.3, after=2.0)
        speaking = asyncio.create_task(speak(connection, question))
        audio, arguments = b"", ""
        async with asyncio.timeout(2 * HANG_S):
            async for event in connection:
                STRICT.validate_python(event.model_dump())
                if event.type == "response.function_call_arguments.done":
                    arguments = event.arguments
                    output = {"type": "function_call_output", "call_id": event.call_id, "output": "Eleven degrees."}
                    await connection.conversation.item.create(item=output)
                elif event.type == "response.output_audio.delta":
                    audio += base64.b64decode(event.delta)
                elif event.type == "error":
                    raise AssertionError(event.error.message)
                elif event.type == "response.done" and audio:
                    break
                elif event.type == "response.done":
                    await connection.response.create()
        await speaking
    assert "london" in json.loads(arguments)["city"].lower()
    spoken = transcribe(recognizer, from_pcm16(audio), OUTPUT_RATE).lower()
    assert "eleven" in spoken or "11" in spoken


def rejoinder(*arguments: str) -> Result:
    """Run the command in this process, which has imported everything already."""
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, list(arguments))


def test_ask_answers_a_spoken_question_aloud(tmp_path: Path, voice: Voice, recognizer: Recognizer) -> None:
    question, response = tmp_path / "question.wav", tmp_path / "response.wav"
    write_recording(question, synthesize(voice, "What is the capital of France?", before=0.3, after=0.5))
    done = rejoinder("ask", "--wav", str(question), "--out", str(response), "--model", "qwen2.5-coder-0.5b")
    assert done.exit_code == 0, done.stderr
    assert "capital of France" in done.stdout and "Paris" in done.stdout
    with wave.open(str(response)) as file:
        assert file.getframerate() == OUTPUT_RATE
        audio = from_pcm16(file.readframes(file.getnframes()))
    assert "Paris" in transcribe(recognizer, audio, OUTPUT_RATE)


def test_a_damaged_model_is_reported(tmp_path: Path, language_model: Path) -> None:
    broken = tmp_path / "broken.gguf"
    with language_model.open("rb") as whole:
        broken.write_bytes(whole.read(8 << 20))
    done = rejoinder("ask", "hello", "--model", str(broken))
    assert done.exit_code == 1
    assert "cut short" in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
