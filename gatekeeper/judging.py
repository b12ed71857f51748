"""Feed a source to a gate: the one loop behind check, backtest and CI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gatekeeper.errors import GatekeeperError, Unreachable
from gatekeeper.gate import Gate
from gatekeeper.roles import ROLES
from gatekeeper.sources.base import Source

__all__ = ["Judged", "judge_source"]


@dataclass
class Judged:
    """A source and what the gate says of it. ``rows`` counts all rows the source holds, also after a STOP."""

    source: str
    gate: Gate
    rows: int = 0
    run_url: str | None = None
    run_state: str | None = None
    reachable: bool = True
    error: str | None = None
    skipped: int = 0
    skipped_examples: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Return the metrics that were declared and never logged (a STOP leaves that open)."""
        settings, seen = self.gate.settings, self.gate.values()
        names = [settings.metric, *_declared(settings.roles)] if not self.gate.verdict.stopped else []
        return [name for name in dict.fromkeys(names) if name and name not in seen]

    def warnings(self) -> list[str]:
        """Return a sentence for each of them, with the name that was probably meant."""
        return [self._never_logged(name) for name in self.missing()]

    def _never_logged(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name, self.gate.values(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"{self.source} never logged the metric {name!r}{hint}"

    def charted(self) -> str | None:
        """Return the metric whose curve to show: the one that decided a STOP, else the loss."""
        gate = self.gate
        verdict, roles = gate.verdict, gate.roles
        if verdict.stopped:
            for finding in verdict.findings:
                if finding.rule == verdict.rule and finding.metric and len(gate.curve(finding.metric)) > 1:
                    return finding.metric
        return (
            roles.get("loss") or roles.get("eval") or gate.settings.metric or next(iter(roles.values()), None)
        )


def judge_source(source: Source, gate: Gate) -> Judged:
    """Judge a source from its first row, as if live; what cannot be read is said in the result."""
    judged = Judged(source.name, gate)
    rows = 0
    observe = gate.observe
    try:
        stream = iter(source.rows())
        for step, metrics in stream:
            rows += 1
            if observe(step, metrics).stopped:
                break
        for _ in stream:  # how much a STOP saves is counted from all rows
            rows += 1
    except Unreachable as fault:
        judged.reachable = False
        judged.error = str(fault)
    except GatekeeperError as fault:
        judged.error = str(fault)
    except Exception as fault:  # a plugin's reader, or ours: the other sources are still judged
        import logging

        logging.getLogger(__name__).debug("%s", source.name, exc_info=True)
        judged.error = f"{source.name} cannot be judged: internal error: {type(fault).__name__}: {fault}"
    judged.rows = rows
    judged.run_url = source.run_url
    judged.run_state = source.run_state
    judged.skipped = source.skipped
    judged.skipped_examples = tuple(source.skipped_examples)
    return judged


def _declared(roles: Mapping[str, str]) -> list[str]:
    """Return the metrics' names of declarations written either way: role → metric, or metric → role."""
    pairs = [(role, name) if role in ROLES else (name, role) for role, name in roles.items()]
    return [name for role, name in pairs if "off" not in (role, name)]
