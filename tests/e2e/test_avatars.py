"""The lines of the guide that move the lips of an avatar, in Chromium: TalkingHead and three-vrm themselves, from npm,
with a model that has a triangle for a face, and a server with a fake voice."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page, async_playwright

from lab.benchmarks.client_environments import install_npm_packages
from tests.e2e.conftest import skip_or_fail
from tests.e2e.test_page import FLAGS
from tests.fakes import LoudnessDetector
from tests.real_time import HANG_S
from tests.server.live_server import serving
from voice import session

pytestmark = pytest.mark.real_time

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "avatars.md"
TALKING_HEAD, VRM = re.findall(r"^```js\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)

PACKAGES = ("@met4citizen/talkinghead@1.7.0", "@pixiv/three-vrm@3.5.5", "three@0.180.0")
IMPORTS = {  # under the address of the packages
    "three": "three/build/three.module.js",
    "three/addons/": "three/examples/jsm/",
    "talkinghead": "@met4citizen/talkinghead/modules/talkinghead.mjs",
    "@pixiv/three-vrm": "@pixiv/three-vrm/lib/three-vrm.module.js",
}
SOFTWARE_WEBGL = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]

VISEMES = "sil PP FF TH DD kk CH SS nn RR aa E I O U".split()
SIDES = "eyeBlink eyeLookIn eyeLookOut eyeLookUp eyeLookDown browDown browOuterUp mouthSmile mouthDimple mouthPress"
SHAPES = [f"viseme_{name}" for name in VISEMES] + [
    f"{name}{side}" for name in SIDES.split() for side in ("Left", "Right")
]
EYES = ["LeftEye", "RightEye"]

HEAD = """
import { TalkingHead } from "talkinghead";
Object.assign(window, { words: [], widest: 0, ends: 0 });
const update = () => { widest = Math.max(widest, head.morphs[0].morphTargetInfluences[10]); };
window.head = new TalkingHead(document.body, { lipsyncModules: [], update });
window.begin = async (socket) => {
  window.socket = socket;
  await head.showAvatar({ url: "/avatar.gltf" });
  await head.audioCtx.resume();
  await speakWith(head, socket, (word) => words.push([word.trim(), head.animClock, head.streamAudioStartTime]));
  const ended = head.onAudioEnd;
  head.onAudioEnd = () => { ended(); ends++; };
};
window.connected = () => new Promise((resolve) => {
  const socket = new WebSocket(`ws://${location.host}/v1/realtime`);
  socket.onopen = () => resolve(socket);
});
window.ask = () => {
  const content = [{ type: "input_text", text: "What is the capital of France?" }];
  for (const event of [
    { type: "conversation.item.create", item: { type: "message", role: "user", content } }, { type: "response.create" },
  ]) socket.send(JSON.stringify(event));
};
window.receive = (event) => socket.dispatchEvent(new MessageEvent("message", { data: JSON.stringify(event) }));
"""

MOVE = """
import { GLTFLoader } from "three/addons/loaders/GLTFLoader.js";
import { VRMLoaderPlugin } from "@pixiv/three-vrm";
window.shapesAt = async (visemes, moments) => {
  const loader = new GLTFLoader();
  loader.register((parser) => new VRMLoaderPlugin(parser));
  const { vrm } = (await loader.loadAsync("/avatar.gltf")).userData;
  const { morphTargetDictionary, morphTargetInfluences } = vrm.scene.getObjectByName("Face");
  const found = [];
  for (let ms = 0; ms <= moments.at(-1); ms++) {
    moveLips(vrm, visemes, ms, 0.001);
    vrm.update(0.001);
    const weights = Object.entries(morphTargetDictionary).map(([name, n]) => [name, morphTargetInfluences[n]]);
    if (moments.includes(ms)) found.push(Object.fromEntries(weights));
  }
  return found;
};
"""

HUMAN_BONES = ["hips", "spine", "head", *(
    side + bone for side in ("left", "right") for bone in "UpperLeg LowerLeg Foot UpperArm LowerArm Hand".split()
)]  # fmt: skip
MOUTHS = ["aa", "ih", "ou", "ee", "oh"]


def model(bones: Sequence[str], shapes: Sequence[str], **extensions: Any) -> bytes:
    """A glTF file: bones without a skin, and a triangle that moves a little for each of the shapes. It is node 1."""
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], np.float32)
    data = corners.tobytes() + np.full_like(corners, 0.1).tobytes()
    nodes = [{"name": "Armature", "children": list(range(1, len(bones) + 2))}, {"name": "Face", "mesh": 0}]
    part = {"bufferView": 0, "componentType": 5126, "count": 3, "type": "VEC3", "min": [0, 0, 0], "max": [1, 1, 1]}
    face = {"attributes": {"POSITION": 0}, "targets": [{"POSITION": 1} for _ in shapes]}
    return json.dumps({
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [*nodes, *({"name": bone} for bone in bones)],
        "meshes": [{"primitives": [face], "extras": {"targetNames": shapes}}],
        "accessors": [part, part | {"byteOffset": 36}],
        "bufferViews": [{"buffer": 0, "byteLength": 72}],
        "buffers": [{"byteLength": 72, "uri": "data:;base64," + base64.b64encode(data).decode()}],
        "extensionsUsed": list(extensions),
        "extensions": extensions,
    }).encode()  # fmt: skip


class Files(SimpleHTTPRequestHandler):
    """Modules for pages of other origins."""

    extensions_map = {".js": "text/javascript", ".mjs": "text/javascript"}  # noqa: RUF012

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the npm packages. Chromium loads an audio worklet past the routes of Playwright, so they have a
    server."""
    if shutil.which("npm") is None:
        skip_or_fail('npm is not installed (pip install -e ".[test]")')
    folder = tmp_path_factory.mktemp("avatars")
    try:
        install_npm_packages(folder, PACKAGES)
    except subprocess.CalledProcessError as error:
        skip_or_fail(f"the avatars could not be installed ({error})")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=folder / "node_modules")) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@asynccontextmanager
