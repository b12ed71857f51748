"""The HTTP server: routes requests to the operations, records them, and applies the scripted faults."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from wandb_backend.faults import Fault, Faults
from wandb_backend.operations import UnknownOperation, answer
from wandb_backend.state import ENTITY, Call, Run, State

__all__ = ["Backend"]

API_KEY = "0123456789abcdef0123456789abcdef01234567"


class Backend:
    """A W&B server on 127.0.0.1.

    ``state`` holds what it was told; ``base_url`` and ``env(directory)`` point the SDK at it.
    """

    def __init__(self, port: int = 0) -> None:
        self.state = State()
        self.faults = Faults()
        self._connections: set[socket.socket] = set()
        self._server: _Server | None = None
        self._open(port)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def env(self, directory: Path) -> dict[str, str]:
        """Return the environment for a process that uses this server; its files go under ``directory``.

        The retry bounds keep a faulty server from stalling a test: the SDK's own go on for minutes to days.
        """
        return {
            "WANDB_BASE_URL": self.base_url,
            "WANDB_API_KEY": API_KEY,
            "WANDB_ENTITY": ENTITY,
            "WANDB_PROJECT": "proj",
            "WANDB_DIR": str(directory),
            "WANDB_CACHE_DIR": str(directory / "cache"),
            "WANDB_CONFIG_DIR": str(directory / "config"),
            "WANDB_DATA_DIR": str(directory / "data"),
            "WANDB_CONSOLE": "off",
            "WANDB_DISABLE_GIT": "true",
            "WANDB_DISABLE_CODE": "true",
            "WANDB_X_DISABLE_STATS": "true",
            "WANDB_X_DISABLE_MACHINE_INFO": "true",
            "WANDB_ERROR_REPORTING": "false",
            "WANDB__GRAPHQL_RETRY_MAX": "1",
            "WANDB__GRAPHQL_RETRY_WAIT_MIN_SECONDS": "1",
            "WANDB__GRAPHQL_RETRY_WAIT_MAX_SECONDS": "2",
            "WANDB_HTTP_TIMEOUT": "3",
        }

    def fault(
        self,
        operation: str,
        kind: str,
        *,
        status: int = 500,
        seconds: float = 3600.0,
        retry_after: float | None = None,
        times: int | None = None,
        after: int = 0,
        about: str = "",
    ) -> Fault:
        """Misbehave on an operation (``*``: any request) until :meth:`clear_faults`; see :class:`Fault`."""
        return self.faults.add(Fault(operation, kind, status, seconds, retry_after, times, after, about))

    def clear_faults(self) -> None:
        """Behave again: every scripted fault ends, hanging requests are let go, the port is open."""
        self.faults.clear()
        if self._server is None:
            self._open(self.port)

    def refuse(self) -> None:
        """Close the port: connections are refused until :meth:`clear_faults`."""
        self._shut()

    def stop(self) -> None:
        """End the server."""
        self.faults.clear()
        self._shut()

    def _open(self, port: int) -> None:
        self._server = _Server(("127.0.0.1", port), self)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _shut(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        for connection in list(self._connections):
            _reset(connection)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], backend: Backend) -> None:
        self.backend = backend
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are everyday life here; anything else is recorded for the test to see."""
        import traceback

        text = traceback.format_exc()
        if (
            "ConnectionResetError" not in text
            and "BrokenPipeError" not in text
            and "Bad file descriptor" not in text
        ):
            self.backend.state.unknown.append(text)


