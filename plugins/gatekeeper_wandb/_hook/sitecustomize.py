"""Run by every Python process that a gated agent or supervisor starts: waits for the W&B SDK to be imported.

It must cost next to nothing, work on any Python 3 and never break a program: no import but the standard library's, no
exception let out. Whatever ``sitecustomize`` the environment already had runs as if this one were not here.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_TARGET = "wandb.sdk.wandb_run"
_PACKAGES = ("gatekeeper", "gatekeeper_wandb")


class _Packages:
    """Finds gatekeeper for an interpreter whose own environment does not have it; asked last."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Answer for gatekeeper's top-level packages alone."""
        if name in _PACKAGES:
            from importlib.machinery import PathFinder

            roots = os.environ.get("GATEKEEPER_PACKAGES", "").split(os.pathsep)
            return PathFinder.find_spec(name, [root for root in roots if root])
        return None


class _WaitForSdk:
    """Lets the module be imported as ever, and gates its Run class right after."""

    def __init__(self):
        self._asking = False

    def find_spec(self, name, path=None, target=None):
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


def _run_after(loader):
    execute = loader.exec_module

    def exec_module(module):
        execute(module)
        try:
            from gatekeeper_wandb.hook import install

            install(module)
        except BaseException as fault:  # the program runs on, ungated, and says so
            reason = "{}: {}".format(type(fault).__name__, fault)
            sys.stderr.write("gatekeeper: this process is not gated: {}\n".format(reason))

    loader.exec_module = exec_module


def _chain():
    """Import the sitecustomize that would have been found without this directory."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ModuleNotFoundError as fault:
        if fault.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


sys.meta_path.insert(0, _WaitForSdk())
sys.meta_path.append(_Packages())
_chain()
