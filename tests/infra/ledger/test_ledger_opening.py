"""Opening what cannot be opened: a clear error of the right class, soon, and nothing is written."""

import fcntl
import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.jetstream_world import TOKEN, eventually, hold_port, running
from tests.support.ledger_world import Worker, refused, text, texts

import chatledger
from chatledger import ConfigurationError, LogUnavailableError
from chatledger.errors import LedgerLockedError, LogRefusedError, UnsupportedFormatError
from chatledger.infra.log.nats_server.directory import FORMAT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def filled(path: Path) -> Path:
    with chatledger.open(path) as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text("stays")])
    return path


def tree(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


# Data directories


def test_a_file_instead_of_a_directory(tmp_path: Path) -> None:
    """The path of a file is refused, and the file stays."""
    file = tmp_path / "file"
    file.write_text("mine")
    refused(file, ConfigurationError, "is a file")
    refused(file / "below", ConfigurationError, "file")

    assert file.read_text() == "mine"


def test_somebody_elses_directory(tmp_path: Path) -> None:
    """A directory with other things in it is refused and left as it is."""
    (tmp_path / "thesis.txt").write_text("mine")
    refused(tmp_path, ConfigurationError, "not a chatledger directory")

    assert tree(tmp_path) == {"thesis.txt": b"mine"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_directory(filled: Path) -> None:
    """A directory that may not be written is refused by name."""
    filled.chmod(0o500)
    try:
        refused(filled, ConfigurationError, str(filled))
    finally:
        filled.chmod(0o700)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that nobody can write")
def test_a_file_system_that_can_not_be_written() -> None:
    """Where not even root can make a directory, the error names the path."""
    refused("/proc/chatledger/data", ConfigurationError, "/proc/chatledger/data")


def test_a_newer_format(filled: Path) -> None:
    (filled / "format.json").write_text(json.dumps({"format": 99}))
    before = tree(filled)
    refused(filled, UnsupportedFormatError, "format 99")

    assert tree(filled) == before


def test_an_older_format(filled: Path) -> None:
    """It is refused in words that say how to bring its chats over, and nothing is written there."""
    (filled / "format.json").write_text(json.dumps({"format": FORMAT - 2}))
    before = tree(filled)
    refused(filled, UnsupportedFormatError, "'chatledger export' of the version that wrote it")

    assert tree(filled) == before


def test_a_locked_directory(filled: Path) -> None:
    """A lock without a server that answers ends the wait with an error that names the lock."""
    with (filled / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(filled, LedgerLockedError, "lock", timeout_s=0.3)
    with chatledger.open(filled) as ledger:
        assert texts(ledger, "c") == ["stays"]


def test_a_locked_directory_whose_server_is_gone(filled: Path) -> None:
    """An endpoint where nobody answers does not make the wait longer."""
    with chatledger.open(filled):
        endpoint = (filled / "endpoint.json").read_bytes()
    (filled / "endpoint.json").write_bytes(endpoint)
    with (filled / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(filled, LedgerLockedError, "does not answer", timeout_s=0.3)


@pytest.mark.soak
def test_less_durability_than_asked(filled: Path) -> None:
    """`always` is not given where another process, or this one, runs the server with `fast`."""
    with Worker(filled, durability="fast").ready():
        refused(filled, ConfigurationError, "durability")
        with chatledger.open(filled, durability="fast") as ledger:
            assert texts(ledger, "c") == ["stays"]
    with chatledger.open(filled, durability="fast"):
        refused(filled, ConfigurationError, "durability", durability="always")
    with chatledger.open(filled, durability="always") as ledger, chatledger.open(filled, durability="fast") as second:
        assert texts(ledger, "c") == texts(second, "c")
    refused(filled, ConfigurationError, "durability", durability="never")


# Servers elsewhere


def test_a_server_that_is_down(tmp_path: Path) -> None:
    """Where nobody listens, the error comes within the budget."""
    with hold_port(0) as held:
        port = held.getsockname()[1]
        refused(f"nats://127.0.0.1:{port}", LogUnavailableError, "no answer", timeout_s=0.5, index=tmp_path / "index")

    assert not (tmp_path / "index").exists()


def test_a_server_that_is_none(tmp_path: Path) -> None:
    """A port where something else, or nothing at all, is said is no log either."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        refused(f"nats://127.0.0.1:{port}", LogUnavailableError, timeout_s=0.5, index=tmp_path / "index")


@pytest.mark.parametrize("login", ["", "wrong@", "user:wrong@"])
def test_a_wrong_token(tmp_path: Path, login: str) -> None:
    """Refused credentials are a matter of configuration; secrets are not repeated in the error."""
    with running(tmp_path / "server") as server:
        location = f"nats://{login}127.0.0.1:{server.port}/s"
        refused(location, LogRefusedError, index=tmp_path / "index", create=True)
        with pytest.raises(LogRefusedError) as caught:
            chatledger.open(location, index=tmp_path / "index", create=True)
        assert "wrong" not in str(caught.value)


def test_an_absent_stream(tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        location = f"nats://{TOKEN}@127.0.0.1:{server.port}/absent"
        refused(location, ConfigurationError, "absent", index=tmp_path / "index")
        with chatledger.open(location, index=tmp_path / "index", create=True) as ledger:
            ledger.create_chat("c", "u")
        with chatledger.open(location, index=tmp_path / "index") as ledger:
            assert ledger.get_chat("c") is not None


def test_a_server_that_goes_away(tmp_path: Path) -> None:
    """While the server is away writes end with `LogUnavailableError`, reads go on; afterwards nothing is there twice."""
    with running(tmp_path / "server") as server:
        port = server.port
        location = f"nats://{TOKEN}@127.0.0.1:{port}/s"
        with chatledger.open(location, create=True, index=tmp_path / "index", timeout_s=1) as ledger:
            ledger.create_chat("c", "u")
            message = text("x", id="x")
            server.kill()
            with pytest.raises(LogUnavailableError, match="'c'"):
                ledger.append("c", [message])
            assert texts(ledger, "c") == []
            server.start(port=port)

            def retried() -> bool:
                try:
                    ledger.append("c", [message])
                except LogUnavailableError:
                    return False
                return True

            eventually(retried)
            assert texts(ledger, "c") == ["x"]


@pytest.mark.parametrize("opener", [chatledger.open, chatledger.open_async])
def test_options_that_are_none_are_named(opener: Callable[..., object]) -> None:
    """With the one that was meant, where one is near."""
    with pytest.raises(
        TypeError, match=rf"chatledger.{opener.__name__} has no option 'compresion'; did you mean 'compression'?"
    ):
        opener("memory:", compresion="zstd")
    with pytest.raises(TypeError, match=r"no option 'x'$"):
        opener("memory:", x=1)
    with pytest.raises(TypeError, match=rf"chatledger.{opener.__name__} takes the location alone without a name"):
        opener("memory:", "index")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"create": "yes"}, "create must be True or False, not str"),
        ({"progress": 5}, "progress must be a function, not int"),
        ({"max_event_bytes": "1"}, "max_event_bytes must be a whole number, not str"),
    ],
)
def test_options_of_another_type(options: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        chatledger.open("memory:", **options)
