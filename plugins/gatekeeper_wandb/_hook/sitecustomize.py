"""Run by every Python process that a gated agent or supervisor starts: waits for the W&B SDK to be imported.

It must cost next to nothing, work on any Python 3.8+ and never break a program: no import but the standard
library's, no exception let out. Whatever ``sitecustomize`` the environment already had runs as if this one
were not here.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_TARGET = "wandb.sdk.wandb_run"
_PACKAGES = ("gatekeeper", "gatekeeper_wandb")


class _Packages:
    """Finds gatekeeper for an interpreter whose own environment does not have it; asked last."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Answer for gatekeeper's top-level packages alone."""
        if name not in _PACKAGES:
            return None
        from importlib.machinery import PathFinder

        roots = os.environ.get("GATEKEEPER_PACKAGES", "").split(os.pathsep)
        return PathFinder.find_spec(name, [root for root in roots if root])


class _WaitForSdk:
    """Lets the module be imported as ever, and gates its Run class right after."""

    def __init__(self) -> None:
        self._asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Answer for the one module; the other finders do the work."""
        if name != _TARGET or self._asking:
            return None
        from importlib.util import find_spec

        self._asking = True
        try:
            spec = find_spec(name)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            _run_after(spec.loader)
        return spec


def _run_after(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        try:
            from gatekeeper_wandb.hook import install

            install(module)
        except BaseException as fault:  # noqa: BLE001 - the program runs on, ungated, and says so
            reason = f"{type(fault).__name__}: {fault}"
            sys.stderr.write(f"gatekeeper: this process is not gated: {reason}\n")

    loader.exec_module = exec_module


def _chain() -> None:
    """Import the sitecustomize that would have been found without this directory."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    ours = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ModuleNotFoundError as fault:
        if fault.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, ours)


if __name__ == "sitecustomize":  # and not a tool that imports every module it finds
    finders: list[Any] = sys.meta_path
    finders.insert(0, _WaitForSdk())
    finders.append(_Packages())
    _chain()
