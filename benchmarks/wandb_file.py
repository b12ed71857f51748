"""How fast `.wandb` files are read: rows a second, on a run that the real SDK wrote offline.

Usage: python benchmarks/wandb_file.py [ROWS]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gatekeeper_wandb.dotwandb import DotWandbSource

WRITER = """
import sys, wandb
run = wandb.init(entity="bench", project="bench", mode="offline")
for i in range(int(sys.argv[1])):
    run.log({"loss": 1 / (i + 1), "acc": i / 2e4, "lr": 1e-3, "grad_norm": 2.5 + i * 1e-5,
             "eval/loss": 1.1 / (i + 1), "epoch": i // 100})
run.finish()
"""


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "WANDB_DIR": home, "WANDB_SILENT": "true"}
        subprocess.run([sys.executable, "-c", WRITER, str(rows)], env=env, cwd=home, check=True)
        (file,) = Path(home).glob("wandb/offline-run-*/run-*.wandb")
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            found = sum(1 for _ in DotWandbSource(file).rows())
            best = min(best, time.process_time() - started)
        print(
            f"{found} rows, {file.stat().st_size / 1e6:.1f} MB, {best:.2f} s CPU: {found / best:,.0f} rows/s"
        )
        if found != rows:
            sys.exit(f"expected {rows} rows")


if __name__ == "__main__":
    main()
