"""What the rules read of a run: its metrics by role, and where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gatekeeper.signals.track import Track

if TYPE_CHECKING:
    from gatekeeper.config import Settings

__all__ = ["RunState"]

_GAME_ROLES = frozenset({"value_loss", "mc_return", "explained_variance", "aux_loss"})
_NONE: list[Track] = []


class RunState:
    """All tracks of one run. The rules read it; only the gate writes it."""

    __slots__ = (
        "_best",
        "_by_role",
        "is_game_by_roles",
        "lr_jump_row",
        "objective_name",
        "row",
        "settings",
        "step",
        "tracks",
        "watched",
    )

    def __init__(self, settings: Settings, objective_name: str | None) -> None:
        self.settings = settings
        self.objective_name = objective_name
        self.tracks: dict[str, Track] = {}
        self.row = 0
        self.step: float | None = None
        self.lr_jump_row = 0
        self._best: dict[str, Track] = {}
        self._by_role: dict[str, list[Track]] = {}
        self.is_game_by_roles = False
        self.watched: list[Track] = []

    def admit(self, track: Track) -> None:
        """Add a metric that appeared for the first time."""
        self.tracks[track.name] = track
        role = track.guess.role
        self._by_role.setdefault(role, []).append(track)
        self.is_game_by_roles = self.is_game_by_roles or role in _GAME_ROLES
        if track.watch:
            self.watched.append(track)
        best = self._best.get(role)
        if best is None or track.guess.rank > best.guess.rank:
            self._best[role] = track

    def role(self, role: str) -> Track | None:
        """Return the best candidate for a role."""
        return self._best.get(role)

    def all(self, role: str) -> list[Track]:
        """Return every metric that has the role, in the order of their appearance."""
        return self._by_role.get(role, _NONE)

    @property
    def loss(self) -> Track | None:
        """The training loss."""
        return self._best.get("loss")

    @property
    def objective(self) -> Track | None:
        """The declared objective, else the best held-out measure, else (without a loss) a training score."""
        if self.objective_name is not None:
            declared = self.tracks.get(self.objective_name)
            if declared is not None:
                return declared
        best = self._best.get("eval")
        return best if best is not None or "loss" in self._best else self._best.get("train_metric")

    @property
    def is_game(self) -> bool:
        """Whether losses are those of a game (reinforcement learning, GAN).

        They may rise while all is well.
        """
        objective = self.objective
        if objective is not None and objective.guess.kind == "return":
            return True
        return self.is_game_by_roles

    @property
    def budget_share(self) -> float | None:
        """The share of the planned steps that is done; None where no budget is known."""
        budget = self.settings.budget_steps
        if not budget or self.step is None:
            return None
        return self.step / budget

    @property
    def roles(self) -> dict[str, str]:
        """Which metric plays which role."""
        named = {role: track.name for role, track in self._best.items()}
        objective = self.objective
        if objective is not None:
            named["eval" if objective.guess.role != "loss" else "loss"] = objective.name
        return named
