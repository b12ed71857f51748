"""Scripted misbehaviour: what to do wrong, on which operation, how often."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

__all__ = ["KINDS", "Fault", "Faults"]

KINDS = (
    "refused",  # reset before a byte is answered; Backend.refuse() closes the listening port itself
    "dropped",  # half an answer, then the connection closes
    "hanging",  # no answer for `seconds`, then the connection closes
    "slow",  # the right answer after `seconds`
    "status",  # an HTTP status, with Retry-After where asked for
    "graphql_error",  # 200 with {"errors": …}
    "malformed",  # 200 with a body that is no JSON
    "wrong_types",  # 200 with valid JSON of the wrong shape
    "empty_history",  # 200, and the history is empty although the server claims steps
)


@dataclass
class Fault:
    """One scripted fault.

    ``operation`` is a GraphQL operation name, ``file_stream``, ``upload`` or ``*``. The fault skips its first
    ``after`` matches, then strikes ``times`` times (None: until cleared). ``seconds`` is for ``hanging`` and
    ``slow``. With ``about`` it strikes only requests that mention that text, such as a run's name.
    """

    operation: str
    kind: str
    status: int = 500
    seconds: float = 3600.0
    retry_after: float | None = None
    times: int | None = None
    after: int = 0
    about: str = ""
    struck: int = 0
    cleared: threading.Event = field(default_factory=threading.Event, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind!r}; one of {', '.join(KINDS)}")


class Faults:
    """The faults in force."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self._active.append(fault)
        return fault

    def clear(self) -> None:
        """End every fault; requests that hang are let go at once."""
        with self._lock:
            for fault in self._active:
                fault.cleared.set()
            self._active.clear()

    def strike(self, operation: str, request: str = "") -> Fault | None:
        """Return the fault that hits this request, if any, and count it."""
        with self._lock:
            for fault in self._active:
                if fault.operation not in ("*", operation) or fault.about not in request:
                    continue
                if fault.after > 0:
                    fault.after -= 1
                    continue
                if fault.times is not None and fault.struck >= fault.times:
                    continue
                fault.struck += 1
                return fault
        return None
