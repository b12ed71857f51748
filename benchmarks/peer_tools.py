"""The peers the benchmarks compare with: log readers from PyPI, pinned, each in a virtual environment.

Nothing is put into the repository: the environment lives under ``$XDG_CACHE_HOME/gatekeeper-benchmarks``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PEERS = {"losslint": "0.4.1", "runmedic": "0.1.1", "trainspotter": "0.2.6"}


def cache_dir() -> Path:
    """Return the benchmarks' cache directory, made where it is missing."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gatekeeper-benchmarks"
    root.mkdir(parents=True, exist_ok=True)
    return root


def peer_command(name: str) -> Path:
    """Return the path of a peer's command, installing it on first use."""
    venv = cache_dir() / f"{name}-{PEERS[name]}-py{sys.version_info[0]}.{sys.version_info[1]}"
    command = venv / "bin" / name
    if not command.exists():
        print(f"installing {name}=={PEERS[name]} into {venv}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"{name}=={PEERS[name]}"], check=True)
    return command


def peer_python(name: str) -> Path:
    """Return the interpreter of a peer's environment."""
    return peer_command(name).with_name("python")
