"""`rejoinder convert programs`: trains the beginning of the prompt with which a model writes programs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from agent.program.prompt import INSTRUCTIONS
from cli.console import stderr, stdout, user_errors
from cli.options import DeviceOption, ModelOption
from cli.training import StopAfterOption, load_base, over_after, print_stopped, training_reporter
from lab.convert.conversations import encode_responses
from lab.convert.programs import EXAMPLES, conversation_of, read_examples, varied
from lab.convert.text_training import TextTrainingConfig
from lab.convert.train_prefix import PrefixTraining, share_right
from model.engine.bundled import weights_checksum, weights_size
from model.hub.catalog import QWEN_15B
from model.nn.trained_prefix import load_trained_prefix
from server.serving.runtime import program_prefix_tokens

_HELD_OUT = 20
"""One of so many examples is not trained on."""


def programs_command(
    examples: Annotated[Path, typer.Option(help="Examples: see lab/convert/programs.py.")] = EXAMPLES,
    folder: Annotated[Path, typer.Option("--folder", help="Folder for the training state and the prefix.")] = Path(
        "programs"
    ),
    epochs: Annotated[float, typer.Option(min=0.01, help="How often every example is trained on.")] = 3.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per step.")] = 8,
    rate: Annotated[float, typer.Option(min=1e-6, help="Peak learning rate.")] = 1e-2,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    start: Annotated[Path | None, typer.Option(help="A prefix that was trained before, to go on from.")] = None,
    stop_after: StopAfterOption = None,
    model: ModelOption = QWEN_15B.name,
    device: DeviceOption = "auto",
) -> None:
    """Train a model to write programs for what users say. If interrupted, run the command again to resume."""
    with user_errors():
        is_over = over_after(stop_after)
        read = [varied(example, seed) for example in read_examples(examples)]
        loaded, path = load_base(model, device, "bfloat16")
        base = weights_checksum(path)
        begun = None if start is None else load_trained_prefix(start, loaded.decoder.config, base)
        start_sha256 = "" if start is None else hashlib.sha256(start.read_bytes()).hexdigest()
        texts = [encode_responses(conversation_of(one), loaded.template, loaded.stop_tokens) for one in read]
        training = PrefixTraining(
            loaded.decoder,
            program_prefix_tokens(loaded.template),
            [text for n, part in enumerate(texts) if n % _HELD_OUT for text in part],
            base,
            hashlib.sha256("\n".join([INSTRUCTIONS, repr(read), start_sha256]).encode()).hexdigest(),
            TextTrainingConfig(epochs, seed, batch_size, rate),
            folder / "programs.state",
            begun,
        )
        folder.mkdir(parents=True, exist_ok=True)
        with Progress(console=stderr) as progress:
            if not training.run(training_reporter(progress), is_over):
                print_stopped(stop_after)
                return
        right = share_right(training, [text for part in texts[::_HELD_OUT] for text in part])
        file = folder / "programs.safetensors"
        about = {
            "epochs": f"{epochs:g}", "rate": f"{rate:g}", "batch": str(batch_size), "seed": str(seed),
            "examples": str(len(read)), "right": f"{right:.3f}", "base_bytes": str(weights_size(path)),
            "start": start_sha256, "instructions_sha256": hashlib.sha256(INSTRUCTIONS.encode()).hexdigest(),
        }  # fmt: skip
        training.prefix(about).save(file, base)
    stdout.print(f"the prefix is {file}; {right:.0%} of the held-out programs are right word for word", soft_wrap=True)
