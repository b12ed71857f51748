"""A pyproject.toml that does not parse is our business only where it holds our table."""

from __future__ import annotations

from pathlib import Path

import pytest
from gatekeeper.config import ConfigError, Settings, load_settings


def test_a_broken_pyproject_is_said_where_it_holds_our_table(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool.other]\nkey = \n")
    assert load_settings(start=tmp_path) == Settings()
    project.write_text('[tool.gatekeeper]\nmetric = "loss\n')
    with pytest.raises(ConfigError, match=r"pyproject\.toml: not valid TOML"):
        load_settings(start=tmp_path)
