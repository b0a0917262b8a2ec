"""Environments of their own for clients that somebody else wrote, so that their packages never meet ours."""

from __future__ import annotations

import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path


def install_npm_packages(folder: Path, packages: tuple[str, ...]) -> None:
    """Install npm packages into `folder`. Raises subprocess.CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages], check=True)


@dataclass(frozen=True)
class Client:
    """A client's packages, pinned, and the script that talks through it: Python, or Node (`.mjs`)."""

    packages: tuple[str, ...]
    script: Path

    def command(self, folder: Path) -> list[str]:
        """The command that runs the script. The environment in `folder` is built first if it is missing or outdated."""
        installed = folder / "installed.txt"
        up_to_date = installed.exists() and installed.read_text() == "\n".join(self.packages)
        if self.script.suffix == ".mjs":
            if not up_to_date:
                install_npm_packages(folder, self.packages)
            argv = ["node", str(self.script)]
        else:
            python = folder / "bin" / "python"
            if not up_to_date:
                # A copied interpreter could not be run while another thread's child has it open.
                venv.create(folder, with_pip=True, clear=True, symlinks=True)
                subprocess.run([str(python), "-m", "pip", "install", "-q", *self.packages], check=True)
            argv = [str(python), str(self.script)]
        installed.write_text("\n".join(self.packages))
        return argv
