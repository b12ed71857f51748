"""The default smoke verdicts do not flip: a few seeds of what benchmarks/flip_rate.py does with 200."""

from __future__ import annotations

import subprocess
import sys


def test_no_kind_of_training_flips_on_a_few_seeds(kit):
    program = kit.repository / "benchmarks" / "flip_rate.py"
    command = [sys.executable, str(program), "--repeats", "6", "--first-seed", "90000", "--list-flips"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("|") for line in done.stdout.splitlines() if " of 6 " in line]
    assert len(rows) == 12
    assert all(row[4].strip() == "0 of 6" for row in rows), done.stdout
