"""A log on another machine, read through the system's ``ssh`` with the user's own configuration and keys.

One look is one connection that asks for what is new: the remote shell compares inode, size and the first
bytes with what was read so far, answers with where it starts, and sends the rest. Nothing is installed there;
a POSIX ``sh`` with ``tail``, ``head``, ``cksum``, ``ls`` and ``wc`` is enough.

Neither host nor path can become an option or a command: the host is checked against what a host name may hold
and comes after ``--``, and the path is an argument of the remote script, quoted for the shell.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import selectors
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gatekeeper.connectivity import Policy, Transient, classify_ssh, try_until
from gatekeeper.errors import GatekeeperError, SourceError, Unreachable
from gatekeeper.sources.base import Row, Source, SourceOptions, printable
from gatekeeper.sources.lines import LineSource, Restart
from gatekeeper.sources.localfile import wider_header
from gatekeeper.sources.sniff import decoder_for
from gatekeeper.sources.unzip import StreamUnzip

__all__ = ["Place", "SshFeed", "open_ssh", "parse_ssh"]

BLOCK = 256 * 1024
HEAD = 4096  # bytes that a rewritten log is recognised by
STALL_S = 15.0  # seconds without a byte after which a connection counts as lost
MAX_RESUMES = 5  # connections lost in the middle of one look

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]*\$?")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+")
_SPEC = re.compile(
    r"(?:(?P<user>[^@/]*)@)?(?P<host>\[[^\]/]*\]|[^:/@\[\]]*)(?::(?P<port>[^/]*))?(?P<path>/.*)",
    re.DOTALL,
)

# $1 path, $2 offset, $3 inode, $4 checksum of the first $5 bytes, $6 a word that our answer begins with.
# On one line, since a csh as login shell allows no line break within quotes.
_SCRIPT = "; ".join(
    (
        "f=$1",
        'if [ -d "$f" ]; then exit 45; fi',
        'if [ ! -e "$f" ]; then exit 44; fi',
        'if [ ! -r "$f" ]; then exit 46; fi',
        'first() { read -r n _ && echo "$n"; }',
        'i=$(ls -diL "$f" | first)',
        's=$(wc -c < "$f" | first)',
        "o=$2",
        "c=same",
        'if [ "$o" -gt 0 ]; then if [ "$i" != "$3" ] || [ "$s" -lt "$o" ]; then c=new; '
        'elif [ "$(head -c "$5" "$f" | cksum | first)" != "$4" ]; then c=new; fi; fi',
        'if [ "$c" = new ]; then o=0; fi',
        'printf "\\n%s %s %s %s %s\\n" "$6" "$c" "$i" "$s" "$o"',
        'exec tail -c "+$((o + 1))" "$f"',
    )
)
_ANSWERS = {
    44: "does not exist there: check the path",
    45: "is a directory there: give the log's own path",
    46: "cannot be read there: permission denied; log in as a user who may read it",
    126: "cannot be read: the remote shell may not run its commands",
    127: "cannot be read: the remote side has no POSIX shell with tail, head, cksum, ls and wc",
}


@dataclass(frozen=True)
class Place:
    """Where a remote log is. ``port`` is None for the configuration's own."""

    user: str | None
    host: str
    port: int | None
    path: str


def parse_ssh(spec: str) -> Place:
    """Return the place that ``ssh://[user@]host[:port]/path`` names; ``/~/x`` is below the home directory.

    Raises:
        GatekeeperError: It is malformed, or a part holds what it may not.

    """
    shape = "write ssh://[user@]host[:port]/path"
    match = _SPEC.fullmatch(spec[6:]) if spec[:6].lower() == "ssh://" else None
    if match is None:
        raise GatekeeperError(f"an ssh:// source needs a host and a path: {shape}")
    user, host, port, path = match.group("user", "host", "port", "path")
    if user is not None and ":" in user:
        raise GatekeeperError(
            f"an ssh:// source holds no password (keys come from your ssh configuration): {shape}"
        )
    if user is not None and not _USER.fullmatch(user):
        raise GatekeeperError(f"the user in an ssh:// source is malformed ({printable(user, 40)!r}): {shape}")
    bare = host[1:-1] if host.startswith("[") else host
    if not (_IPV6 if host.startswith("[") else _HOST).fullmatch(bare) or len(bare) > 253:
        raise GatekeeperError(f"the host in an ssh:// source is malformed ({printable(host, 60)!r}): {shape}")
    if port is not None and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise GatekeeperError(f"the port in an ssh:// source is malformed ({printable(port, 20)!r}): {shape}")
    if path.startswith("/~/"):
        path = f"./{path[3:]}"
    if path.endswith("/") or not path.strip("/"):
        raise GatekeeperError(f"an ssh:// source names one file, not a directory: {shape}")
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        raise GatekeeperError("the path in an ssh:// source holds control characters")
    return Place(user, bare, int(port) if port is not None else None, path)


