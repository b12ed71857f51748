"""Run the loopback W&B backend by hand: ``python tests/wandb/backend.py PORT``; ends on Ctrl-C.

Prints its URL and the environment that points the SDK at it. The package does the work.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from wandb_backend import Backend


def main() -> None:
    backend = Backend(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    for name, value in backend.env(Path.cwd() / "wandb-files").items():
        print(f"export {name}={value}")
    print(f"# serving on {backend.base_url}", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        backend.stop()


if __name__ == "__main__":
    main()
