"""The command line: a lazy group whose commands live one per module, and in plugins."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from gatekeeper.cli.output import complain, discard_stdout, prepare, settle
from gatekeeper.errors import GatekeeperError, Unreachable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["BUILT_IN", "cli", "main"]

BUILT_IN = ("check", "backtest", "baseline", "run", "rules", "notes", "init")
PLUGIN_GROUP = "gatekeeper.commands"
COMPLETION = "_GATEKEEPER_COMPLETE"


class LazyGroup(click.Group):
    """Imports a command's module only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the built-in commands, then those of plugins that load."""
        plugins = (name for name in sorted(_plugins()) if name not in BUILT_IN)
        return [*BUILT_IN, *(name for name in plugins if self.get_command(ctx, name) is not None)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one command; a plugin that fails to load says so and breaks nothing else."""
        if cmd_name not in self.commands:
            if cmd_name in BUILT_IN:
                self.add_command(importlib.import_module(f"gatekeeper.cli.{cmd_name}").command, cmd_name)
            elif (point := _plugins().get(cmd_name)) is not None:
                try:
                    loaded = point.load()
                    if not isinstance(loaded, click.Command):
                        raise TypeError(f"{point.value} is no click command")
                except (Exception, SystemExit) as fault:  # noqa: BLE001 - third-party code
                    complain("warning", f"the plugin command {cmd_name!r} does not load: {_named(fault)}")
                    return None
                self.add_command(loaded, cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant, or name the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as fault:
            from difflib import get_close_matches

            if near := get_close_matches(args[0], [*BUILT_IN, *_plugins()], n=1):
                raise click.UsageError(f"{fault.message} Did you mean {near[0]!r}?", ctx) from None
            raise


def _plugins() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=PLUGIN_GROUP)}


@click.group(
    cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="sweep-gatekeeper", prog_name="gatekeeper")
@click.pass_context
def cli(context: click.Context) -> None:
    """Judge training runs: STOP, CONTINUE or WAIT, with evidence."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(2)


def main() -> None:
    """Run the command; exit codes: 0 CONTINUE, 1 STOP, 2 usage or error, 3 WAIT, 130 interrupted."""
    prepare()
    sys.exit(settle(_run()))


def _run() -> int:
    """Run the command as click would, but for the exit codes: with click a crash or a closed pipe exits 1."""
    try:
        if instruction := os.environ.get(COMPLETION):
            from click.shell_completion import shell_complete

            return shell_complete(cli, {}, "gatekeeper", COMPLETION, instruction)
        color = False if os.environ.get("NO_COLOR") else True if os.environ.get("FORCE_COLOR") else None
        with cli.make_context("gatekeeper", sys.argv[1:], color=color) as context:
            outcome = cli.invoke(context)
        return outcome if type(outcome) is int else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0)
        complain("error", end.code)
    except click.UsageError as fault:
        _show_usage(fault)
    except click.ClickException as fault:
        complain("error", fault.format_message())
    except Unreachable as fault:
        complain("unreachable", fault)
        return 3
    except GatekeeperError as fault:
        complain("error", fault)
    except (KeyboardInterrupt, click.Abort):
        with suppress(OSError):
            click.echo("gatekeeper: interrupted", err=True)
        return 130
    except BrokenPipeError:
        discard_stdout()
        return 0
    except BaseException as fault:  # noqa: BLE001 - a crash must exit 2 and not look like a STOP (1)
        if os.environ.get("GATEKEEPER_DEBUG"):
            from traceback import print_exc

            print_exc()
        complain("internal error", f"{_named(fault)} (set GATEKEEPER_DEBUG=1 for the traceback)")
    return 2


def _show_usage(fault: click.UsageError) -> None:
    if isinstance(fault, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        fault.show()
        return
    if fault.ctx is not None:
        click.echo(fault.ctx.get_usage(), err=True)
    complain("error", fault.format_message())


def _named(fault: BaseException) -> str:
    return f"{type(fault).__name__}: {fault}"