def open_ssh(spec: str, options: SourceOptions) -> Source:
    """Return a source for a remote log. The first connection is made when its rows are asked for."""
    place = parse_ssh(spec)
    if shutil.which("ssh") is None:
        raise SourceError("there is no ssh command on this machine: install an OpenSSH client")
    shown = printable(spec, 300)
    lower = place.path.lower().removesuffix(".gz")
    name = lower.rsplit("/", 1)[-1]
    whole = lower.endswith((".json", ".npz", ".wandb")) or "tfevents" in name
    if whole and name != "result.json":
        return MirroredSource(place, shown, options)
    return LineSource(SshFeed(place, shown, options), decoder_for(shown, options), options)


class _LostError(Exception):
    """The connection was lost; the text is what ssh said."""


class SshFeed:
    """Reads what was appended to a remote file since the last look.

    A connection lost in the middle of a look is made again from where it broke.
    """

    def __init__(self, place: Place, name: str, options: SourceOptions, *, unpack: bool = True) -> None:
        self.name = name
        self._place = place
        self._policy = Policy(deadline_s=options.deadline_s)
        self._unpack = unpack
        self._unzip = StreamUnzip(name)
        self._offset = 0
        self._inode = "0"
        self._head = b""

    def read(self) -> Iterator[bytes | Restart]:
        """Yield the new bytes, after a Restart where the file began anew.

        Raises:
            SourceError: The host refuses the key, or the file is missing or not readable.
            Unreachable: The host did not answer within the deadline.

        """
        for _ in range(MAX_RESUMES):
            call = try_until(self._connect, what=self.name, classify=_classify, policy=self._policy)
            try:
                if call.restarted:
                    before = self._head
                    self._offset, self._head, self._unzip = 0, b"", StreamUnzip(self.name)
                    first = next(call.blocks(), b"")
                    yield Restart(rewritten=wider_header(before, first))
                    if first:
                        yield from self._passed(first)
                self._inode = call.inode
                for block in call.blocks():
                    yield from self._passed(block)
                return
            except _LostError:
                continue
            finally:
                call.close()
        raise Unreachable(
            f"{self.name}: the connection broke {MAX_RESUMES} times; it is tried again at the next look"
        )

    def _passed(self, block: bytes) -> Iterator[bytes]:
        self._offset += len(block)
        if len(self._head) < HEAD:
            self._head = (self._head + block)[:HEAD]
        plain = self._unzip.feed(block) if self._unpack else block
        if plain:
            yield plain

    def _connect(self, seconds: float) -> _Call:
        place = self._place
        bound = max(1, min(20, round(seconds)))
        arguments = [
            "ssh",
            "-T",
            *("-o", "BatchMode=yes"),
            *("-o", f"ConnectTimeout={bound}"),
            *("-o", "ServerAliveInterval=5"),
            *("-o", "ServerAliveCountMax=2"),
            *("-o", "ClearAllForwardings=yes"),
            *("-o", "RemoteCommand=none"),
            *("-o", "PermitLocalCommand=no"),
        ]
        if place.port is not None:
            arguments += ["-p", str(place.port)]
        if place.user is not None:
            arguments += ["-l", place.user]
        word = f"gatekeeper-{secrets.token_hex(8)}"
        size = min(HEAD, self._offset)
        told = [
            place.path,
            str(self._offset),
            self._inode,
            str(posix_cksum(self._head[:size])),
            str(size),
            word,
        ]
        script = " ".join(["exec", "sh", "-c", shlex.quote(_SCRIPT), "gatekeeper", *map(shlex.quote, told)])
        return _Call([*arguments, "--", place.host, script], word, self.name, min(seconds, bound + STALL_S))


