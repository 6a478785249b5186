"""Locations: what may be given to `chatledger.open`, and what may not."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.contracts.store_world import together
from tests.support.jetstream_world import TOKEN, hold_port, running
from tests.support.ledger_world import refused, text, texts

import chatledger
from chatledger import ConfigurationError, LogUnavailableError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


# Other locations


@pytest.mark.parametrize("location", ["sqlite://chats.db", "sqlite:///", "sqlite://"])
def test_slashes_before_an_sqlite_file(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two, a file would be taken for a host, and the folder for the file."""
    monkeypatch.chdir(tmp_path)
    for open_or_look in (chatledger.open, partial(chatledger.open, read_only=True)):
        with pytest.raises(ConfigurationError, match=r"names no file: .* as in sqlite:///chats\.db"):
            open_or_look(location)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "location",
    [
        "ftp://x",
        "http://127.0.0.1",
        "mysql://u:secret@h/db",
        "redis://:secret@x",
        "sqlite3://x",
        "://",
        "sqlite:x.db",
        "nats:4222",
    ],
)
def test_an_unknown_scheme(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A location of another kind is refused with what there is, and without the secrets in it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="nats://") as caught:
        chatledger.open(location)

    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "location",
    [
        "nats://127.0.0.1:99999",
        "nats://127.0.0.1:port",
        "nats://127.0.0.1:1/a.b",
        "nats://127.0.0.1:1/s?replicas=many",
        "nats://",
        "",
        "sqlite:///",
        "sqlite:///no/such/folder/x.db",
        "postgresql://127.0.0.1:port/db",
    ],
)
def test_a_malformed_location(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be a location is a `ChatledgerError`, never a traceback of something inside."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(chatledger.ChatledgerError):
        chatledger.open(location, timeout_s=0.5, index=tmp_path / "index").close()


@pytest.mark.guard
@pytest.mark.timeout(20)
def test_a_postgresql_that_is_down(tmp_path: Path) -> None:
    """No database server is no answer, within the budget."""
    pytest.importorskip("psycopg")
    with hold_port(0) as held:
        location = f"postgresql://u@127.0.0.1:{held.getsockname()[1]}/db"
        with pytest.raises(LogUnavailableError):
            chatledger.open(location, timeout_s=1, index=tmp_path / "index")


def test_an_sqlite_file_that_is_none(tmp_path: Path) -> None:
    """A file that is no database is refused and left as it is."""
    file = tmp_path / "x.db"
    file.write_bytes(b"this is not a database, but long enough to be taken for one" * 100)
    before = file.read_bytes()
    with pytest.raises(chatledger.ChatledgerError):
        chatledger.open(f"sqlite:///{file}")

    assert file.read_bytes() == before
    refused(f"sqlite:///{tmp_path}", ConfigurationError, "folder")


# Places that work


@pytest.mark.parametrize("name", ["with space", "ümläut", "quote'\"$HOME", 'a "b" $HOME {c} # d\\é', "🦜"])
def test_odd_paths(tmp_path: Path, name: str) -> None:
    """A data directory may have any name; none of it reaches the grammar of the server's configuration."""
    with chatledger.open(tmp_path / name, durability="fast") as ledger:
        ledger.create_chat("c", "u")
    with chatledger.open(str(tmp_path / name)) as ledger:
        assert ledger.get_chat("c") is not None
        assert ledger.location == str(tmp_path / name)


def test_a_changed_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative location means what it meant when the ledger was opened."""
    monkeypatch.chdir(tmp_path)
    with chatledger.open() as ledger:
        ledger.create_chat("c", "u")
        monkeypatch.chdir("/")
        ledger.append("c", [text("x")])
        ledger.rebuild()
    with chatledger.open(tmp_path / "chatledger-data") as ledger:
        assert texts(ledger, "c") == ["x"]


def test_links_lead_to_the_same_ledger(tmp_path: Path) -> None:
    """Two names of one directory are one ledger."""
    with chatledger.open(tmp_path / "data") as ledger:
        (tmp_path / "link").symlink_to(tmp_path / "data")
        with chatledger.open(tmp_path / "link") as second:
            second.create_chat("c", "u")
        assert ledger.get_chat("c") is not None


def test_memory_ledgers_are_apart() -> None:
    """Each ledger in memory is one of its own, and leaves nothing behind."""
    with chatledger.open("memory:") as one, chatledger.open("memory:") as other:
        one.create_chat("c", "u")
        assert other.get_chat("c") is None


def test_streams_of_one_server_are_apart(tmp_path: Path) -> None:
    """Two streams of a server never see each other's data."""
    with running(tmp_path / "server") as server:
        base = f"nats://{TOKEN}@127.0.0.1:{server.port}"
        with (
            chatledger.open(f"{base}/one", create=True, index=tmp_path / "1") as one,
            chatledger.open(f"{base}/two", create=True, index=tmp_path / "2") as two,
        ):
            one.create_chat("c", "u")
            two.create_chat("c", "other")
            two.append("c", [text("x", id="m")])
            one.append("c", [text("y", id="m")])
            assert texts(one, "c") == ["y"]
            assert texts(two, "c") == ["x"]
            assert TOKEN not in repr(one)
        # The index of another log is not mistaken for ours.
        with chatledger.open(f"{base}/one", index=tmp_path / "2") as one:
            assert texts(one, "c") == ["y"]


def test_the_default_is_durable(path: Path) -> None:
    """Without being asked, the server syncs before it acknowledges."""
    with chatledger.open(path):
        assert "sync_interval: always" in (path / "nats.conf").read_text()


def test_opening_from_many_threads(path: Path) -> None:
    """Threads that open one place at once share one server and one index."""
    ledgers: list[chatledger.Ledger] = together(6, lambda _: chatledger.open(path, durability="fast"))
    ledgers[0].create_chat("c", "u")
    assert all(ledger.get_chat("c") for ledger in ledgers)
    together(6, lambda number: ledgers[number].close())
    with chatledger.open(path, durability="always") as ledger:
        assert ledger.get_chat("c") is not None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the cache is not named by the environment")
def test_the_index_of_a_server_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being told where, the index of a log elsewhere is kept in the user's cache, one for each stream."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with running(tmp_path / "server") as server:
        for stream in ("one", "two"):
            location = f"nats://{TOKEN}@127.0.0.1:{server.port}/{stream}"
            with chatledger.open(location, create=True) as ledger:
                ledger.create_chat("c", "u")
            with chatledger.open(location) as ledger:
                assert ledger.get_chat("c") is not None

    kept = [folder.name for folder in (tmp_path / "cache" / "chatledger").iterdir()]
    assert len(kept) == 4
    assert {f"{name}-witness" for name in kept if not name.endswith("-witness")} < set(kept)


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    """A loop of links, and one to what is not there: for a ledger, an index and a backup, and below such a link."""
    (tmp_path / "loop").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with chatledger.open("memory:") as ledger:
        for name in ("loop", "dangling"):
            link = tmp_path / name
            calls: list[Callable[[], object]] = [
                partial(chatledger.open, link),
                partial(chatledger.open, f"sqlite:///{tmp_path}/log.db", index=link),
                partial(ledger.backup, link),
            ]
            for call in calls:
                with pytest.raises(ConfigurationError, match=rf"{link} is a link to .*, which leads nowhere"):
                    call()
            with pytest.raises(ConfigurationError):
                chatledger.open(link / "below")
    assert not (tmp_path / "nothing").exists()


def test_in_memory_nothing_waits_for_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index is a folder, which nobody reads after a power cut."""
    synced: list[int] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, synced.append)

    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")

    assert synced == []
