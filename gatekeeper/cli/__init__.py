"""The command line: a lazy group whose commands live one per module, and in plugins."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import EntryPoint, entry_points

import click

from gatekeeper.errors import GatekeeperError, Unreachable

__all__ = ["main"]

BUILT_IN = ("check", "backtest", "baseline", "run", "rules", "notes", "init")
PLUGIN_GROUP = "gatekeeper.commands"


class LazyGroup(click.Group):
    """Imports a command's module only when that command is asked for."""

    def _plugins(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=PLUGIN_GROUP)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of built-in and plugin commands, in table order."""
        return [*BUILT_IN, *(name for name in sorted(self._plugins()) if name not in BUILT_IN)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one command; a plugin that fails to load says so and breaks nothing else."""
        if cmd_name in BUILT_IN:
            command = importlib.import_module(f"gatekeeper.cli.{cmd_name}").command
            return command if isinstance(command, click.Command) else None
        point = self._plugins().get(cmd_name)
        if point is None:
            return None
        try:
            loaded = point.load()
        except Exception as fault:  # noqa: BLE001 - third-party code: report, never break the command
            click.echo(f"gatekeeper: warning: the plugin command {cmd_name!r} does not load: {fault}", err=True)
            return None
        return loaded if isinstance(loaded, click.Command) else None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sweep-gatekeeper", prog_name="gatekeeper")
def cli() -> None:
    """Judge training runs: STOP, CONTINUE or WAIT, with evidence."""


def main() -> None:
    """Run the command; exit codes: 0 CONTINUE, 1 STOP, 2 usage or error, 3 WAIT, 130 interrupted."""
    sys.exit(_run())


def _run() -> int:
    try:
        color = True if os.environ.get("FORCE_COLOR") else None
        if os.environ.get("NO_COLOR"):
            color = False
        outcome = cli.main(standalone_mode=False, color=color)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as fault:
        fault.show()
        return 2
    except click.ClickException as fault:
        click.echo(f"gatekeeper: error: {fault.format_message()}", err=True)
        return 2
    except Unreachable as fault:
        click.echo(f"gatekeeper: unreachable: {fault}", err=True)
        return 3
    except GatekeeperError as fault:
        click.echo(f"gatekeeper: error: {fault}", err=True)
        return 2
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as fault:  # noqa: BLE001 - a crash must exit 2 and not look like a STOP (1)
        if os.environ.get("GATEKEEPER_DEBUG"):
            raise
        click.echo(
            f"gatekeeper: internal error: {type(fault).__name__}: {fault} (set GATEKEEPER_DEBUG=1 for the traceback)",
            err=True,
        )
        return 2
    return outcome if isinstance(outcome, int) else 0
