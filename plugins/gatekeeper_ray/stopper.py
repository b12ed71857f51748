"""GatekeeperStopper: the gate behind Ray Tune's ``stop=``."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import logging
import uuid
import weakref
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatekeeper.config import ConfigError, Settings, load_settings, settings_from
from gatekeeper.gate import Gate
from gatekeeper.text import for_terminal
from gatekeeper.verdict import Decision, Judgment, Verdict
from ray.tune.stopper import Stopper

from gatekeeper_ray import breaker as circuit
from gatekeeper_ray.active import STALL, Link, announce, link
from gatekeeper_ray.objective import Objective, ReportObjective
from gatekeeper_ray.results import RowReader, config_digest
from gatekeeper_ray.stop_notes import Savings, StopNotes
from gatekeeper_ray.trials import Packed, TrialState, TrialStore
from gatekeeper_ray.wandb_runs import install_hook

if TYPE_CHECKING:
    from ray.tune import TuneConfig

__all__ = ["GatekeeperStopper", "StoppedTrial"]

logger = logging.getLogger("gatekeeper_ray")

STATE_VERSION = 1
STOP = Decision.STOP
STOPS_REMEMBERED = 200  # for the summary; the journal holds them all


@dataclasses.dataclass(frozen=True)
class StoppedTrial:
    """One stop, as the summary at the end of the sweep tells it."""

    trial_id: str
    name: str
    rule: str
    reason: str
    iteration: float | None
    savings: Savings


class GatekeeperStopper(Stopper):
    """Stops the trials of a Ray Tune sweep that are clearly broken, and writes down why.

    Pass it as ``tune.RunConfig(stop=GatekeeperStopper(metric="loss", mode="min"))``; in a CombinedStopper
    put it first, since that one asks no further than the first True. It never raises inside the sweep: a
    fault of its own is logged, counted and reported at the end, and the trial goes on.

    Args:
        metric: The objective's key, as in ``tune.TuneConfig``; nested results as ``"eval/loss"``. None
            infers roles.
        mode: ``"min"`` or ``"max"``.
        notes: Directory of the notes. Default: ``GATEKEEPER_NOTES``, the configuration,
            ``./gatekeeper-notes``; made absolute here, since trials change directory.
        roles: Roles of further metrics, ``{"loss": "train/nll"}``.
        config: Settings, a mapping of settings, or the path of a ``gatekeeper.toml``. Default: the one that
            is found from the working directory upwards.
        reviewer: Who gives the second opinion. Default: the built-in statistical self-review.
        report_objective: What the searcher learns of a stopped trial: ``"keep"`` leaves its last objective
            as reported; ``"worst"`` replaces it by a finite value that is worse than any seen.
        circuit_breaker: After this many trials in a row that were stopped by the same rule while no other is
            healthy, give up the experiment: running trials are stopped at their next result, new ones at
            their first. None (default): never.
        max_trials: How many trials are remembered in full (at most 16 KB each). Beyond it, which only
            happens without GatekeeperCallback, the longest silent ones are packed, and beyond four times as
            many dropped.
        budget_rows: How many results a whole trial reports, to tell what is early and what a stop saved.

    Raises:
        ConfigError: The arguments or the configuration cannot be used. Only here, before the sweep begins.

    """

    def __init__(
        self,
        metric: str | None = None,
        mode: str | None = None,
        *,
        notes: str | Path | None = None,
        roles: Mapping[str, str] | None = None,
        config: Settings | Mapping[str, Any] | str | Path | None = None,
        reviewer: Any = None,
        report_objective: ReportObjective = "keep",
        circuit_breaker: int | None = None,
        max_trials: int = 1000,
        budget_rows: float | None = None,
    ) -> None:
        if mode not in (None, "min", "max"):
            raise ConfigError(f"mode is {mode!r}; use 'min' or 'max'")
        if report_objective not in ("keep", "worst"):
            raise ConfigError(f"report_objective is {report_objective!r}; use 'keep' or 'worst'")
        for name, number in (("circuit_breaker", circuit_breaker), ("max_trials", max_trials)):
            if number is not None and (type(number) is not int or number < 1):
                raise ConfigError(f"{name} is {number!r}; use a number of trials, at least 1")
        from gatekeeper.notes import notes_dir

        settings = _settings(config)
        metric, mode = metric or settings.metric, mode or settings.mode
        if report_objective == "worst" and (metric is None or mode is None):
            raise ConfigError("report_objective='worst' needs metric and mode: pass both, as in TuneConfig")
        if budget_rows is None:
            budget_rows = settings.budget_steps
        elif settings.budget_steps is None:
            settings = dataclasses.replace(settings, budget_steps=float(budget_rows))
        self.uid = uuid.uuid4().hex
        self._gate_arguments: dict[str, Any] = {
            "metric": metric,
            "mode": mode,
            "roles": dict(roles) if roles else None,
            "config": settings,
            "reviewer": reviewer,
        }
        self._make_gate()  # a setting that cannot be used is said now, not in the middle of the sweep
        self._notes = StopNotes(notes_dir(notes, settings))
        self._budget_rows = budget_rows
        self._objective = Objective(metric, mode, report_objective)
        self._breaker = circuit.CircuitBreaker(circuit_breaker)
        self._trials = TrialStore(max_trials, self._make_gate)
        self._calls = 0
        self._stops: deque[StoppedTrial] = deque(maxlen=STOPS_REMEMBERED)
        self._stopped_by: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._awake()

    @classmethod
    def for_tune(cls, tune_config: TuneConfig, **arguments: Any) -> GatekeeperStopper:
        """Make a Stopper for a TuneConfig: its metric and mode or its scheduler's, with ``max_t`` as budget.

        Ray gives a Stopper no TuneConfig, so it has to be passed here. ``arguments`` are those of the class.
        """
        scheduler = tune_config.scheduler
        metric = tune_config.metric or getattr(scheduler, "metric", None)
        mode = tune_config.mode or getattr(scheduler, "_mode", None)
        if getattr(scheduler, "_time_attr", None) == "training_iteration":
            arguments.setdefault("budget_rows", getattr(scheduler, "_max_t", None))
        if getattr(scheduler, "_synch", False):
            logger.warning(STALL)
        arguments.setdefault("metric", metric)
        arguments.setdefault("mode", mode)
        return cls(**arguments)

    # What Ray calls

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether the trial should end now."""
        try:
            return self._judge(trial_id, result)
        except Exception as fault:  # noqa: BLE001 - an exception here would abort the whole experiment
            self._fault("judging a result", fault)
            return False

    def stop_all(self) -> bool:
        """Return True only once the circuit breaker has tripped and its trials have ended one by one.

        Trials that Ray ends because of this get no ``on_trial_complete``, and logger callbacks then wait for
        them.
        """
        if self._idle:  # Ray asks in every step of its loop
            return False
        try:
            return self._look_around()
        except Exception as fault:  # noqa: BLE001 - as above
            self._fault("looking at the experiment", fault)
            return False

    def _look_around(self) -> bool:
        if not self._entered:
            self._enter()
        if self._notes.waiting:
            self._notes.amend(self._link.runs, self._siblings())
        self._idle = not (self._notes.waiting or self._breaker.tripped)
        return self._breaker.tripped and self._all_ended()

    def __bool__(self) -> bool:
        return True  # Ray drops a `stop` that is falsy

    # Judging

    def _judge(self, trial_id: str, result: dict[str, Any]) -> bool:
        iteration = result.get("training_iteration")
        done = result.get("done", False)
        state = self._trials.live.get(trial_id)
        if iteration is None:  # a trainable that never reported
            if state is not None:
                self._trials.drop(trial_id)
            return False
        since_restore = result.get("iterations_since_restore")
        if state is None:
            state = self._admit(trial_id, result)
        if state.heard:
            if done and iteration == state.iteration and since_restore == state.since_restore:
                # A function trainable returned: Ray sends its last result once more.
                return self._ended(trial_id, state)
            if since_restore == 1:
                self._restarted(state, iteration, result)
            if state.stopped:
                return True
        self._calls = state.heard = self._calls + 1
        state.iteration = iteration
        state.since_restore = since_restore
        row = self._rows.read(result)
        if self._objective.report == "worst":
            self._objective.see(row.get(self._objective.metric or ""))
        verdict = state.gate.observe(iteration, row)
        if verdict.decision is STOP:
            return self._stop(trial_id, state, result, verdict)
        if self._breaker.reason is not None:
            return self._stop(trial_id, state, result, self._given_up(verdict, state, iteration))
        checkpoint = result.get("checkpoint_dir_name")
        if checkpoint and checkpoint != state.checkpoint:
            self._keep_checkpoint(state, checkpoint)
        if done:
            self._ended(trial_id, state)
        return False

    def _admit(self, trial_id: str, result: dict[str, Any]) -> TrialState:
        try:
            state = self._trials.admit(trial_id)
        except Exception as fault:  # noqa: BLE001 - a state of another version: start over, never stop for it
            self._fault("reading a trial's saved state", fault)
            state = self._trials.admit(trial_id)
        if state.config is None:
            state.config = config_digest(result.get("config"))
        return state

    def _restarted(self, state: TrialState, iteration: float, result: dict[str, Any]) -> None:
        """Decide whether a trial that comes from a checkpoint goes on where it was.

        After a pause it does. After a crash or a restore of the experiment it repeats rows, and after a PBT
        exploit it goes on with another trial's weights and other hyperparameters: then what the gate knew is
        no measure any more.
        """
        config = config_digest(result.get("config"))
        if config != state.config:
            state.gate.reset("the trial took over another configuration and checkpoint")
        elif state.iteration is None or iteration != state.iteration + 1:
            state.gate.reset("the trial was restored from an earlier checkpoint")
        elif state.stopped:
            state.gate.reset("the trial was started again after a stop")
        state.config = config
        state.stopped = False

    def _ended(self, trial_id: str, state: TrialState) -> bool:
        self.trial_ended(trial_id)
        return state.stopped

    def _keep_checkpoint(self, state: TrialState, checkpoint: str) -> None:
        finite = state.gate.last_finite()
        if finite is not None and finite[0] == state.gate.rows:
            state.checkpoint = checkpoint

    # Stopping

    def _given_up(self, verdict: Verdict, state: TrialState, iteration: float) -> Verdict:
        self._breaker.stopped_after += 1
        return dataclasses.replace(
            verdict,
            decision=Decision.STOP,
            judgment=Judgment.CLEARLY_BAD,
            rule=circuit.RULE,
            reason=self._breaker.reason or "",
            step=iteration,
            row=state.gate.rows,
            decided_by=circuit.RULE,
        )

    def _stop(self, trial_id: str, state: TrialState, result: dict[str, Any], verdict: Verdict) -> bool:
        """Stop a trial: what fails on the way is counted, and the trial is stopped all the same."""
        state.stopped = True
        self._idle = False
        with self._guarded("telling of a stop"):
            self._tell(trial_id, state, result, verdict)
        return True

    def _tell(self, trial_id: str, state: TrialState, result: dict[str, Any], verdict: Verdict) -> None:
        """Write a stop into the log, the trial's result and the notes, and count it."""
        rule, reason = verdict.rule or "unnamed", verdict.reason
        facts = self._link.facts.get(trial_id)
        name = facts.name if facts else trial_id
        savings = Savings.of(state.gate.rows, result.get("time_total_s"), self._budget_rows)
        self._stops.append(StoppedTrial(trial_id, name, rule, reason, state.iteration, savings))
        self._stopped_by[rule] += 1
        logger.warning(
            "gatekeeper stopped trial %s at iteration %s: %s",
            for_terminal(name),
            state.iteration,
            for_terminal(reason),
        )
        with self._guarded("writing the verdict into the result"):
            result["gatekeeper/decision"] = Decision.STOP.value
            result["gatekeeper/rule"] = rule
            result["gatekeeper/reason"] = reason
            if state.checkpoint:
                result["gatekeeper/last_finite_checkpoint"] = state.checkpoint
            reported = self._objective.rewrite(result)
            if reported is not None:
                result["gatekeeper/reported_objective"] = reported
        with self._guarded("writing the note"):
            self._note(trial_id, state, result.get("config"), verdict, savings)
        if rule != circuit.RULE and self._breaker.trial_stopped(rule, healthy=self._trials.healthy()):
            logger.error("gatekeeper gives up the experiment: %s", for_terminal(self._breaker.reason or ""))
        state.gate = self._make_gate()  # all is written; what the gate knew is not needed any more

    def _note(
        self, trial_id: str, state: TrialState, config: object, verdict: Verdict, savings: Savings
    ) -> None:
        from gatekeeper.notes import stop_note

        facts = self._link.facts.get(trial_id)
        checkpoint = state.checkpoint
        if checkpoint and facts and facts.directory and "/" not in checkpoint:
            checkpoint = f"{facts.directory}/{checkpoint}"
        make = functools.partial(
            stop_note,
            verdict,
            gate=state.gate,
            run_id=trial_id,
            run_name=facts.name if facts else None,
            experiment=facts.experiment if facts else None,
            config=config,
            rows_used=savings.rows,
            rows_saved=savings.rows_saved,
            seconds_used=savings.seconds,
            seconds_saved=savings.seconds_saved,
            last_finite_checkpoint=checkpoint,
        )
        self._notes.write(make, trial_id, self._link.runs, self._siblings())

    def _siblings(self) -> list[str]:
        return [*self._link.facts, *self._trials.live]

    def _all_ended(self) -> bool:
        if not self._trials.all_stopped():
            return False
        if self._link.has_callback:
            return not self._link.facts
        # Without the callback nobody says which trials have started: give as many as broke it the time to
        # end cleanly.
        return self._breaker.stopped_after >= (self._breaker.limit or 1)

    # What GatekeeperCallback tells

    def trial_ended(self, trial_id: str) -> None:
        """Forget a trial that has ended, however it ended."""
        self._breaker.trial_ended(healthy=bool(self._trials.drop(trial_id)))

    def trial_failed(self, trial_id: str) -> None:
        """Forget a trial that ended with an error: neither healthy nor stopped by a rule."""
        self._trials.drop(trial_id)

    def trial_saved(self, trial_id: str, checkpoint: str) -> None:
        """Remember a checkpoint that was made after the trial's last result, if that result was finite."""
        state = self._trials.live.get(trial_id)
        if state is not None and not state.stopped:
            self._keep_checkpoint(state, checkpoint)

    def experiment_ended(self) -> None:
        """Write what still waits; the summary follows."""
        with self._guarded("completing the notes"):
            self._notes.finish(self._link.runs, self._siblings())
        self._faults_said = sum(self._faults.values())

    # What is known

    @property
    def stops(self) -> list[StoppedTrial]:
        """The trials stopped so far, the latest 200."""
        return list(self._stops)

    @property
    def stopped_by(self) -> dict[str, int]:
        """How many trials each rule has stopped."""
        return dict(self._stopped_by)

    @property
    def faults(self) -> dict[str, int]:
        """How often something of the gate's own failed, by what it was doing."""
        return dict(self._faults)

    @property
    def notes_directory(self) -> Path:
        """Where the notes are."""
        return self._notes.directory

    @property
    def results_seen(self) -> int:
        """How many results were judged so far."""
        return self._calls

    @property
    def given_up(self) -> str | None:
        """Why the circuit breaker tripped, or None."""
        return self._breaker.reason

    # Faults

    @contextlib.contextmanager
    def _guarded(self, doing: str) -> Any:
        try:
            yield
        except Exception as fault:  # noqa: BLE001 - counted and said; the sweep goes on
            self._fault(doing, fault)

    def _fault(self, doing: str, fault: Exception) -> None:
        self._faults[doing] += 1
        count = self._faults[doing]
        if count == 1 or str(count).rstrip("0") == "1":  # the 1st, 10th, 100th …
            logger.error(
                "gatekeeper: a fault of its own while %s (time %d; no trial is stopped for it): %s: %s",
                doing,
                count,
                type(fault).__name__,
                for_terminal(str(fault)),
                exc_info=fault if count == 1 else None,
            )

    # State

    def _make_gate(self) -> Gate:
        return Gate(**self._gate_arguments)

    def _awake(self) -> None:
        """Set what belongs to this process and is never saved."""
        self._entered = False
        self._idle = False  # whether there is nothing for stop_all to look at
        self._faults_said = 0
        self._rows = RowReader()
        self._link: Link = link(self.uid)
        announce(self.uid)
        with self._guarded("asking Ray for the W&B runs"):
            install_hook()

    def _enter(self) -> None:
        self._entered = True
        self._link.enter(self)
        atexit.register(_last_words, weakref.ref(self))

    def __getstate__(self) -> dict[str, Any]:
        trials: dict[str, Packed] = {}
        with self._guarded("saving the trials' state"):
            trials.update(self._trials.snapshot())
        return {
            "version": STATE_VERSION,
            "uid": self.uid,
            "gate_arguments": self._gate_arguments,
            "notes": self._notes,
            "budget_rows": self._budget_rows,
            "objective": (
                self._objective.metric,
                self._objective.mode,
                self._objective.report,
                self._objective.state(),
            ),
            "breaker": (self._breaker.limit, self._breaker.state()),
            "cap": self._trials.cap,
            "trials": trials,
            "calls": self._calls,
            "stops": list(self._stops),
            "stopped_by": dict(self._stopped_by),
            "faults": dict(self._faults),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.uid = state["uid"]
        self._gate_arguments = state["gate_arguments"]
        self._notes = state["notes"]
        self._budget_rows = state["budget_rows"]
        metric, mode, report, seen = state["objective"]
        self._objective = Objective(metric, mode, report)
        self._objective.load(seen)
        limit, row = state["breaker"]
        self._breaker = circuit.CircuitBreaker(limit)
        self._breaker.load(row)
        self._trials = TrialStore(state["cap"], self._make_gate)
        self._trials.packed = dict(state["trials"])
        self._calls = state["calls"]
        self._stops = deque(state["stops"], maxlen=STOPS_REMEMBERED)
        self._stopped_by = Counter(state["stopped_by"])
        self._faults = Counter(state["faults"])
        self._awake()


def _settings(config: Settings | Mapping[str, Any] | str | Path | None) -> Settings:
    if isinstance(config, (str, Path)):
        return load_settings(Path(config))
    if config is None:
        return load_settings()
    return config if isinstance(config, Settings) else settings_from(config)


def _last_words(reference: weakref.ref[GatekeeperStopper]) -> None:
    """At exit, where no callback has said it: what went wrong."""
    stopper = reference()
    if stopper is None:
        return
    unsaid = sum(stopper._faults.values()) - stopper._faults_said
    if unsaid > 0:
        logger.error(
            "gatekeeper: %d faults of its own in this sweep (no trial was stopped for one): %s",
            unsaid,
            stopper.faults,
        )
