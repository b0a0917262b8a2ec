"""Cohere's client: rankings in both versions of its API, by the embedding model and by the language model.

python cohere_client.py http://HOST:PORT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import cohere

sys.path.insert(0, str(Path(__file__).parent))
from client_requests import PASSAGES, SEARCH  # type: ignore[import-not-found]


def main() -> None:
    server: Any = {"base_url": sys.argv[1], "api_key": "none", "timeout": 120}
    first, second = cohere.Client(**server), cohere.ClientV2(**server)
    with urlopen(f"{sys.argv[1]}/v1/models") as response:
        language_model = json.load(response)["data"][0]["id"]
    ranked = second.rerank(model="all-minilm-l6-v2", query=SEARCH, documents=PASSAGES, top_n=2, max_tokens_per_doc=512)
    objects = [{"text": text} for text in PASSAGES]
    again = first.rerank(model="all-minilm-l6-v2", query=SEARCH, documents=objects, return_documents=True)
    scored = second.rerank(model=language_model, query=SEARCH, documents=PASSAGES)
    report = {
        "ranked": [result.index for result in ranked.results],
        "ranked_texts": [result.document.text for result in again.results],
        "probabilities": [result.relevance_score for result in scored.results],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
