"""The environment in which Python programs are gated inside their own process, whatever starts them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import gatekeeper

__all__ = ["HOOK_DIRECTORY", "prepare"]

#: Holds nothing but the sitecustomize.py that every Python process below imports at its start.
HOOK_DIRECTORY = Path(__file__).parent / "_hook"

PACKAGES = "GATEKEEPER_PACKAGES"


def prepare(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the hook in it: ``PYTHONPATH`` survives shells, ``uv`` and ``torchrun``.

    An interpreter of another environment has no gatekeeper to import: ``GATEKEEPER_PACKAGES`` names where
    it lies.
    """
    prepared = dict(environment)
    hook = str(HOOK_DIRECTORY)
    rest = [part for part in prepared.get("PYTHONPATH", "").split(os.pathsep) if part and part != hook]
    prepared["PYTHONPATH"] = os.pathsep.join([hook, *rest])
    roots = (Path(str(gatekeeper.__file__)).parent.parent, Path(__file__).parent.parent)
    prepared[PACKAGES] = os.pathsep.join(dict.fromkeys(str(root) for root in roots))
    return prepared
