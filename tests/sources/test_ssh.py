"""ssh:// sources against a real sshd on loopback, and the parts of a spec that must be refused."""

import gzip
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from gatekeeper.errors import GatekeeperError, SourceError, Unreachable
from gatekeeper.sources import FallbackSource, SourceOptions, open_source
from gatekeeper.sources.ssh import Place, parse_ssh, posix_cksum

SSH = shutil.which("ssh")
SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if Path("/usr/sbin/sshd").exists() else None)
REQUIRED = os.environ.get("GATEKEEPER_REQUIRE_SSHD") == "1"
needs_sshd = pytest.mark.skipif(
    not REQUIRED and (SSHD is None or SSH is None),
    reason="there is no sshd on this machine (Debian: apt-get install openssh-server)",
)
QUICK = SourceOptions(deadline_s=3.0)
FOLLOW = SourceOptions(follow=True, deadline_s=20.0)


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ("ssh://host/var/log/train.jsonl", Place(None, "host", None, "/var/log/train.jsonl")),
        ("ssh://ann@gpu-1.example.org:2222/x", Place("ann", "gpu-1.example.org", 2222, "/x")),
        ("ssh://[::1]:22/x", Place(None, "::1", 22, "/x")),
        ("SSH://host/~/runs/a b.csv", Place(None, "host", None, "./runs/a b.csv")),
        ("ssh://host/-rf", Place(None, "host", None, "/-rf")),
        ("ssh://host/~/-rf", Place(None, "host", None, "./-rf")),
        ("ssh://host/$(touch x);`id`|&'\"", Place(None, "host", None, "/$(touch x);`id`|&'\"")),
    ],
)
def test_what_a_spec_means(spec, place):
    assert parse_ssh(spec) == place


@pytest.mark.parametrize(
    "spec",
    [
        "ssh://-oProxyCommand=touch/x",
        "ssh://-oProxyCommand=touch pwned@host/x",
        "ssh://user@-host/x",
        "ssh://ho st/x",
        "ssh://host;id/x",
        "ssh://$(id)/x",
        "ssh://`id`/x",
        "ssh://a'b/x",
        "ssh://us er@host/x",
        "ssh://-l@host/x",
        "ssh://@host/x",
        "ssh:///x",
        "ssh://host",
        "ssh://host/",
        "ssh://host/dir/",
        "ssh://host:0/x",
        "ssh://host:99999/x",
        "ssh://host:-p/x",
        "ssh://host:/x",
        "ssh://[-x]/x",
        "ssh://[::1/x",
        "ssh://host/a\nb",
        "ssh://host/a\0b",
        "ssh://host/\x1b[31m",
    ],
)
def test_malformed_specs_are_refused(spec):
    with pytest.raises(GatekeeperError, match="ssh://"):
        open_source(spec)


def test_a_password_is_refused_and_not_shown():
    with pytest.raises(GatekeeperError, match="holds no password") as caught:
        open_source("ssh://ann:hunter2@host/x")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"a", b"hello world", bytes(range(256)) * 16])
def test_cksum_agrees_with_the_tool(data):
    out = subprocess.run(["cksum"], input=data, capture_output=True, check=True)
    assert posix_cksum(data) == int(out.stdout.split()[0])


