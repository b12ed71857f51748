"""Runs on a W&B server as sources: every row, each fetched once; "unknown" where the server is unclear."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gatekeeper.errors import SourceError
from gatekeeper.metrics import to_float
from gatekeeper.sources.base import Row, Skips, SourceOptions

from gatekeeper_wandb.client import Client
from gatekeeper_wandb.errors import UnusableAnswer
from gatekeeper_wandb.rows import STEP_KEY, history_row, is_metric_value
from gatekeeper_wandb.specs import WandbSpec

__all__ = ["ALIVE", "RunFacts", "WandbRunSource", "load_facts", "project_runs"]

#: States in which a run may still log. Any other one is an end.
ALIVE = frozenset({"running", "pending", "preempting"})
_BATCH_ROWS = 500
_BATCH_S = 0.5
_PAGE_STEPS = 1000
_SYSTEM_SAMPLES = 1000
_SYSTEM_SHARE = 1 / 3  # of the deadline: a look can do without GPU statistics


@dataclass(frozen=True)
class RunFacts:
    """What the server says of a run, besides its history. Redact ``config`` before it is shown."""

    state: str
    url: str | None
    name: str | None
    sweep: str | None
    last_step: int
    lines: int | None
    has_gpu: bool
    config: Mapping[str, Any] = field(default_factory=dict)


def load_facts(api: Any, spec: WandbSpec) -> tuple[Any, RunFacts]:
    """Return the SDK's run, freshly loaded, and what it says.

    Raises:
        UnusableAnswer: The answer has the wrong shape.

    """
    api.flush()  # api.run() keeps runs: without this a poll would see the first answer for ever
    run = api.run(spec.path)
    state = run.state
    if not isinstance(state, str) or not state:
        raise UnusableAnswer("a run without a state")
    keys = getattr(run, "historyKeys", None)
    last_step = _whole(keys.get("lastStep") if isinstance(keys, Mapping) else run.lastHistoryStep, -1)
    summary = getattr(run, "summaryMetrics", None)
    if last_step < 0 and isinstance(summary, Mapping):  # another witness, where the server keeps no keys
        last_step = _whole(summary.get(STEP_KEY), -1)
    lines = getattr(run, "historyLineCount", None)
    system = getattr(run, "systemMetrics", None)
    config = run.config
    return run, RunFacts(
        state=state,
        url=run.url,
        name=run.name,
        sweep=getattr(run, "sweepName", None),
        last_step=last_step,
        lines=lines if isinstance(lines, int) and not isinstance(lines, bool) else None,
        has_gpu=isinstance(system, Mapping) and any(str(key).startswith("system.gpu.") for key in system),
        config=config if isinstance(config, Mapping) else {},
    )


class WandbRunSource:
    """One run on a server. Each call of `rows` fetches the steps that are new since the last one.

    A look ends one deadline after the server's last answer at the latest. The run's state is reported, and
    never a verdict. GPU statistics join the history row that follows them.
    """

    def __init__(
        self, spec: WandbSpec, options: SourceOptions | None = None, *, name: str | None = None
    ) -> None:
        self.spec = spec
        self.name = name or spec.path
        self.options = options or SourceOptions()
        self.facts: RunFacts | None = None
        self._client = Client(spec, self.options.deadline_s)
        self._skips = Skips()
        self._next = 0  # the first step that was not seen
        self._seen = 0  # history rows
        self._system_seen = float("-inf")

    @property
    def run_url(self) -> str | None:
        """The run's web page, once the server was reached."""
        return self.facts.url if self.facts else None

    @property
    def run_state(self) -> str | None:
        """The run's state as of the last look: "running", "finished", "crashed", …."""
        return self.facts.state if self.facts else None

    @property
    def skipped(self) -> int:
        """How many rows or ranges of steps could not be read."""
        return self._skips.count

    @property
    def skipped_examples(self) -> list[str]:
        """At most five of them."""
        return self._skips.examples

    def rows(self) -> Iterator[Row]:
        """Yield the rows of steps that are new since the last call.

        Raises:
            Unreachable: No usable answer within the deadline, or none that says what the run logged: unknown.
            SourceError: Credentials, permission, a run that is not there, or one that ended without a row.

        """
        _, facts = self._client.ask(lambda api: load_facts(api, self.spec))
        self.facts = facts
        first = self._next
        if facts.last_step < first - 1:  # the run was rewound; its new steps come after that
            first = self._next = facts.last_step + 1
        # Lines are a witness only while none was read: a run that logs a step again has more lines than
        # steps.
        if facts.last_step < first and not (self._seen == 0 and facts.lines):
            if self._seen == 0 and facts.state not in ALIVE and not self.options.follow:
                raise SourceError(f"{self.name}: the run ended ({facts.state}) without logging a row")
            return
        events = self._system_events() if facts.has_gpu else []
        system = _SystemFeed(events or [])
        # What the system stream wasted comes off the patience for the history.
        patience = self.options.deadline_s * (1 if events is not None else 1 - _SYSTEM_SHARE)
        before = self._seen
        for raw in self._history(facts, patience):
            row = history_row(raw, system.until(raw), self.options.step_key)
            if row is not None:
                yield row
        self._system_seen = max(self._system_seen, system.latest)
        if self._seen == before:
            raise self._client.unknown(
                f"it counts steps up to {facts.last_step} and returned no row: unknown, which is not clean"
            )
        if self._next <= facts.last_step:
            where = f"steps {self._next} to {facts.last_step}"
            self._skips.add(where, "the server counts them and returned no row")

    def _history(self, facts: RunFacts, patience: float) -> Iterator[Mapping[str, Any]]:
        """Yield the raw rows from the first step that was not seen; after a fault it goes on where it was."""
        size = _page_size(self._next, facts)
        current: list[Iterator[Any]] = []

        def batch(api: Any) -> tuple[Iterator[Any], list[Any], bool]:
            # Taken out for the attempt: one that failed may have lost rows, so the next one scans afresh.
            scan = current.pop() if current else None
            if scan is None:
                history = api.run(self.spec.path).scan_history(page_size=size, min_step=self._next)
                scan = (raw for raw in history)  # iter() on the SDK's own begins again each time
            return scan, *_take(scan)

        ended = False
        while not ended:
            scan, rows, ended = self._client.ask(batch, patience)
            patience = self.options.deadline_s
            current.append(scan)
            for raw in rows:
                step = _whole(raw.get(STEP_KEY), -1)
                if 0 <= step < self._next:
                    continue
                self._next = max(self._next, step + 1)
                self._seen += 1
                yield raw

    def _system_events(self) -> list[tuple[float, dict[str, object]]] | None:
        """Return what is new in the system stream as (time, GPU metrics), or None where it fails."""

        def fetch(api: Any) -> list[Any]:
            return list(
                api.run(self.spec.path).history(stream="system", samples=_SYSTEM_SAMPLES, pandas=False)
            )

        answered = self._client.ask_once(fetch, self.options.deadline_s * _SYSTEM_SHARE)
        if answered is None:
            return None
        events = []
        for event in answered:
            at = to_float(event.get("_timestamp")) if isinstance(event, Mapping) else None
            if at is None or at <= self._system_seen:
                continue
            gpu = {
                key: value
                for key, value in event.items()
                if key.startswith("system.gpu.") and is_metric_value(value)
            }
            if gpu:
                events.append((at, gpu))
        return sorted(events, key=lambda event: event[0])


