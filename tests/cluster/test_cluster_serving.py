"""Two HTTP servers on one cluster, as on two machines: clients move between them, and a NATS server dies meanwhile."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from tests.support.cluster_world import READY_S, Cluster, clustered
from tests.support.events import events_of
from tests.support.http_world import client_of
from tests.support.jetstream_world import eventually

import chatledger
from chatledger.server import create_app

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(300), pytest.mark.xdist_group("cluster")]
STREAM = "served"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with clustered(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def server(stack: ExitStack, cluster: Cluster, index: Path) -> httpx.Client:
    """A client of a new server, which has an index of its own."""
    ledger = chatledger.open_async(cluster.place(STREAM), create=True, index=index, timeout_s=READY_S)
    client = stack.enter_context(client_of(create_app(ledger, closes_ledger=True)))
    client.timeout = httpx.Timeout(READY_S)
    return client


def say(client: httpx.Client, text: str, **headers: str) -> httpx.Response:
    body = {"messages": [{"name": "user", "data": text}]}
    return client.post("/chats/c/messages", json=body, headers=headers)


def test_clients_move_between_two_servers(cluster: Cluster, tmp_path: Path) -> None:
    """They read what they wrote, repeat what was not answered, and go on in a feed and in a live stream."""
    with ExitStack() as other, ExitStack() as stack:
        second = server(other, cluster, tmp_path / "second")
        first = server(stack, cluster, tmp_path / "first")
        first.post("/chats", json={"id": "c"}).raise_for_status()
        texts = [str(number) for number in range(20)]
        for number, text in enumerate(texts):
            writer, reader = (first, second) if number % 2 else (second, first)
            said = say(writer, text, **{"Idempotency-Key": text, "Chatledger-Wait-For": "1"})
            position = said.headers["Chatledger-Position"]
            again = say(reader, text, **{"Idempotency-Key": text, "Chatledger-Wait-For": position})
            assert again.json() == said.json()
            page = reader.get("/chats/c/messages?limit=1000", headers={"Chatledger-Wait-For": position}).json()
            assert [entry["message"]["text"] for entry in page["entries"]] == texts[: number + 1]
        live = first.post("/chats/c/live", json={"id": "answer"}).json()
        first.post("/chats/c/live/answer/chunks", json={"epoch": live["epoch"], "chunks": ["a"]}).raise_for_status()
        with events_of(first, "/feed", after=0) as events:
            seen = [int(next(events).id or 0) for _ in range(5)]

        stack.close()  # the first server stops
        node = cluster.leader(STREAM)
        cluster.nodes[node].send(signal.SIGKILL)

        eventually(lambda: second.get("/chats/c/live/answer").json()["status"] == "interrupted", within_s=READY_S)
        epoch = second.post("/chats/c/live/answer/take-over", json={"epoch": live["epoch"]}).json()["epoch"]
        second.post("/chats/c/live/answer/chunks", json={"epoch": epoch, "chunks": ["b"]}).raise_for_status()
        ended = second.post("/chats/c/live/answer/commit", json={"epoch": epoch})
        assert ended.json()["text"] == "ab"
        last = second.get("/position").json()["last_position"]
        with events_of(second, "/feed", last_id=str(seen[-1])) as events:
            while seen[-1] < last:
                seen.append(int(next(events).id or 0))
        assert seen == list(range(1, last + 1))
        cluster.start(node)
