"""One trial's command behind the gate: the element for a sweep's own ``command:`` list.

``gatekeeper-trial`` (or ``python -m gatekeeper_wandb``) goes in front of ``${interpreter}``; every ``${…}``
keeps its
meaning, since the agent expands it before this program sees it:

    command: ["${env}", "gatekeeper-trial", "${interpreter}", "${program}", "${args}"]

It is ``gatekeeper run -- COMMAND`` without options: those come from the configuration and the environment
(``GATEKEEPER_METRIC``, ``GATEKEEPER_MODE``, ``GATEKEEPER_ROLES``, ``GATEKEEPER_CONFIG``,
``GATEKEEPER_NOTES``).
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

__all__ = ["is_launcher", "main"]

SCRIPT = "gatekeeper-trial"


def is_launcher(part: str) -> bool:
    """Whether an element of a command is the launcher already."""
    return os.path.basename(part) == SCRIPT or part == "gatekeeper_wandb"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command, and exit with its code; 0 where the gate stopped it inside a sweep agent."""
    command = list(sys.argv[1:] if arguments is None else arguments)
    if command[:1] == ["--"]:
        del command[0]
    if not command:
        sys.stderr.write(f"gatekeeper: error: {SCRIPT} takes a command: {SCRIPT} python train.py\n")
        sys.exit(2)
    if importlib.util.find_spec("gatekeeper.cli.run") is not None:
        from gatekeeper.cli import main as cli

        with _reported() as options:
            sys.argv = ["gatekeeper", "run", *_told(), *options, "--", *command]
            cli()
    _become(command)


@contextmanager
def _reported() -> Iterator[list[str]]:
    """Tell the agent, if it asked, what the supervisor decided, also of programs that no hook can see."""
    from gatekeeper_wandb.events import CONTROL, REPORT, tell

    report = os.environ.get(REPORT)
    if not report:
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="gatekeeper-trial-") as directory:
        path = Path(directory) / "verdict.json"
        try:
            yield ["--format", "json", "--report", str(path)]
        finally:
            with suppress(OSError, ValueError):
                verdict = json.loads(path.read_text(encoding="utf-8"))
                if verdict.get("rows"):
                    stopped = verdict.get("decision") == "STOP"
                    environment = {key: value for key, value in os.environ.items() if key != CONTROL}
                    tell("stop" if stopped else "verdict", environment, verdict=verdict)


def _told() -> list[str]:
    """Return the options of ``gatekeeper run`` that the environment tells; its notes' directory it reads."""
    from gatekeeper_wandb.options import CONFIG, METRIC, MODE, ROLES

    options = []
    for variable, option in ((METRIC, "--metric"), (MODE, "--mode"), (CONFIG, "--config")):
        if os.environ.get(variable):
            options += [option, os.environ[variable]]
    for role in filter(None, os.environ.get(ROLES, "").split(";")):
        options += ["--role", role]
    return options


def _become(command: list[str]) -> NoReturn:
    """Become the command, gated inside its own process."""
    from gatekeeper_wandb.environment import prepare

    try:
        os.execvpe(command[0], command, prepare(os.environ))  # noqa: S606 - the user's own command
    except OSError as fault:
        sys.stderr.write(f"gatekeeper: error: cannot start {command[0]!r}: {fault.strerror}\n")
        sys.exit(126 if isinstance(fault, PermissionError) else 127)