class _SystemFeed:
    """Hands out system metrics with the first history row after them."""

    def __init__(self, events: list[tuple[float, dict[str, object]]]) -> None:
        self._events = events
        self._at = 0
        self.latest = float("-inf")

    def until(self, raw: Mapping[str, Any]) -> dict[str, object] | None:
        """Return what was measured up to this row and not handed out before."""
        now = to_float(raw.get("_timestamp")) if self._at < len(self._events) else None
        if now is None:
            return None
        found: dict[str, object] = {}
        while self._at < len(self._events) and self._events[self._at][0] <= now:
            self.latest, metrics = self._events[self._at]
            found.update(metrics)
            self._at += 1
        return found


def project_runs(spec: WandbSpec, options: SourceOptions | None = None) -> list[WandbRunSource]:
    """Return all runs of a project, oldest first.

    Raises:
        Unreachable: No usable answer within the deadline.
        SourceError: Credentials, permission, or no such project, or one without runs.

    """
    options = options or SourceOptions()
    client = Client(spec, options.deadline_s)

    def ids(api: Any) -> list[str]:
        api.flush()
        found = [run.id for run in api.runs(spec.path, order="+created_at")]
        if not all(isinstance(name, str) for name in found):
            raise UnusableAnswer("a run without an id")
        return found

    names = client.ask(ids)
    if not names:
        raise SourceError(f"{spec.path}: the project holds no runs")
    return [
        WandbRunSource(WandbSpec(spec.entity, spec.project, name, spec.web_url), options) for name in names
    ]


def _page_size(first: int, facts: RunFacts) -> int:
    """Return how many steps a request should span: a sparse history is not fetched in empty pages."""
    steps = facts.last_step + 1 - first
    if steps <= 200 * _PAGE_STEPS:
        return _PAGE_STEPS
    if facts.lines:
        return max(_PAGE_STEPS, int(_PAGE_STEPS / 2 * (facts.last_step + 1) / facts.lines))
    return steps // 200


def _take(scan: Iterator[Any]) -> tuple[list[Any], bool]:
    """Return the next rows of a scan, as many as come soon, and whether it ended."""
    rows: list[Any] = []
    started = time.monotonic()
    for raw in itertools.islice(scan, _BATCH_ROWS):
        if not isinstance(raw, Mapping):
            raise UnusableAnswer("a history row that is no object")
        rows.append(raw)
        if time.monotonic() - started > _BATCH_S:
            return rows, False
    return rows, len(rows) < _BATCH_ROWS


def _whole(value: object, default: int) -> int:
    """Return a step as an int."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return default
    return int(value)
