"""A server takes encryption keys and the login at NATS from the environment, as the command line does."""

from pathlib import Path

import httpx
import pytest
from tests.support.encrypted_world import KEY, found_in, in_memory
from tests.support.http_world import API, serving
from tests.support.mcp_world import call, over_stdio
from tests.support.secure_world import serving as nats_serving

import chatledger
from chatledger.errors import ConfigurationError, LogRefusedError
from chatledger.infra.entrypoints.http.settings import Serving
from chatledger.infra.store.opening import KEY_ENV

__all__ = ["in_memory"]  # a fixture
SECRETS = {"message": "the password is swordfish", "title": "Dinner with Ophelia"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def write(location: str, *, create: bool = False) -> None:
    """Serve a ledger, write to it, and stop."""
    app = Serving(location=location, create=create).application()
    with serving(app) as url, httpx.Client(base_url=url + API) as client:
        assert client.post("/chats", json={"id": "c", "title": SECRETS["title"]}).status_code == 201
        body = {"messages": [{"name": "user", "data": SECRETS["message"]}]}
        assert client.post("/chats/c/messages", json=body).status_code == 201


@pytest.mark.usefixtures("in_memory")
def test_an_encrypted_ledger_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)
    write(str(tmp_path / "data"))

    assert found_in(tmp_path, SECRETS) == set()
    with pytest.raises(ConfigurationError, match="encrypt"):
        chatledger.open(tmp_path / "data")


def test_a_server_logs_in_and_makes_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with nats_serving(tmp_path, "authorization { token: hunter }") as address:
        location = f"nats://{address}/support"
        with pytest.raises(LogRefusedError):
            chatledger.open(location)
        monkeypatch.setenv("CHATLEDGER_TOKEN", "hunter")
        write(location, create=True)
        with chatledger.open(location, login=chatledger.Login(token="hunter")) as ledger:
            assert [message.text for message in ledger.get_messages("c")] == [SECRETS["message"]]


@pytest.mark.soak
@pytest.mark.usefixtures("in_memory")
@pytest.mark.anyio
async def test_an_assistant_reads_an_encrypted_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)
    write(str(tmp_path / "data"))
    async with over_stdio(str(tmp_path / "data"), environment={KEY_ENV: KEY}) as client:
        found = await call(client, "list_conversations")
    assert [one["title"] for one in found["conversations"]] == [SECRETS["title"]]
