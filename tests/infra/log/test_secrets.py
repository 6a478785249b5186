"""Secrets are nowhere where they can be read: not in errors, reprs, logs and locations, and not around the embedded server."""

import io
import logging
import traceback
from pathlib import Path

import pytest
from rich.console import Console
from tests.support.cli_world import fails
from tests.support.secure_world import serving

import chatledger
from chatledger import ChatledgerError, Login
from chatledger.infra.store.opening.presence import without_secrets
from chatledger.jetstream import Endpoint

SECRET = "hunter-2"
LOCATIONS = [
    f"nats://{SECRET}@127.0.0.1:1/s",
    f"nats://ada:{SECRET}@127.0.0.1:1/s",
    f"tls://ada:{SECRET}@127.0.0.1:1,127.0.0.1:2/s",
    f"nats://ada:{SECRET}@127.0.0.1:1,ada:{SECRET}@127.0.0.1:2/s",
    f"nats://ada:{SECRET}/x@127.0.0.1:1/s",
    f"nats://ada:{SECRET}#x@127.0.0.1:1/s",
    f"nats://ada:{SECRET}?x@127.0.0.1:1/s",
    f"nats://ada:x@{SECRET}@127.0.0.1:1/s",
    f"nats://ada:{SECRET}@[::1/s",
    f"nats://ada:{SECRET}@127.0.0.1:port/s",
    f"nats://ada:{SECRET}",
    f"nats://127.0.0.1:1/s?token={SECRET}",
    f"nats://127.0.0.1:1/s?password={SECRET}&replicas=1",
    f"postgresql://ada:{SECRET}@127.0.0.1:1/db",
    f"postgresql://ada:{SECRET}@127.0.0.1:port/db",
    f"postgresql://127.0.0.1:1/db?user=ada&password={SECRET}",
    f"mysql://ada:{SECRET}@127.0.0.1/db",
    f"mysql+pymysql://ada:{SECRET}@127.0.0.1:1/db",
    f"mysql+pymysql://ada:{SECRET}@127.0.0.1:port/db",
    f"mysql+pymysql://ada:{SECRET}",
    f"mysql+nodriver://ada:{SECRET}@127.0.0.1/db",
    f"mssql+pyodbc://ada:{SECRET}@127.0.0.1:1/db",
    f"mssql+pyodbc:///?odbc_connect=SERVER%3D127.0.0.1%3BPWD%3D{SECRET}",
    f"postgresql+psycopg://ada:{SECRET}@127.0.0.1:1/db",
]


@pytest.mark.parametrize("location", LOCATIONS)
def test_locations_in_errors(location: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is wrong with a location, what is raised and logged does not show its secret, and neither do the causes."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ChatledgerError) as caught:
        chatledger.open(location, timeout_s=0.5, index=tmp_path)

    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error) + repr(error)
        error = error.__cause__
    assert SECRET not in caplog.text


@pytest.mark.guard
@pytest.mark.parametrize("location", [one for one in LOCATIONS if "port" in one or "mysql" in one or "#" in one])
def test_the_command_line(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATLEDGER_LOCATION", location)
    assert SECRET not in fails(1, "--location", location, "chats")


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("./chats", "./chats"),
        ("./a@b", "./a@b"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("nats://host/s?replicas=3", "nats://host/s?replicas=3"),
        ("nats://ada:x@host/s", "nats://…@host/s"),
        ("nats://ada:x/y@z@host/s", "nats://…@host/s"),
        ("postgresql://host/db?schema=a&password=x&host=/y", "postgresql://host/db?schema=a&password=…&host=/y"),
    ],
)
def test_how_locations_are_shown(location: str, shown: str) -> None:
    assert without_secrets(location) == shown


@pytest.mark.parametrize(
    "holder",
    [
        Login(token=SECRET),
        Login(user="ada", password=SECRET),
        Endpoint(urls=("nats://h",), token=SECRET),
        Endpoint(urls=("nats://h",), user="ada", password=SECRET),
    ],
    ids=["login-token", "login-password", "endpoint-token", "endpoint-password"],
)
def test_representations(holder: object) -> None:
    """Neither `repr` nor what `rich` shows of local variables."""
    console = Console(file=io.StringIO(), width=200)
    console.print(holder)
    assert isinstance(console.file, io.StringIO)

    assert SECRET not in repr(holder) + f"{holder}" + console.file.getvalue()


def test_a_session_on_a_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not while it works, and not while it fails: in the log at the finest level, in tracebacks, in the ledger's files."""
    caplog.set_level(logging.DEBUG)
    with serving(tmp_path / "server", f"authorization {{ token: {SECRET} }}") as address:
        place = f"nats://{SECRET}@{address}/s"
        with chatledger.open(place, create=True, index=tmp_path / "index") as ledger:
            ledger.create_chat("c", "u")
            shown = f"{ledger!r} {ledger.location}"
        try:
            chatledger.open(place.replace("/s", "/absent"))
        except ChatledgerError:
            shown += traceback.format_exc()
    assert "…@" in shown
    assert SECRET not in shown + caplog.text
    for file in (tmp_path / "index").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()
