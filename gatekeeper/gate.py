"""The gate: one run's metric stream in, one verdict a row out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, replace
from typing import Any

from gatekeeper.config import Settings, settings_from
from gatekeeper.metrics import to_float
from gatekeeper.review import Opinion, Reviewer, ReviewRequest, primary, self_review
from gatekeeper.roles import IGNORED, ROLES, Guess, understand
from gatekeeper.run_state import RunState
from gatekeeper.signals.track import HEAD, Track
from gatekeeper.signals.trend import Trend, value_deviation
from gatekeeper.table import CHECKS, REVIEW, row_of
from gatekeeper.verdict import CurvePoint, Decision, Finding, Judgment, Verdict

__all__ = ["Gate"]

_QUIET = "too little evidence yet"


class Gate:
    """Judges one run: constant work a row (checkpoints come at a geometric pace) and bounded memory.

    ``metric`` and ``mode`` ("min" or "max") name the objective; ``roles`` declares metrics (role → name, or
    name → role or "off"); ``config`` is a Settings or a mapping of its keys; ``reviewer`` replaces the built-
    in second opinion. The first STOP is latched: later rows get the same verdict. No I/O, clock or
    randomness: the same rows give the same verdicts.
    """

    def __init__(
        self,
        metric: str | None = None,
        mode: str | None = None,
        roles: Mapping[str, str] | None = None,
        config: Settings | Mapping[str, Any] | None = None,
        reviewer: Reviewer | None = None,
    ) -> None:
        settings = config if isinstance(config, Settings) else settings_from(config or {})
        told = settings_from({"metric": metric or None, "mode": mode, "roles": roles or {}}, "Gate")
        self.settings = replace(
            settings,
            metric=told.metric or settings.metric,
            mode=told.mode or settings.mode,
            roles={**settings.roles, **told.roles},
        )
        self._reviewer = reviewer
        self._declared = _declared(self.settings)
        self._roles_off = frozenset(
            role for role, name in self.settings.roles.items() if role in ROLES and name == "off"
        )
        silent = {name for name, action in self.settings.rules.items() if action == "off"}
        self._checks = tuple(pair for pair in CHECKS if pair[0] not in silent) if silent else CHECKS
        self.rows = 0
        self._waits = 0
        self.resets = 0
        self._begin()

    def _begin(self) -> None:
        self._run = RunState(self.settings, self.settings.metric)
        self._tracks: dict[str, Track | None] = {}
        self._last_finite: tuple[int, float | None] | None = None
        self._first_step: float | None = None
        self._top_step = -math.inf
        self._segment_row = self.rows
        self._silent_at = 0
        self._set(Decision.WAIT, None, None, _QUIET, (), "table", "")
        self.verdict = Verdict(Decision.WAIT, None, None, "no rows yet", None, self.rows)

    def _set(
        self,
        decision: Decision,
        judgment: Judgment | None,
        rule: str | None,
        reason: str,
        findings: Sequence[Finding],
        by: str,
        advice: str,
    ) -> None:
        self._answer = (decision, judgment, rule, reason, tuple(findings), by, advice)

    def observe(self, step: float | None, metrics: Mapping[str, object]) -> Verdict:
        """Judge one row: metric names and values, flat and as logged (numbers, text such as "nan", None)."""
        self.rows = row = self.rows + 1
        if self.verdict.stopped:
            return self.verdict
        run, tracks = self._run, self._tracks
        place = float(row)
        if step is not None:
            counted = float(step) if type(step) is int and -_EXACT < step < _EXACT else to_float(step)
            if counted is None or counted - counted != 0.0:
                step = None  # no place to speak of: the row's number stands in
            else:
                place = counted
                if type(step) is not int:
                    step = counted
                self._follow(counted, metrics)
                run = self._run
                tracks = self._tracks
        run.row = row
        run.step = step
        due = False
        clean = True
        for name, raw in metrics.items():
            track = tracks.get(name, _NEW)
            if track is None:
                continue
            if track is _NEW:
                track = self._admit(name, raw)
                if track is None:
                    continue
            value = raw if type(raw) is float else to_float(raw)
            if value is None or value - value != 0.0:
                clean = self._odd(track, raw, value, row) and clean
                due = True
                continue
            curve = track.curve
            if value == 0.0:
                track.zeros += 1
                due = due or track.zeros == 10
                if track.watch and not curve.n:  # a loss that was not computed yet: a placeholder
                    track.last_row = row
                    continue
            elif track.zeros:
                track.zeros = 0
            curve.push(value, row, place)
            count = curve.n
            if count <= HEAD:
                track.head.append(value)
                if count == 1:
                    track.begin(value, row)
            track.previous = track.last
            track.last = value
            track.gap = row - track.last_row
            track.last_row = row
            if track.nonfinite_run or track.nulls:
                track.nonfinite_run = track.nulls = 0
                due = True
            cost = track.sign * value
            if cost > track.alarm or track.spike is not None:
                if track.guess.role == "lr":
                    self._watch_lr(track, row)
                    due = True
                    continue
                if track.guess.role == "grad_norm":
                    due = True
                else:
                    track.alarmed(cost, row, place, self.settings.thresholds.far_height)
                    spike = track.spike
                    due = due or spike is None or spike.values < 8 or not spike.values & 3
                    due = due or (spike is not None and spike.recent > 1e6)  # it may be running away
            if count >= track.look_at:
                track.checkpoint()
                due = True
                if track.guess.role == "lr" and count > HEAD + 12 and value > 0.0:
                    track.alarm = self.settings.thresholds.lr_jump * value
                elif track.guess.role == "grad_norm":
                    track.alarm = self.settings.thresholds.grad_explosion * track.usual()
        if clean:
            self._last_finite = (row, step)
        if due or (row >= self._silent_at and self._silence(row)):
            self._judge()
        decision, judgment, rule, reason, findings, by, advice = self._answer
        if decision is Decision.WAIT:
            self._waits += 1
        self.verdict = verdict = Verdict(
            decision, judgment, rule, reason, step, row, {}, {}, findings, by, advice
        )
        if decision is Decision.STOP:
            verdict.metrics = self.values()
            verdict.roles = run.roles
        return verdict

    def _silence(self, row: int) -> bool:
        """Whether a metric that decides has missed its turn: it raises no alarm of its own."""
        self._silent_at = row + max(2, row >> 6)
        loss = self._run.loss
        watched = self._run.watched if loss is None else [loss, *self._run.watched]
        return any(row - track.last_row > 2 * track.gap for track in watched)

    def _follow(self, step: float, metrics: Mapping[str, object]) -> None:
        """Notice a second run in the same file.

        The step falls back to where the first began, and what was won is gone.
        """
        if self._first_step is None:
            self._first_step = step
        elif (
            step <= self._first_step < self._top_step
            and self._top_step - self._first_step > 10
            and self.rows - self._segment_row > 10
        ) and not self._goes_on(metrics):
            self.reset("the step fell back to where the run began")
            self._first_step = step
        self._top_step = max(self._top_step, step)

    def _goes_on(self, metrics: Mapping[str, object]) -> bool:
        """Whether a step that fell back is that of an epoch (batches count from 0 again).

        The level is kept.
        """
        track = primary(self._run)
        if track is None or track.trend is None or (value := to_float(metrics.get(track.name))) is None:
            return False
        trend = track.trend
        slack = max(0.3 * abs(trend.start - trend.level), 3.0 * value_deviation(track.curve, trend.noise))
        return abs(track.sign * value - trend.level) <= slack

    def _admit(self, name: str, raw: object) -> Track | None:
        if not isinstance(name, str):
            return None
        guess = self._declared.get(name)
        if guess is None:
            guess = understand(name)
            if guess.role in self._roles_off:
                guess = Guess(IGNORED, 0, 0)
        if name == self.settings.metric:
            direction = guess.direction or 1
            if self.settings.mode is not None:
                direction = 1 if self.settings.mode == "min" else -1
            role = guess.role if guess.role not in (IGNORED, "train_metric") else "eval"
            guess = Guess(role, direction, _DECLARED if role == "eval" else guess.rank, guess.kind)
        if guess.role == IGNORED:
            if len(self._tracks) < _MOST_NAMES:
                self._tracks[name] = None
            return None
        if to_float(raw) is None:
            return None  # a text, an image, nothing yet: another row may log a number under this name
        best = self._run.role(guess.role)
        if (
            best is not None
            and guess.rank <= best.guess.rank
            and len(self._run.all(guess.role)) >= _MOST_PER_ROLE
            and guess.rank < _DECLARED
        ):
            return None
        track = Track(name, guess)
        self._tracks[name] = track
        self._run.admit(track)
        return track

    def _odd(self, track: Track, raw: object, value: float | None, row: int) -> bool:
        """Take a value that is no finite number; return whether the row still counts as clean."""
        if value is None:
            if raw is None:
                track.nulls += 1
            return True
        track.odd = value
        track.nonfinite += 1
        track.nonfinite_run += 1
        track.nonfinite_row = row
        return track.guess.role not in ("loss", "eval")

    def _watch_lr(self, track: Track, row: int) -> None:
        """Take a learning rate far above that of the last checkpoint: a jump if it rose at once."""
        jump = self.settings.thresholds.lr_jump
        if track.previous > 0.0 and track.last > jump * track.previous:
            self._run.lr_jump_row = row
        track.alarm = jump * track.last

    def _judge(self) -> None:
        run = self._run
        findings: list[Finding] = []
        asked: list[Finding] = []
        actions = self.settings.rules
        good: Finding | None = None
        for name, check in self._checks:
            finding = check(run)
            if finding is None:
                continue
            findings.append(finding)
            action = actions.get(name)
            if action == "warn":
                continue
            if finding.judgment is Judgment.CLEARLY_BAD or action == "stop":
                advice = row_of(name).look_next
                self._set(Decision.STOP, finding.judgment, name, finding.message, findings, "table", advice)
                return
            if finding.judgment is Judgment.CLEARLY_FINE:
                good = finding
            elif REVIEW in row_of(name).decision:
                asked.append(finding)
        if good is not None and not asked:
            self._set(
                Decision.CONTINUE, Judgment.CLEARLY_FINE, good.rule, good.message, findings, "table", ""
            )
            return
        if not run.tracks or (not asked and not findings):
            ready = any(track.trend is not None for track in run.tracks.values())
            if not ready:
                self._set(Decision.WAIT, None, None, _QUIET, findings, "table", "")
                return
        opinion, by = self._second_opinion(ReviewRequest(run, tuple(asked)))
        first = next(
            (finding for finding in asked if finding.rule == opinion.rule), asked[0] if asked else good
        )
        advice = row_of(first.rule).look_next if first is not None else ""
        reason = (
            opinion.reason
            if first is None
            else first.message
            if first.rule == opinion.rule
            else f"{first.message}; {opinion.reason}"
        )
        self._set(
            opinion.decision,
            Judgment.UNSURE,
            first.rule if first is not None else None,
            reason,
            findings,
            by,
            advice,
        )

    def _second_opinion(self, request: ReviewRequest) -> tuple[Opinion, str]:
        reviewer = self._reviewer
        if reviewer is None or not request.findings:  # nobody is bothered without a question
            return self_review(request), "self-review"
        name = getattr(reviewer, "__name__", type(reviewer).__name__)
        try:
            answer = reviewer(request)
            return Opinion(Decision(answer.decision), str(answer.reason)), name
        except Exception as fault:  # noqa: BLE001 - a reviewer's fault must not end the run it judges
            own = self_review(request)
            return Opinion(
                own.decision, f"{own.reason} (the reviewer {name} failed: {type(fault).__name__})"
            ), "self-review"

    def reset(self, reason: str) -> None:
        """Forget the baselines and any latched STOP (a restore, an exploit, another configuration).

        Counts stay.
        """
        self.resets += 1
        self._begin()
        self.verdict = Verdict(Decision.WAIT, None, None, reason, None, self.rows)

    def values(self) -> dict[str, float]:
        """Return the latest value of each metric that has a role, as logged."""
        return {
            name: track.odd if track.nonfinite_row > track.last_row else track.last
            for name, track in self._run.tracks.items()
            if track.last_row or track.nonfinite_row
        }

    @property
    def roles(self) -> dict[str, str]:
        """Return which metric plays which role."""
        return self._run.roles

    @property
    def wait_share(self) -> float:
        """Share of the rows at which the answer was WAIT (1.0 before any row)."""
        return self._waits / self.rows if self.rows else 1.0

    def curve(self, metric: str) -> Sequence[CurvePoint]:
        """Return a metric's bounded history, at most 64 points; empty for one that has no role."""
        track = self._tracks.get(metric)
        if track is None:
            return ()
        curve = track.curve
        return [
            CurvePoint(int(row), step, mean, low, high)
            for row, step, mean, low, high in zip(
                curve.ends, curve.steps, curve.means, curve.lows, curve.highs, strict=True
            )
        ]

    def last_finite(self) -> tuple[int, float | None] | None:
        """Return row and step of the last row whose loss and held-out values were all finite."""
        return self._last_finite

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON-able values; configuration is not part of it."""
        return {
            "version": 1,
            "rows": self.rows,
            "waits": self._waits,
            "resets": self.resets,
            "tracks": [_pack(track.state()) for track in self._run.tracks.values()],
            "trends": {
                name: _pack(astuple(track.trend))
                for name, track in self._run.tracks.items()
                if track.trend is not None
            },
            "ignored": [name for name, track in self._tracks.items() if track is None],
            "order": list(self._tracks),
            "run": [self._run.row, self._run.step, self._run.lr_jump_row],
            "gate": _pack(
                [self._last_finite, self._first_step, self._top_step, self._segment_row, self._silent_at]
            ),
            "answer": _pack_answer(self._answer),
            "verdict": _pack(_verdict_state(self.verdict)),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``.

        The following rows get the same verdicts as without the interruption.
        """
        self.rows, self._waits, self.resets = state["rows"], state["waits"], state["resets"]
        self._begin()
        for packed in state["tracks"]:
            track = Track.from_state(_unpack(packed))
            if (trend := state["trends"].get(track.name)) is not None:
                track.trend = Trend(*_unpack(trend))
            self._run.admit(track)
        for name in state["order"]:
            self._tracks[name] = self._run.tracks.get(name)
        self._run.row, self._run.step, self._run.lr_jump_row = state["run"]
        last, self._first_step, self._top_step, self._segment_row, self._silent_at = _unpack(state["gate"])
        self._last_finite = tuple(last) if last is not None else None
        self._answer = _unpack_answer(state["answer"])
        self.verdict = _verdict_from(_unpack(state["verdict"]))