def _reset(connection: socket.socket) -> None:
    """Close a connection with RST."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()
    except OSError:
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.backend._connections.add(self.connection)

    def finish(self) -> None:
        self.server.backend._connections.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        self._dispatch()

    def do_POST(self) -> None:
        self._dispatch()

    def do_PUT(self) -> None:
        self._dispatch()

    def _dispatch(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.split("?")[0]
        request: dict[str, Any] = {}
        if path.startswith("/graphql"):
            request = json.loads(body)
            match = re.search(r"(?:query|mutation)\s+(\w+)", request.get("query", ""))
            operation = match.group(1) if match else "?"
            variables = request.get("variables") or {}
        elif path.endswith("/file_stream"):
            operation, variables = "file_stream", json.loads(body or b"{}")
        elif path.startswith("/upload/"):
            operation, variables = "upload", {"path": path}
        else:
            operation, variables = "other", {"path": path}
        fault = self.server.backend.faults.strike(operation, f"{path} {json.dumps(variables)}")
        if fault is not None and fault.kind not in ("slow", "empty_history"):
            broken = fault.kind in ("refused", "dropped", "hanging")
            self._record(
                operation, variables, 0 if broken else fault.status if fault.kind == "status" else 200
            )
            self._misbehave(fault)
            return
        if fault is not None and fault.kind == "slow":
            fault.cleared.wait(fault.seconds)
        status, answered = self._answer(operation, variables, request, path, body)
        if fault is not None and fault.kind == "empty_history":
            answered = _without_history(answered)
        self._record(operation, variables, status)
        self._send(status, answered)

    def _record(self, operation: str, variables: dict[str, Any], status: int) -> None:
        """Note the call before it is answered: a client that has its answer finds it recorded."""
        with self.server.backend.state.lock:
            self.server.backend.state.calls.append(Call(operation, time.time(), variables, status))

    def _misbehave(self, fault: Fault) -> None:
        """Answer wrongly, or not at all."""
        if fault.kind == "status":
            extra = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
            self._send(fault.status, {"errors": [{"message": f"scripted status {fault.status}"}]}, extra)
            return
        if fault.kind == "graphql_error":
            self._send(200, {"errors": [{"message": "scripted error"}], "data": None})
            return
        if fault.kind == "malformed":
            self._send_bytes(200, b'{"data": {"project": ')
            return
        if fault.kind == "wrong_types":
            self._send(200, {"data": {"project": {"run": 17}, "viewer": [], "upsertBucket": "yes"}})
            return
        if fault.kind == "hanging":
            fault.cleared.wait(fault.seconds)
        elif fault.kind == "dropped":
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4096\r\n\r\n{"
            )
        self.close_connection = True
        _reset(self.connection)

    def _answer(
        self, operation: str, variables: dict[str, Any], request: dict[str, Any], path: str, body: bytes
    ) -> tuple[int, dict[str, Any]]:
        state = self.server.backend.state
        with state.lock:
            if operation == "file_stream":
                _, _, entity, project, name, _ = path.split("/")
                return 200, _file_stream(state.run(entity, project, name), variables)
            if operation == "upload":
                _, _, entity, project, name, file = path.split("/", 5)
                state.run(entity, project, name).uploads[file] = body
                return 200, {}
            if operation == "other":
                return 404, {}
            try:
                data = answer(state, operation, variables, request.get("query", ""))
            except UnknownOperation:
                state.unknown.append(operation)
                return 400, {"errors": [{"message": f"unknown operation {operation}"}]}
        text = json.dumps({"data": data}).replace("{base}", self.server.backend.base_url)
        parsed: dict[str, Any] = json.loads(text)
        return 200, parsed

    def _send(self, status: int, body: dict[str, Any], extra: dict[str, str] | None = None) -> None:
        self._send_bytes(status, json.dumps(body).encode(), extra)

    def _send_bytes(self, status: int, body: bytes, extra: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _file_stream(run: Run, sent: dict[str, Any]) -> dict[str, Any]:
    """Take one chunk of a run's stream. Offsets make a chunk that is sent twice count once."""
    run.heartbeat = time.time()
    if run.state == "pending":
        run.state = "running"
    for name, chunk in (sent.get("files") or {}).items():
        content: list[str] = chunk["content"]
        offset = int(chunk.get("offset") or 0)
        if name == "wandb-history.jsonl":
            run.history[offset:] = content
        elif name == "wandb-events.jsonl":
            run.events[offset:] = content
        elif name == "wandb-summary.json" and content:
            run.summary_json = content[-1]
        elif name == "output.log":
            run.console[offset:] = content
    if sent.get("complete"):
        code = int(sent.get("exitcode") or 0)
        run.exit_codes.append(code)
        if sent.get("preempting"):
            run.state = "preempted"
        elif code == 0:
            run.state = "finished"
        else:
            run.state = "killed" if run.stop_requested else "failed"
    elif sent.get("preempting"):
        run.state = "preempting"
    return {"stopped": run.stop_requested, "exitcode": None, "limits": {}}


def _without_history(answered: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with every history emptied."""
    run = ((answered.get("data") or {}).get("project") or {}).get("run")
    nothing: dict[str, list[Any]] = {"history": [], "sampledHistory": [[]]}
    for key, empty in nothing.items():
        if isinstance(run, dict) and key in run:
            run[key] = empty
    return answered
