"""Third-party packages beside the command: broken ones, and ones that crash."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

MODULE = """
import sys
import click

@click.command()
def works():
    "Do nothing."
    click.echo("worked")

@click.command()
def crashes():
    raise RuntimeError("boom\\n::error::x")

@click.command()
def quits():
    raise SystemExit("no luck")

@click.command()
def answers_true():
    return True

@click.command()
def judges():
    return 3

not_a_command = object()

class Source:
    name, run_url, run_state, skipped, skipped_examples = "odd://run", None, None, 0, []

    def rows(self):
        yield 1, {"loss": 1.0}
        raise IndexError("of the plugin")

class Spec:
    file_suffixes = ()

    def matches(self, spec):
        return spec.startswith("odd://")

    def matches_dir(self, path):
        return False

    def open(self, spec, options):
        return [Run("first"), Run("second")] if spec == "odd://project" else [Source()]

class Run(Source):
    def __init__(self, name):
        self.name = name

    def rows(self):
        for step in range(100):
            yield step, {"loss": 0.5 + 2.0 / (1 + step)}

spec = Spec()
"""


@pytest.fixture
def plugins(tmp_path: Path) -> str:
    """A PYTHONPATH with a package that registers commands and sources, some of them broken."""
    site = tmp_path / "site"
    info = site / "someone_elses-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: someone-elses\nVersion: 1.0\n")
    (site / "someone_elses.py").write_text(MODULE)
    (site / "someone_exits.py").write_text("raise SystemExit('not today')")
    commands = {name: f"someone_elses:{name}" for name in ("works", "crashes", "quits", "judges")}
    commands |= {"true": "someone_elses:answers_true", "odd": "someone_elses:not_a_command"}
    commands |= {"absent": "not_installed_anywhere:command", "exits": "someone_exits:command"}
    commands["check"] = "not_installed_anywhere:command"  # a built-in command is not replaced
    entries = ["[gatekeeper.commands]", *(f"{name} = {target}" for name, target in commands.items())]
    entries += ["[gatekeeper.sources]", "absent = not_installed_anywhere:SPEC", "odd = someone_elses:spec"]
    (info / "entry_points.txt").write_text("\n".join(entries) + "\n")
    return str(site)


def test_broken_plugins_break_nothing_else(gatekeeper: Run, plugins: str, logs: dict[str, str]) -> None:
    assert gatekeeper("check", logs["STOP"], PYTHONPATH=plugins).returncode == 1
    help_text = gatekeeper("--help", PYTHONPATH=plugins)
    listed = [line.split()[0] for line in help_text.stdout.split("Commands:\n")[1].splitlines()]
    assert help_text.returncode == 0
    assert {"check", "backtest", "works", "crashes"} <= set(listed)
    assert not {"odd", "absent", "exits"} & set(listed)
    for name in ("odd", "absent", "exits"):
        assert (
            help_text.stderr.count(f"gatekeeper: warning: the plugin command '{name}' does not load: ") == 1
        )
    works = gatekeeper("works", PYTHONPATH=plugins)
    assert (works.returncode, works.stdout, works.stderr) == (0, "worked\n", "")


def test_a_broken_source_plugin_is_named(gatekeeper: Run, plugins: str, logs: dict[str, str]) -> None:
    done = gatekeeper("check", "nothing/of-the-kind", logs["STOP"], PYTHONPATH=plugins)
    assert done.returncode == 1
    assert done.stdout.startswith("STOP  bad.jsonl")
    assert "gatekeeper: warning: source plugin absent does not work" in done.stderr


def test_a_reader_that_crashes_is_an_error_of_its_source(
    gatekeeper: Run, plugins: str, logs: dict[str, str]
) -> None:
    done = gatekeeper("check", "odd://run", logs["CONTINUE"], PYTHONPATH=plugins)
    assert done.returncode == 2
    assert done.stdout.startswith("CONTINUE  good.jsonl")
    words = "gatekeeper: error: odd://run cannot be judged: internal error: IndexError: of the plugin\n"
    assert words in done.stderr


def test_a_project_is_replayed_run_by_run(gatekeeper: Run, plugins: str, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("source,expected\nodd://project,continue\n")
    done = gatekeeper("backtest", "runs.csv", PYTHONPATH=plugins)
    first, second, *_ = done.stdout.splitlines()
    assert done.returncode == 0
    assert first.startswith("CONTINUE ")
    assert (first.split()[-1], second.split()[-1]) == ("first", "second")
    assert "  quiet        2 of 2     ended well, and ended with CONTINUE" in done.stdout


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("crashes", 2, "gatekeeper: internal error: RuntimeError: boom ::error::x (set GATEKEEPER_DEBUG=1"),
        ("quits", 2, "gatekeeper: error: no luck"),
        ("absent", 2, "gatekeeper: error: No such command 'absent'."),
        ("true", 0, ""),
        ("judges", 3, ""),
    ],
)
def test_no_crash_looks_like_a_stop(gatekeeper: Run, plugins: str, name: str, code: int, words: str) -> None:
    done = gatekeeper(name, PYTHONPATH=plugins)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_traceback_of_a_crash_on_request(gatekeeper: Run, plugins: str) -> None:
    done = gatekeeper("crashes", PYTHONPATH=plugins, GATEKEEPER_DEBUG="1")
    assert done.returncode == 2
    assert "Traceback (most recent call last)" in done.stderr
