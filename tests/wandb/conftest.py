"""Fixtures for the W&B tests: the loopback backend, and processes that use it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# importlib mode knows no package here; the backend is one folder down
sys.path.insert(0, str(Path(__file__).parent))

from wandb_backend import Backend


@pytest.fixture
def wandb_backend() -> Iterator[Backend]:
    """A W&B server on loopback: base_url, env(dir), state, fault(...), refuse(), clear_faults()."""
    backend = Backend()
    yield backend
    backend.stop()


@pytest.fixture
def wandb_env(wandb_backend: Backend, tmp_path: Path) -> dict[str, str]:
    """The environment of a child that talks to the backend: the caller's, without its W&B settings."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "GATEKEEPER_"))}
    # An agent starts a program as "python": let that be this one.
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, **wandb_backend.env(tmp_path), "HOME": str(tmp_path), "PATH": path}
