"""What long work is at, on standard error and only at a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

__all__ = ["progress"]

QUIET_S = 2.0  # work that ends sooner says nothing
REFRESH_S = 0.5


@contextmanager
def progress(describe: Callable[[], str]) -> Iterator[None]:
    """Show what ``describe`` returns, again and again, until the work inside is done.

    Silent where standard error is no terminal, and where standard output is one: the results themselves are
    seen to come there.
    """
    if sys.stderr is None or not sys.stderr.isatty() or (sys.stdout is not None and sys.stdout.isatty()):
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(describe, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _show(describe: Callable[[], str], done: threading.Event) -> None:
    if done.wait(QUIET_S):
        return
    while True:
        click.echo(f"\r\033[K{describe()}", nl=False, err=True, color=True)
        if done.wait(REFRESH_S):
            break
    click.echo("\r\033[K", nl=False, err=True, color=True)