class _Call:
    """One connection: its answer's first line, then its bytes."""

    def __init__(self, command: list[str], word: str, name: str, seconds: float) -> None:
        self._name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the call
        try:
            self._process = subprocess.Popen(  # noqa: S603 - no shell here; host and path are checked
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
            )
        except OSError as error:
            self._errors.close()
            raise SourceError(f"ssh cannot be started: {error.strerror or error}") from None
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        self._pipe = self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pipe, selectors.EVENT_READ)
        self._ended = False
        try:
            line, self._held = self._greeting(f"\n{word} ".encode(), time.monotonic() + seconds)
            state, self.inode, size, start = line.split()
            self.restarted = state == "new"
            self._missing = int(size) - int(start)
        except BaseException:
            self.close()
            raise

    def _greeting(self, mark: bytes, until: float) -> tuple[str, bytes]:
        """Return our answer line and the bytes behind it; what a login script printed before is dropped."""
        seen = b""
        while True:
            at = seen.find(mark)
            end = seen.find(b"\n", at + 1) if at >= 0 else -1
            if end >= 0:
                return seen[at + len(mark) : end].decode("ascii", "replace"), seen[end + 1 :]
            block = self._next(until - time.monotonic())
            if not block:
                self._end()
                raise _LostError("the answer was cut off")
            seen = (seen + block)[-BLOCK:]

    def _next(self, seconds: float) -> bytes:
        if not self._selector.select(max(0.0, seconds)):
            raise _LostError(f"no answer for {max(1.0, seconds):.0f} s")
        return self._pipe.read(BLOCK) or b""

    def blocks(self) -> Iterator[bytes]:
        """Yield the file's bytes.

        Raises:
            _LostError: The connection broke before the end.
            SourceError: The remote side could not read on.

        """
        while not self._ended:
            block, self._held = self._held, b""
            if not block:
                block = self._next(STALL_S)
                if not block:
                    self._ended = True
                    self._end()
                    if self._missing > 0:
                        raise _LostError("the transfer was cut off")
                    return
            self._missing -= len(block)
            yield block

    def _end(self) -> None:
        """Wait for ssh to exit and turn a failure into the right error."""
        try:
            code = self._process.wait(timeout=STALL_S)
        except subprocess.TimeoutExpired:
            raise _LostError("ssh did not end") from None
        if code == 0:
            return
        self._errors.seek(0)
        said = self._errors.read(16384).decode("utf-8", "replace")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        last = printable(lines[-1], 200) if lines else f"ssh exited with {code}"
        if code == 255:
            if classify_ssh(said) is not None:
                raise _LostError(last)
            raise SourceError(f"{self._name} cannot be read: ssh says {last!r}; check it with ssh by hand")
        if code < 0:
            raise _LostError(f"ssh was ended by signal {-code}")
        answer = _ANSWERS.get(code)
        raise SourceError(f"{self._name} {answer}" if answer else f"{self._name} cannot be read: {last}")

    def close(self) -> None:
        """End the connection."""
        self._selector.close()
        with contextlib.suppress(OSError):
            self._pipe.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._errors.close()


def _classify(error: BaseException) -> Transient | None:
    return Transient() if isinstance(error, _LostError) else None


class MirroredSource:
    """A remote log that is no line log: mirrored into a temporary file that a local reader reads."""

    def __init__(self, place: Place, name: str, options: SourceOptions) -> None:
        self.name = name
        self.run_url: str | None = None
        self._feed = SshFeed(place, name, options, unpack=False)
        self._folder = tempfile.TemporaryDirectory(prefix="gatekeeper-ssh-")
        self._copy = Path(self._folder.name) / (place.path.rsplit("/", 1)[-1].lstrip("-") or "log")
        self._options = replace(options)
        self._source: Source | None = None

    @property
    def run_state(self) -> str | None:
        """The run's own state, where the format holds it."""
        return self._source.run_state if self._source is not None else None

    @property
    def skipped(self) -> int:
        """How many malformed entries were skipped."""
        return self._source.skipped if self._source is not None else 0

    @property
    def skipped_examples(self) -> list[str]:
        """At most five of them."""
        return self._source.skipped_examples if self._source is not None else []

    def rows(self) -> Iterator[Row]:
        """Yield the rows that are new since the last call."""
        from gatekeeper.sources.specs import open_path

        with open(self._copy, "ab") as copy:
            for block in self._feed.read():
                if isinstance(block, Restart):
                    copy.truncate(0)
                else:
                    copy.write(block)
        if self._source is None:
            self._source = open_path(self._copy, self._options, name=self.name)
        yield from self._source.rows()

    def finish(self) -> Iterator[Row]:
        """Yield what the local reader kept back, when no more will come."""
        finish = getattr(self._source, "finish", None)
        return finish() if finish is not None else iter(())


def posix_cksum(data: bytes) -> int:
    """Return what POSIX ``cksum`` prints for ``data`` (a CRC that also covers the length)."""
    crc = 0
    length = len(data)
    tail = bytearray()
    while length:
        tail.append(length & 0xFF)
        length >>= 8
    for byte in data + bytes(tail):
        crc = (crc << 8 & 0xFFFFFFFF) ^ _CRC[(crc >> 24) ^ byte]
    return crc ^ 0xFFFFFFFF


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        crc = value << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc & 0x80000000 else 0)) & 0xFFFFFFFF
        table.append(crc)
    return table


_CRC = _crc_table()
