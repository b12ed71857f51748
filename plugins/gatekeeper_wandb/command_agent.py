"""Command mode: the SDK's agent runs the sweep's ``command`` unchanged, each trial through the launcher."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gatekeeper import strictjson
from gatekeeper.errors import GatekeeperError

from gatekeeper_wandb import events
from gatekeeper_wandb.options import GateOptions
from gatekeeper_wandb.trial import is_launcher
from gatekeeper_wandb.trials import Trial, Trials

__all__ = ["run_command_agent"]


def run_command_agent(
    sweep_id: str, options: GateOptions, config: object, agent_arguments: Mapping[str, Any]
) -> Trials:
    """Run the SDK's own agent and return what became of the trials.

    ``config`` is what the caller gave: a file is handed on by name, a mapping through a file, None is found
    by each trial from its working directory.

    Raises:
        Whatever ``wandb.agent`` raises.

    """
    import wandb
    from wandb import wandb_agent

    trials = Trials()
    with tempfile.TemporaryDirectory(prefix="gatekeeper-agent-") as directory:
        report = Path(directory) / "events.jsonl"
        told = replace(options, config=_as_file(config, Path(directory)))
        variables = {**told.to_environment(), events.REPORT: str(report)}
        with _launched(wandb_agent, trials, variables):
            wandb.agent(sweep_id, **agent_arguments)
        _take(trials, events.read(report))
    return trials


def _as_file(config: object, directory: Path) -> Path | None:
    """Return the configuration as a file that another process can read."""
    if config is None or isinstance(config, Path):
        return config
    if not isinstance(config, Mapping):
        raise GatekeeperError("without a function, config must be a file or a mapping: trials are processes")
    path = directory / "gatekeeper.toml"
    path.write_text(_toml(config), encoding="utf-8")
    return path


def _toml(config: Mapping[str, Any]) -> str:
    """Return a mapping of settings as TOML (JSON's scalars and arrays are TOML's)."""
    tables = {name: value for name, value in config.items() if isinstance(value, Mapping)}
    lines = _lines({name: value for name, value in config.items() if name not in tables})
    for name, table in tables.items():
        lines += [f"[{_key(name)}]", *_lines(table)]
    return "\n".join(lines) + "\n"


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {strictjson.dumps(value)}" for key, value in table.items() if value is not None]


def _key(key: object) -> str:
    return strictjson.dumps(str(key))


@contextmanager
def _launched(wandb_agent: Any, trials: Trials, variables: Mapping[str, str]) -> Iterator[None]:
    """Let the agent start its trials through the launcher, and hear how each ended."""
    original = wandb_agent.AgentProcess

    class GatedProcess(original):  # type: ignore[misc, valid-type]
        """The agent's own process, whose command is the sweep's behind the launcher."""

        def __init__(self, env: Any = None, command: Any = None, **rest: Any) -> None:
            self.trial: Trial | None = None
            if command:
                env = {**(os.environ if env is None else env), **variables}
                if not any(is_launcher(str(part)) for part in command):
                    command = [sys.executable, "-m", "gatekeeper_wandb", *command]
                self.trial = trials.begin(env.get(events.RUN_ID, ""))
            super().__init__(env=env, command=command, **rest)

        def poll(self) -> Any:
            code = super().poll()
            # As the agent sees it: an exit code above 0 is a failure, a death by signal is none.
            if self.trial is not None and code is not None:
                self.trial.error = f"exit code {code}" if code > 0 else None
                self.trial.killed = code < 0
            return code

    wandb_agent.AgentProcess = GatedProcess
    try:
        yield
    finally:
        wandb_agent.AgentProcess = original


def _take(trials: Trials, told: list[dict[str, Any]]) -> None:
    """Fill in what the trials' processes told."""
    known = {trial.run_id: trial for trial in trials.trials}
    for event in told:
        trial = known.get(str(event.get("run_id")))
        if trial is None:
            continue
        kind = event["event"]
        if kind == "fault":
            count = event.get("count")
            trials.faults.add(str(event.get("error")), count if isinstance(count, int) else 1)
        elif kind == "error" and trial.error is not None:
            trial.error = str(event.get("error"))
        elif kind in ("attached", "verdict", "stop"):
            trial.gated = True
        if kind == "stop":
            verdict = event.get("verdict")
            trial.stopped_by = str(verdict.get("rule")) if isinstance(verdict, dict) else "stopped"