async def page_with(chromium: str, address: str, packages: str, module: str) -> AsyncIterator[Page]:
    """The server's page with a script of the guide in it."""
    async with async_playwright() as playwright:
        flags = [flag for flag in FLAGS if flag != "--disable-gpu"] + SOFTWARE_WEBGL
        browser = await playwright.chromium.launch(executable_path=chromium, args=flags)
        context = await browser.new_context(bypass_csp=True, viewport={"width": 160, "height": 120})
        page = await context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"http://{address}/healthz")
        await page.add_script_tag(
            content=json.dumps({"imports": {name: packages + path for name, path in IMPORTS.items()}}), type="importmap"
        )
        await page.add_script_tag(content=module, type="module")
        yield page
        await browser.close()
        assert errors == [], errors


@asynccontextmanager
async def talking_head(chromium: str, address: str, packages: str) -> AsyncIterator[Page]:
    """A page with a head, whose model has the bones that it asks for."""
    async with page_with(chromium, address, packages, f"{TALKING_HEAD}\n{HEAD}") as page:
        await until(page, "!!window.receive")
        bones = await page.evaluate("[...new Set(head.posePropNames.map((name) => name.split('.')[0]))]")
        await page.route("**/avatar.gltf", lambda route: route.fulfill(body=model([*bones, *EYES], SHAPES)))
        yield page


async def until(page: Page, condition: str) -> None:
    await page.wait_for_function(condition, timeout=1000 * HANG_S)


async def test_talkinghead_speaks_what_the_server_says(
    chromium: str, packages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    with serving() as address:
        async with talking_head(chromium, address, packages) as page:
            await page.evaluate("connected().then(begin)")
            await page.evaluate("ask()")
            await until(page, "ends === 1")
            words: list[tuple[str, float, float]] = await page.evaluate("words")
            assert await page.evaluate("widest") > 0.3
            await page.evaluate("ask()")
            await until(page, "words.length > 6")
            loud = "btoa(String.fromCharCode(...new Uint8Array(48000).map((_, n) => n % 2 ? 64 : 0)))"
            await page.evaluate(f"socket.send(JSON.stringify({{ type: 'input_audio_buffer.append', audio: {loud} }}))")
            await until(page, "ends === 2 && !head.isSpeaking && head.morphs[0].morphTargetInfluences[10] < 0.01")
    assert " ".join(word for word, _, _ in words) == "The capital of France is Paris."
    late_ms = [shown - start - 100 * number for number, (_, shown, start) in enumerate(words)]
    assert min(late_ms) >= 0 and np.median(late_ms) < 300  # the fake voice takes 100 ms a word


async def test_words_follow_talkinghead_after_a_gap_in_a_response(chromium: str, packages: str) -> None:
    second = base64.b64encode(bytes(48_000)).decode()
    with serving() as address:
        async with talking_head(chromium, address, packages) as page:
            await page.evaluate("begin(Object.assign(new EventTarget(), { send() {} }))")
            await page.evaluate("receive({ type: 'response.created' })")
            for number, word in enumerate(("first", "second")):
                times = {"word": word, "start_ms": 1000 * number + 500, "end_ms": 1000 * number + 700}
                await page.evaluate(
                    "(events) => events.forEach(receive)",
                    [
                        {"type": "rejoinder.words", "response_id": "r", "words": [times]},
                        {"type": "response.output_audio.delta", "delta": second},
                    ],
                )
                await until(page, f"ends === {number + 1}")  # the head waits for a second, then falls silent
            words: list[tuple[str, float, float]] = await page.evaluate("words")
    assert [word for word, _, _ in words] == ["first", "second"]
    assert all(500 <= shown - start < 1400 for _, shown, start in words)


async def test_a_vrm_avatar_opens_and_closes_its_mouth(chromium: str, packages: str) -> None:
    visemes = [
        {"viseme": "PP", "azure_id": 21, "start_ms": 0, "end_ms": 100},
        {"viseme": "aa", "azure_id": 2, "start_ms": 100, "end_ms": 400},
        {"viseme": "ou", "azure_id": 7, "start_ms": 400, "end_ms": 700},
    ]
    binds = {name: {"morphTargetBinds": [{"node": 1, "index": n, "weight": 1}]} for n, name in enumerate(MOUTHS)}
    avatar = model(HUMAN_BONES, MOUTHS, VRMC_vrm={
        "specVersion": "1.0",
        "meta": {"name": "test", "authors": ["test"], "licenseUrl": "https://vrm.dev/licenses/1.0/"},
        "humanoid": {"humanBones": {bone: {"node": n + 2} for n, bone in enumerate(HUMAN_BONES)}},
        "expressions": {"preset": binds},
    })  # fmt: skip
    with serving() as address:
        async with page_with(chromium, address, packages, f"{VRM}\n{MOVE}") as page:
            await page.route("**/avatar.gltf", lambda route: route.fulfill(body=avatar))
            await until(page, "typeof shapesAt === 'function'")
            closed, open_, round_, after = await page.evaluate(
                "([visemes, moments]) => shapesAt(visemes, moments)", [visemes, [90, 390, 690, 1100]]
            )
    assert max(closed.values()) == 0
    assert open_["aa"] > 0.95 and open_["ou"] == 0
    assert round_["ou"] > 0.95 and round_["aa"] < 0.05
    assert max(after.values()) < 0.01
