"""Weights & Biases as sources: what the core asks before wandb, or even the reader, is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gatekeeper.sources.base import Source, SourceOptions

__all__ = ["SPEC", "WandbSources"]


class WandbSources:
    """Opens runs on a server, whole projects, `.wandb` files and the SDK's run directories."""

    file_suffixes: tuple[str, ...] = (".wandb", ".wandb.gz")

    def matches(self, spec: str) -> bool:
        """Say whether ``spec`` names a run or project on a W&B server (an existing path was tried before)."""
        from gatekeeper_wandb.specs import matches

        return matches(spec)

    def open(self, spec: str, options: SourceOptions | None = None) -> list[Source]:
        """Return the run that ``spec`` names, or all runs of the project.

        A run is not asked for before its rows are; a project is.

        Raises:
            GatekeeperError: The spec names neither.
            Unreachable: The project's server did not answer within the deadline.

        """
        from gatekeeper_wandb.reading import WandbRunSource, project_runs
        from gatekeeper_wandb.specs import parse

        named = parse(spec)
        if named.run_id is None:
            return list(project_runs(named, options))
        return [WandbRunSource(named, options, name=spec.strip())]

    def open_path(self, path: Path, options: SourceOptions | None = None) -> Source:
        """Return a `.wandb` file as a source; a directory stands for the newest run in it."""
        from gatekeeper_wandb.dotwandb import DotWandbSource

        if path.is_dir():
            return self.open_dir(path, options)[-1]
        return DotWandbSource(path, options)

    def open_dir(self, path: Path, options: SourceOptions | None = None) -> list[Source]:
        """Return the runs of a run directory or of a `wandb` folder, oldest first.

        Raises:
            SourceError: There is none.

        """
        from gatekeeper.errors import SourceError

        from gatekeeper_wandb.dotwandb import DotWandbSource, run_files

        files = run_files(path)
        if not files:
            raise SourceError(f"{path}: no run-*.wandb file in it")
        return [DotWandbSource(file, options) for file in files]

    def matches_dir(self, path: Path) -> bool:
        """Say whether a directory is one the SDK made for a run, or a `wandb` folder that holds such."""
        from gatekeeper_wandb.dotwandb import is_run_directory

        return is_run_directory(path) or any(is_run_directory(entry) for entry in path.glob("*run-*"))


SPEC = WandbSources()
