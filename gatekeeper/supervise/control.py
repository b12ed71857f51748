"""The control file: what the hook inside the child tells the supervisor.

One strict-JSON object a line, appended by the child's processes (see docs/run.md):

``{"event": "attached", "pid": 12}``
    Metrics are judged in that process; printed lines are not judged beside that.
``{"event": "verdict", "pid": 12, "verdict": {…}}``
    The last verdict of a run that was not stopped.
``{"event": "stop", "pid": 12, "verdict": {…}, "note": "path"}``
    The gate stopped the run there: it is finished, and its note written.
``{"event": "fault", "pid": 12, "error": "…"}``
    The gate failed there; the run goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gatekeeper import strictjson

__all__ = ["CONTROL", "REPORT", "ControlFile", "tell"]

#: Environment variable with the control file's absolute path.
CONTROL = "GATEKEEPER_CONTROL"

#: Environment variable with the file in which a sweep agent hears the same events from all its trials.
REPORT = "GATEKEEPER_REPORT"

MAX_READ = 1 << 20


def tell(environment: Mapping[str, str], **event: object) -> None:
    """Append an event to the file that a sweep agent reads, where there is one. Never raises."""
    path = environment.get(REPORT)
    if path:
        with suppress(OSError):
            # O_APPEND and one write: lines of several processes do not mix.
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, (strictjson.dumps(event) + "\n").encode())
            finally:
                os.close(descriptor)


class ControlFile:
    """Reads events as they are appended. What is no event is passed over: the writer may be newer."""

    def __init__(self, path: Path) -> None:
        """Make the file.

        Raises:
            OSError: It cannot be made.

        """
        path.touch(mode=0o600)
        self._path = path
        self._offset = 0

    def poll(self) -> list[dict[str, Any]]:
        """Return the events appended since the last call; a line under way waits until it is whole."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(MAX_READ)
        except OSError:
            return []
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) == MAX_READ:
            cut = MAX_READ  # no event is that long: step over it
        self._offset += cut
        events = []
        for line in data[:cut].splitlines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                events.append(event)
        return events
