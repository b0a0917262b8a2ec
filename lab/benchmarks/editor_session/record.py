"""Records the requests that llama.vscode sends while somebody types `session.toml`: its own completion code runs in
Node.js, with its default settings and as much of an editor as it needs (`vscode.ts`), and asks a real server.

    python -m lab.benchmarks.editor_session.record FOLDER [--model qwen2.5-coder-1.5b]

FOLDER is a clone of https://github.com/ggml-org/llama.vscode. Needs Node.js and npm's registry.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import lzma
import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.benchmarks.editor_session.recording import RECORDING
from lab.report.own_server import own_server
from model.hub.catalog import QWEN_15B

_HERE = Path(__file__).parent
SESSION = _HERE / "session.toml"
_PACKAGES = ("esbuild@0.28.2", "axios@1.16.0", "openai@4.104.0", "picomatch@4.0.4")


def bundle(plug_in: Path, folder: Path) -> Path:
    """The plug-in's completion code with the typist, as one file in a folder. Raises OSError, CalledProcessError."""
    shutil.copytree(plug_in / "src", folder / "src")
    for name in ("typist.ts", "vscode.ts"):
        shutil.copy(_HERE / name, folder)
    subprocess.run(["npm", "install", "--no-save", "--silent", *_PACKAGES], cwd=folder, check=True)
    options = [
        "--bundle",
        "--platform=node",
        "--alias:vscode=./vscode.ts",
        "--outfile=typist.cjs",
        "--log-level=warning",
    ]
    subprocess.run(["npx", "esbuild", "typist.ts", *options], cwd=folder, check=True)
    return folder / "typist.cjs"


async def record(plug_in: Path, model: str) -> list[str]:
    """The requests, a JSON line each."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        program, session = bundle(plug_in, folder), folder / "session.json"
        session.write_text(json.dumps(tomllib.loads(SESSION.read_text(encoding="utf-8"))))
        async with own_server(["--model", model]) as address:
            endpoint = address.replace("ws://", "http://").removesuffix("/v1/realtime")
            environment = {**os.environ, "PLUG_IN": str(plug_in), "ENDPOINT": endpoint}
            node = await asyncio.create_subprocess_exec(
                "node", program, session, stdout=asyncio.subprocess.PIPE, env=environment
            )
            output, _ = await node.communicate()
    if node.returncode:
        raise SystemExit(f"node ended with status {node.returncode}")
    return output.decode().splitlines()


def main() -> None:
    """Record, and replace the recording."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plug_in", type=Path)
    parser.add_argument("--model", default=QWEN_15B.name)
    options = parser.parse_args()
    requests = asyncio.run(record(options.plug_in.resolve(), options.model))
    with lzma.open(RECORDING, "wt", preset=9, encoding="utf-8") as file:
        file.write("".join(f"{request}\n" for request in requests))
    print(f"{len(requests)} requests in {RECORDING}")


if __name__ == "__main__":
    main()