_NEW: Any = object()
_EXACT = 1 << 53  # whole numbers that a float holds exactly
_DECLARED = 1000  # rank of what the user declared: before any guess
# Names may be without end (a loss per sample, a key per step): what is kept of them is not.
_MOST_NAMES = 4096
_MOST_PER_ROLE = 128


def _declared(settings: Settings) -> dict[str, Guess]:
    """Read declarations written either way: role → metric, or metric → role or "off"."""
    declared: dict[str, Guess] = {}
    for key, target in settings.roles.items():
        role, name = (key, target) if key in ROLES else (target, key)
        if role == "off" or name == "off":
            if role in ROLES and name == "off":
                continue
            declared[name] = Guess(IGNORED, 0, 0)
            continue
        guess = understand(name)
        direction = guess.direction or (1 if role in ("loss", "value_loss", "aux_loss", "eval") else 0)
        if role == "eval" and settings.metric is None and settings.mode is not None:
            direction = 1 if settings.mode == "min" else -1
        kind = guess.kind or ("loss" if "loss" in role else "")
        declared[name] = Guess(role, direction, _DECLARED, kind)
    return declared


def _pack(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _pack(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_pack(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def _unpack(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"float"}:
            return float(value["float"])
        return {key: _unpack(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    return value


def _finding_state(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "judgment": finding.judgment.value}


def _finding_from(state: dict[str, Any]) -> Finding:
    return Finding(**{**state, "judgment": Judgment(state["judgment"])})


def _pack_answer(answer: tuple[Any, ...]) -> Any:
    decision, judgment, rule, reason, findings, by, advice = answer
    judged = judgment.value if judgment is not None else None
    return _pack(
        [decision.value, judged, rule, reason, [_finding_state(item) for item in findings], by, advice]
    )


def _unpack_answer(packed: Any) -> tuple[Any, ...]:
    decision, judgment, rule, reason, findings, by, advice = _unpack(packed)
    judged = Judgment(judgment) if judgment is not None else None
    return (
        Decision(decision),
        judged,
        rule,
        reason,
        tuple(_finding_from(item) for item in findings),
        by,
        advice,
    )


def _verdict_state(verdict: Verdict) -> dict[str, Any]:
    return {
        "answer": _pack_answer(
            (
                verdict.decision,
                verdict.judgment,
                verdict.rule,
                verdict.reason,
                verdict.findings,
                verdict.decided_by,
                verdict.advice,
            )
        ),
        "step": verdict.step,
        "row": verdict.row,
        "metrics": list(verdict.metrics.items()),
        "roles": dict(verdict.roles),
    }


def _verdict_from(state: dict[str, Any]) -> Verdict:
    decision, judgment, rule, reason, findings, by, advice = _unpack_answer(state["answer"])
    return Verdict(
        decision,
        judgment,
        rule,
        reason,
        state["step"],
        state["row"],
        dict(state["metrics"]),
        state["roles"],
        findings,
        by,
        advice,
    )