class Server:
    """A throwaway sshd on a free port of loopback, with keys of its own, and an ``ssh`` that uses them."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        for key in ("host_key", "user_key", "other_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True
            )
        (folder / "authorized").write_text((folder / "user_key.pub").read_text())
        host_key = (folder / "host_key.pub").read_text().split()
        (folder / "known").write_text(f"[127.0.0.1]:{self.port} {host_key[0]} {host_key[1]}\n")
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nMaxStartups 100\n"
        )
        (folder / "bin").mkdir()
        self.use_key("user_key")
        self.process = None
        self.start()

    def use_key(self, key):
        """Let ``ssh`` on the path be the system's, with a configuration that knows this server."""
        (self.folder / "config").write_text(
            f"Host *\n IdentityFile {self.folder}/{key}\n IdentitiesOnly yes\n"
            f" UserKnownHostsFile {self.folder}/known\n StrictHostKeyChecking yes\n"
        )
        wrapper = self.folder / "bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {SSH} -F {self.folder}/config "$@"\n')
        wrapper.chmod(0o755)

    def start(self):
        Path("/run/sshd").mkdir(exist_ok=True) if os.geteuid() == 0 else None
        log = self.folder / "sshd.log"
        self.process = subprocess.Popen([SSHD, "-D", "-E", str(log), "-f", str(self.folder / "sshd_config")])
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.process.poll() is None, log.read_text()
            time.sleep(0.05)
        pytest.fail(f"sshd does not listen: {log.read_text()}")

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def spec(self, path):
        return f"ssh://127.0.0.1:{self.port}{path}"


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    if SSHD is None:
        pytest.fail(
            "GATEKEEPER_REQUIRE_SSHD is set and there is no sshd (Debian: apt-get install openssh-server)"
        )
    server = Server(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture
def remote(sshd, monkeypatch):
    monkeypatch.setenv("PATH", f"{sshd.folder / 'bin'}:{os.environ['PATH']}")
    if sshd.process is None:
        sshd.start()
    sshd.use_key("user_key")
    return sshd


def jsonl(start, stop):
    return "".join(json.dumps({"step": i, "loss": 1.0 / (i + 1)}) + "\n" for i in range(start, stop))


def steps(source):
    return [row.step for row in source.rows()]


@needs_sshd
@pytest.mark.sshd
class TestRealServer:
    def test_reading_once(self, remote, tmp_path):
        path = tmp_path / "train.jsonl"
        path.write_text(jsonl(0, 5))
        (source,) = open_source(remote.spec(path), options=QUICK)
        assert steps(source) == [0, 1, 2, 3, 4]

    def test_only_what_is_new_is_read(self, remote, tmp_path):
        path = tmp_path / "train.jsonl"
        path.write_text(jsonl(0, 3000) + '{"step": 30')
        (source,) = open_source(remote.spec(path), options=FOLLOW)
        assert steps(source) == list(range(3000))
        with path.open("a") as file:
            file.write('00, "loss": 1}\n' + jsonl(3001, 3002))
        assert steps(source) == [3000, 3001]
        assert steps(source) == []

    def test_truncation_rotation_and_rewriting(self, remote, tmp_path):
        path = tmp_path / "train.jsonl"
        path.write_text(jsonl(0, 5))
        (source,) = open_source(remote.spec(path), options=FOLLOW)
        assert steps(source) == [0, 1, 2, 3, 4]
        path.write_text(jsonl(10, 12))
        assert steps(source) == [10, 11]
        path.rename(tmp_path / "train.jsonl.1")
        path.write_text(jsonl(20, 40))
        assert steps(source) == list(range(20, 40))
        path.write_text(jsonl(100, 200))  # longer, the same inode
        assert steps(source) == list(range(100, 200))
        table = tmp_path / "progress.csv"
        table.write_text("step,loss\n1,0.5\n2,0.25\n")
        (source,) = open_source(remote.spec(table), options=FOLLOW)
        assert steps(source) == [1, 2]
        table.write_text("step,loss,val_loss\n1,0.5,\n2,0.25,\n3,0.125,0.3\n")
        assert steps(source) == [3]

    @pytest.mark.parametrize(
        "name", ["-rf.jsonl", "a b.jsonl", "$(touch pwned).jsonl", "`id`';\"&|!*?.jsonl", "ü.jsonl", "--help"]
    )
    def test_hostile_file_names(self, remote, tmp_path, monkeypatch, name):
        monkeypatch.chdir(tmp_path)
        (tmp_path / name).write_text(jsonl(0, 2))
        (source,) = open_source(remote.spec(f"{tmp_path}/{name}"), options=QUICK)
        assert steps(source) == [0, 1]
        assert os.listdir(tmp_path) == [name]
        assert not (Path.home() / "pwned").exists()

    def test_other_formats(self, remote, tmp_path, plain):
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(jsonl(0, 3).encode()))
        assert steps(open_source(remote.spec(tmp_path / "a.jsonl.gz"), options=QUICK)[0]) == [0, 1, 2]
        (tmp_path / "out.log").write_text("step 5: loss 0.5\n")
        assert steps(open_source(remote.spec(tmp_path / "out.log"), options=QUICK)[0]) == [5]
        state = tmp_path / "trainer_state.json"
        state.write_text(json.dumps({"log_history": [{"step": 1, "loss": 2.0}]}, indent=2))
        (source,) = open_source(remote.spec(state), options=FOLLOW)
        assert plain(source.rows()) == [(1, {"loss": 2.0})]
        entries = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
        state.write_text(json.dumps({"log_history": entries}, indent=2))
        assert plain(source.rows()) == [(2, {"loss": 1.0})]

    @pytest.mark.parametrize(
        ("path", "says"), [("/no/such/file", "does not exist there"), ("/etc", "is a directory there")]
    )
    def test_what_the_far_side_answers_is_an_error_at_once(self, remote, path, says):
        (source,) = open_source(remote.spec(path), options=SourceOptions(deadline_s=600))
        with pytest.raises(SourceError, match=says):
            list(source.rows())

    def test_a_refused_key_is_never_tried_again(self, remote, tmp_path):
        remote.use_key("other_key")
        (source,) = open_source(remote.spec(tmp_path / "x"), options=SourceOptions(deadline_s=600))
        with pytest.raises(SourceError, match="Permission denied"):
            list(source.rows())

    def test_an_unknown_host_key_is_never_accepted(self, remote, tmp_path):
        known = remote.folder / "known"
        before = known.read_text()
        known.write_text("")
        try:
            (source,) = open_source(remote.spec(tmp_path / "x"), options=SourceOptions(deadline_s=600))
            with pytest.raises(SourceError, match="Host key verification failed"):
                list(source.rows())
        finally:
            known.write_text(before)

    def test_noise_of_login_scripts_is_passed_over(self, remote, tmp_path):
        """The command that a key forces prints first, as a noisy .bashrc does."""
        authorized = remote.folder / "authorized"
        before = authorized.read_text()
        authorized.write_text(f'command="echo welcome; eval \\"$SSH_ORIGINAL_COMMAND\\"" {before}')
        (tmp_path / "a.jsonl").write_text(jsonl(0, 2))
        try:
            assert steps(open_source(remote.spec(tmp_path / "a.jsonl"), options=QUICK)[0]) == [0, 1]
        finally:
            authorized.write_text(before)

    def test_a_server_that_is_down_is_unreachable_and_comes_back(self, remote, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_text(jsonl(0, 2))
        (source,) = open_source(remote.spec(path), options=SourceOptions(follow=True, deadline_s=2.0))
        assert steps(source) == [0, 1]
        remote.stop()
        with pytest.raises(Unreachable, match=r"did not answer within 2 s .*[Rr]efused"):
            steps(source)
        remote.start()
        with path.open("a") as file:
            file.write(jsonl(2, 3))
        assert steps(source) == [2]

    def test_a_server_that_hangs_is_unreachable(self, remote, tmp_path):
        """The listener accepts and is stopped: nothing ever answers."""
        (tmp_path / "a.jsonl").write_text(jsonl(0, 2))
        (source,) = open_source(remote.spec(tmp_path / "a.jsonl"), options=SourceOptions(deadline_s=2.0))
        remote.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            with pytest.raises(Unreachable, match="did not answer within 2 s"):
                steps(source)
        finally:
            remote.process.send_signal(signal.SIGCONT)
        assert time.monotonic() - began < 30  # it did not hang
        assert steps(source) == [0, 1]

    def test_as_the_last_of_a_fallback_chain(self, remote, tmp_path):
        (tmp_path / "a.jsonl").write_text(jsonl(0, 2))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            down = f"ssh://127.0.0.1:{free.getsockname()[1]}/x.jsonl"
        options = SourceOptions(deadline_s=1.0)
        chain = FallbackSource(
            [down, str(tmp_path / "no.log"), remote.spec(tmp_path / "a.jsonl")], options=options
        )
        assert steps(chain) == [0, 1]


def test_a_name_that_does_not_resolve_is_unreachable():
    if SSH is None:
        pytest.skip("there is no ssh client on this machine")
    (source,) = open_source("ssh://no-such-host.invalid/x.jsonl", options=SourceOptions(deadline_s=0.5))
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid"):
        list(source.rows())
