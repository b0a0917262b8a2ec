"""LiteLLM: chat, responses, models and audio.

python litellm_client.py http://HOST:PORT
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import litellm

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
    server = {"api_base": f"{sys.argv[1]}/v1", "api_key": "none", "timeout": 120}
    model = "openai/rejoinder"
    models = litellm.get_valid_models(
        check_provider_endpoint=True, custom_llm_provider="openai", api_key="none", api_base=server["api_base"]
    )
    chat = litellm.completion(model=model, messages=QUESTION, max_tokens=40, logprobs=True, top_logprobs=2, **server)
    chunks = litellm.completion(model=model, messages=QUESTION, max_tokens=40, stream=True, **server)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    called = litellm.completion(
        model=model,
        messages=ASK_WEATHER,
        tools=[{"type": "function", "function": WEATHER}],
        tool_choice="required",
        **server,
    )
    extracted = litellm.completion(
        model=model,
        messages=EXTRACT,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}},
        **server,
    )
    response = litellm.responses(model=model, input=QUESTION[0]["content"], max_output_tokens=40, **server)
    with tempfile.TemporaryDirectory() as folder:
        speech = Path(folder) / "speech.mp3"
        litellm.speech(model="openai/tts-1", voice="alloy", input=SENTENCE, **server).stream_to_file(speech)
        with speech.open("rb") as file:
            transcript = litellm.transcription(model="openai/whisper-1", file=file, **server).text
    (call,) = called.choices[0].message.tool_calls
    report = {
        "models": models,
        "scored": "".join(entry.token for entry in chat.choices[0].logprobs.content),
        "chat": chat.choices[0].message.content,
        "streamed": streamed,
        "call": json.loads(call.function.arguments),
        "extracted": json.loads(extracted.choices[0].message.content),
        "response": response.output[0].content[0].text,
        "transcript": transcript,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
