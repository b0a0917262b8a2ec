"""LangChain's `ChatOpenAI`: chat, a stream, a function, structured output, and the Responses API.

python langchain_client.py http://HOST:PORT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from langchain_openai import ChatOpenAI

sys.path.insert(0, str(Path(__file__).parent))
from client_requests import ASK_WEATHER, EXTRACT, PERSON, QUESTION, WEATHER  # type: ignore[import-not-found]


def main() -> None:
    server: Any = {"base_url": f"{sys.argv[1]}/v1", "api_key": "none", "timeout": 120, "max_retries": 0}
    model = ChatOpenAI(model="rejoinder", max_tokens=40, **server)
    chat = model.bind(logprobs=True, top_logprobs=2).invoke(QUESTION)
    weather = {"type": "function", "function": WEATHER}
    chunks = list(model.bind_tools([weather], tool_choice="any").stream(ASK_WEATHER))
    streamed_call = sum(chunks[1:], chunks[0])
    report = {
        "chat": chat.text,
        "scored": "".join(entry["token"] for entry in chat.response_metadata["logprobs"]["content"]),
        "streamed": "".join(chunk.text for chunk in model.stream(QUESTION)),
        "call": model.bind_tools([weather], tool_choice="any").invoke(ASK_WEATHER).tool_calls[0]["args"],
        "streamed_call": streamed_call.tool_calls[0]["args"],
        "extracted": model.with_structured_output({"title": "person", **PERSON}, method="json_schema").invoke(EXTRACT),
        "response": ChatOpenAI(model="rejoinder", max_tokens=40, use_responses_api=True, **server)
        .invoke(QUESTION)
        .text,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
