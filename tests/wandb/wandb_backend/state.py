"""What the backend knows: runs, sweeps, agents and every call it received."""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ENTITY", "Agent", "Call", "Run", "State", "Sweep", "storage_id"]

ENTITY = "ent"
USER = "tester"


def storage_id(*parts: str) -> str:
    """Return an opaque id in the style of the real server."""
    return base64.b64encode(":".join(parts).encode()).decode()


@dataclass
class Run:
    """One run as the server sees it. ``history`` and ``events`` hold the JSON lines exactly as uploaded."""

    entity: str
    project: str
    name: str
    display_name: str = ""
    state: str = "running"
    config: str = "{}"
    summary_json: str = "{}"
    tags: list[str] = field(default_factory=list)
    notes: str | None = None
    group: str | None = None
    job_type: str | None = None
    sweep: str | None = None
    host: str | None = None
    program: str | None = None
    history: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    uploads: dict[str, bytes] = field(default_factory=dict)
    exit_codes: list[int] = field(default_factory=list)
    stop_requested: bool = False
    created: float = field(default_factory=time.time)
    heartbeat: float = field(default_factory=time.time)
    last_step: int | None = None  # what the server claims; None: taken from the history

    @property
    def id(self) -> str:
        return storage_id("Run", "v1", self.name, self.project, self.entity)

    @property
    def path(self) -> str:
        return f"{self.entity}/{self.project}/{self.name}"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The uploaded history rows, parsed (bare NaN and Infinity become floats)."""
        return [json.loads(line) for line in self.history]

    @property
    def summary(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.summary_json)
        return parsed

    @property
    def exit_code(self) -> int | None:
        """The exit code that the SDK reported last; None while the run has not ended."""
        return self.exit_codes[-1] if self.exit_codes else None

    @property
    def claimed_last_step(self) -> int:
        if self.last_step is not None:
            return self.last_step
        return max((int(row.get("_step", i)) for i, row in enumerate(self.rows)), default=-1)


@dataclass
class Sweep:
    """A sweep: a grid over ``parameters`` that hands out at most ``limit`` trials."""

    entity: str
    project: str
    name: str
    config_yaml: str
    trials: list[dict[str, Any]]
    state: str = "RUNNING"
    limit: int | None = None
    handed_out: int = 0

    @property
    def id(self) -> str:
        return storage_id("Sweep", self.name)

    @property
    def path(self) -> str:
        return f"{self.entity}/{self.project}/{self.name}"

    def next_trial(self) -> dict[str, Any] | None:
        """Return the parameters of the next trial, or None when the sweep is spent."""
        limit = self.limit if self.limit is not None else len(self.trials)
        if self.state != "RUNNING" or self.handed_out >= limit:
            return None
        trial = self.trials[self.handed_out % len(self.trials)]
        self.handed_out += 1
        return trial


@dataclass
class Agent:
    """A sweep agent that registered."""

    id: str
    sweep: str
    host: str
    runs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Call:
    """One request: the GraphQL operation (or ``file_stream``, ``upload``), when, variables, status.

    ``status`` is 0 where the backend dropped the connection.
    """

    operation: str
    at: float
    variables: dict[str, Any]
    status: int


class State:
    """All records, behind one lock (``with state.lock:`` to change them from a test)."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.runs: dict[str, Run] = {}
        self.sweeps: dict[str, Sweep] = {}
        self.agents: dict[str, Agent] = {}
        self.calls: list[Call] = []
        self.unknown: list[
            str
        ] = []  # operations that the backend does not know: tests assert that it stays empty
        self._names = itertools.count(1)

    def run(self, entity: str | None, project: str | None, name: str) -> Run:
        """Return the run, made on first mention as the server does."""
        run = Run(entity or ENTITY, project or "uncategorized", name, display_name=name)
        return self.runs.setdefault(run.path, run)

    def find(self, entity: str | None, project: str | None, name: str | None) -> Run | None:
        return self.runs.get(f"{entity or ENTITY}/{project or 'uncategorized'}/{name}")

    def by_id(self, identifier: str | None) -> Run | None:
        return next((run for run in self.runs.values() if run.id == identifier), None)

    def add_run(
        self,
        name: str,
        rows: list[dict[str, Any]],
        *,
        events: list[dict[str, Any]] | None = None,
        project: str = "proj",
        entity: str = ENTITY,
        state: str = "finished",
        config: dict[str, Any] | None = None,
    ) -> Run:
        """Put a finished run on the server without the SDK; ``_step`` is added where a row has none."""
        with self.lock:
            run = self.run(entity, project, name)
            run.state = state
            run.history = [json.dumps({"_step": i, **row}) for i, row in enumerate(rows)]
            run.events = [json.dumps(event) for event in events or []]
            run.config = json.dumps({key: {"value": value} for key, value in (config or {}).items()})
            run.summary_json = run.history[-1] if run.history else "{}"
            return run

    def add_sweep(
        self, config: dict[str, Any] | str, *, project: str = "proj", entity: str = ENTITY
    ) -> Sweep:
        """Make a sweep from its configuration (a dict, or YAML text)."""
        import yaml

        text = config if isinstance(config, str) else yaml.safe_dump(config)
        parsed = yaml.safe_load(text) or {}
        with self.lock:
            name = f"sweep{next(self._names):03d}"
            sweep = Sweep(entity, project, name, text, _trials(parsed), limit=parsed.get("run_cap"))
            self.sweeps[name] = sweep
            return sweep

    def sweep_runs(self, sweep: Sweep) -> list[Run]:
        """Return the runs of a sweep in the order in which they were handed out."""
        return [run for run in self.runs.values() if run.sweep == sweep.name]

    def count(self, operation: str) -> int:
        """Return how many calls of one operation came in."""
        return sum(call.operation == operation for call in self.calls)


def _trials(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the trials of a sweep configuration: the grid of its values, in order."""
    names, choices = [], []
    for name, spec in (config.get("parameters") or {}).items():
        names.append(name)
        if "value" in spec:
            choices.append([spec["value"]])
        elif "values" in spec:
            choices.append(list(spec["values"]))
        else:
            choices.append([spec.get("min", 0), spec.get("max", 1)])
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*choices)] or [{}]
