"""Standard output and error that any text, any terminal and a reader that leaves can do nothing to."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

import click

from gatekeeper.errors import GatekeeperError

__all__ = ["complain", "discard_stdout", "prepare", "say", "settle", "unicode_output"]


def prepare() -> None:
    """Let no character fail: what a stream's encoding lacks is printed as its escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def unicode_output() -> bool:
    """Say whether standard output can draw with more than ASCII."""
    return "utf" in (getattr(sys.stdout, "encoding", None) or "ascii").lower()


def say(text: str, *, nl: bool = True) -> None:
    """Print a result; a reader that has left (``| head -1``) changes nothing about the verdict.

    Raises:
        GatekeeperError: Standard output takes no more, as on a full disk.

    """
    try:
        click.echo(text, sys.stdout, nl=nl)  # the stream itself: click would write UTF-8 to an ASCII one
    except BrokenPipeError:
        discard_stdout()
    except OSError as fault:
        discard_stdout()
        raise GatekeeperError(f"standard output cannot be written: {fault.strerror or fault}") from fault


def complain(kind: str, text: object) -> None:
    """Print one line on standard error: ``gatekeeper: KIND: TEXT``, without secrets or escapes."""
    from gatekeeper.redact import redact_text
    from gatekeeper.text import for_terminal

    if sys.stderr is not None:  # for which click would take standard output
        with suppress(OSError):
            click.echo(f"gatekeeper: {kind}: {for_terminal(redact_text(text))}", sys.stderr)


def discard_stdout() -> None:
    """Send what is still to be printed nowhere, so that nothing fails again at the end."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def settle(code: int) -> int:
    """Empty standard output before the interpreter does, whose own failure would change the exit code."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    except (OSError, ValueError) as fault:
        discard_stdout()
        complain("error", f"standard output cannot be written: {getattr(fault, 'strerror', None) or fault}")
        return 2
    return code
