"""The official Python client: chat, responses, models and audio.

python openai_client.py http://HOST:PORT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from openai import OpenAI

sys.path.insert(0, str(Path(__file__).parent))
from client_requests import (  # type: ignore[import-not-found]
    ASK_WEATHER,
    EXTRACT,
    PERSON,
    QUESTION,
    SENTENCE,
    WEATHER,
)


def main() -> None:
    client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", timeout=120, max_retries=0)
    (model,) = client.models.list()
    chat = client.chat.completions.create(
        model=model.id, messages=QUESTION, max_tokens=40, logprobs=True, top_logprobs=2
    )
    chunks = client.chat.completions.create(model=model.id, messages=QUESTION, max_tokens=40, stream=True)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    called = client.chat.completions.create(
        model=model.id,
        messages=ASK_WEATHER,
        tools=[{"type": "function", "function": WEATHER}],
        tool_choice="required",
    )
    schema: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    extracted = client.chat.completions.create(
        model=model.id,
        messages=EXTRACT,
        response_format=schema,
    )
    response = client.responses.create(model=model.id, input=QUESTION[0]["content"], max_output_tokens=40)
    speech = client.audio.speech.create(model="tts-1", voice="alloy", input=SENTENCE, response_format="mp3").read()
    transcript = client.audio.transcriptions.create(model="whisper-1", file=("speech.mp3", speech)).text
    (call,) = called.choices[0].message.tool_calls or ()
    logprobs = chat.choices[0].logprobs
    report = {
        "models": [model.id],
        "scored": "".join(entry.token for entry in (logprobs and logprobs.content) or ()),
        "chat": chat.choices[0].message.content,
        "streamed": streamed,
        "call": json.loads(call.function.arguments),
        "extracted": json.loads(extracted.choices[0].message.content or ""),
        "response": response.output_text,
        "transcript": transcript,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
