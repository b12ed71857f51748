"""A W&B server on loopback for tests: enough of the wire protocol to drive the real SDK and its wandb-core.

GraphQL on ``/graphql`` and the file stream on ``/files/ENTITY/PROJECT/RUN/file_stream``. It keeps what it was
told (:class:`State`) and misbehaves on request (:meth:`Backend.fault`).
"""

from wandb_backend.faults import Fault
from wandb_backend.server import Backend
from wandb_backend.state import Agent, Call, Run, State, Sweep

__all__ = ["Agent", "Backend", "Call", "Fault", "Run", "State", "Sweep"]
