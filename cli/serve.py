"""`rejoinder serve`: the web page, the Realtime protocol and phone calls on one port."""

from __future__ import annotations

from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand

from cli.console import stderr, user_errors
from cli.options import YesOption, with_options
from server.observability.logs import configure_logging
from server.serving.settings import LOCAL_CLUSTER, ServeSettings

app = typer.Typer(add_completion=False)


class ServeCommand(TyperCommand):
    """The command, whose option --cluster needs no value: without one it means this machine."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        following = [*args[1:], "-"]
        alone = [one == "--cluster" and after.startswith("-") for one, after in zip(args, following, strict=False)]
        return super().parse_args(
            ctx, [f"{one}={LOCAL_CLUSTER}" if bare else one for one, bare in zip(args, alone, strict=True)]
        )


@app.command("serve", cls=ServeCommand)
@with_options
def serve(yes: YesOption = False, *, settings: ServeSettings) -> None:
    """Serve the web page at /, the Realtime protocol at /v1/realtime and phone calls at /phone."""
    set_up_logging = partial(configure_logging, as_json=settings.log_format == "json", secrets=settings.secrets)
    set_up_logging()
    with user_errors():
        from cli.first_start import confirm_downloads  # late: the help needs no torch

        confirm_downloads(settings, yes=yes)
        if settings.cluster:
            from server.serving.cluster import run_cluster

            run_cluster(settings, stderr, set_up_logging)
        else:
            from server.serving.run import run

            run(settings, stderr)
