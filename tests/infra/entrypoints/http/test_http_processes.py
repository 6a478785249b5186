"""Servers as processes: several workers on one directory, and a stop that loses nothing."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from tests.support.feed_server import feed_server

import chatledger

API = "/api/v1"


def ids_in(answer: httpx.Response) -> Iterator[int]:
    for line in answer.iter_lines():
        if line.startswith("id: "):
            yield int(line.removeprefix("id: "))


def write(client: httpx.Client, count: int) -> list[int]:
    positions: list[int] = []
    for _ in range(count):
        made = client.post(f"{API}/chats", json={})
        assert made.status_code == 201, made.text
        positions.append(int(made.headers["Chatledger-Position"]))
    return positions


@pytest.mark.soak
def test_streams_end_when_the_server_is_told_to_stop_and_go_on_at_the_next(tmp_path: Path) -> None:
    seen: list[int] = []
    written: list[int] = []
    with (
        feed_server(tmp_path / "data") as (first, url),
        httpx.Client(base_url=url, timeout=60) as client,
        client.stream("GET", "/feed") as stream,
    ):
        written += write(client, 3)
        ids = ids_in(stream)
        seen += [next(ids) for _ in written]
        first.terminate()
        seen += ids  # to the end of the stream, which comes without an error
        assert first.wait(60) == 0
    assert seen == sorted(seen)
    with feed_server(tmp_path / "data") as (_, url), httpx.Client(base_url=url, timeout=60) as client:
        written += write(client, 3)
        with client.stream("GET", "/feed", headers={"Last-Event-ID": str(seen[-1])}) as stream:
            ids = ids_in(stream)
            while seen[-1] < written[-1]:
                seen.append(next(ids))
    assert seen == sorted(set(seen))
    assert set(written) <= set(seen)
    with chatledger.open(tmp_path / "data") as ledger:
        assert [event.position for event in ledger.history()] == seen


@pytest.mark.soak
def test_a_stream_of_an_idle_client_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    with feed_server(tmp_path / "data") as (process, url), ExitStack() as open_streams:
        for _ in range(3):
            client = open_streams.enter_context(httpx.Client(base_url=url, timeout=60))
            open_streams.enter_context(client.stream("GET", "/feed"))
        process.terminate()
        assert process.wait(60) == 0
    assert (tmp_path / "errors.txt").read_text() == ""  # uvicorn would say that it cancels them, after 10 s


@pytest.mark.soak
def test_a_server_that_has_just_begun_stops_as_any_other(tmp_path: Path) -> None:
    """It closes its ledger, and does not die of the signal."""
    for _ in range(3):
        with feed_server(tmp_path / "data") as (process, _):
            process.terminate()
            assert process.wait(60) == 0


def clients_of_all(url: str, workers: int, stack: ExitStack) -> dict[str, httpx.Client]:
    """A client of each worker: it keeps its connection, which one worker took."""
    found: dict[str, httpx.Client] = {}
    until = time.monotonic() + 120  # as processes take their time to start
    while time.monotonic() < until:
        client = httpx.Client(base_url=url, timeout=60)
        worker = client.get("/worker").text
        if worker in found:
            client.close()
        else:
            stack.callback(client.close)
            found[worker] = client
        if len(found) == workers:
            return found
    raise AssertionError(found)


@pytest.mark.soak
def test_several_workers_answer_as_one(tmp_path: Path) -> None:
    workers = 3
    with feed_server(tmp_path / "data", workers) as (process, url), ExitStack() as stack:
        clients = list(clients_of_all(url, workers, stack).values())
        assert {client.get("/readyz").status_code for client in clients} == {200}
        streams = [
            iter(ids_in(stack.enter_context(client.stream("GET", "/feed")))) for client in clients_again(url, stack)
        ]
        clients[0].post(f"{API}/chats", json={"id": "shared"}).raise_for_status()
        heads: list[str] = []
        position = "0"
        for number in range(30):
            writer, reader = clients[number % workers], clients[(number + 1) % workers]
            made = writer.post(
                f"{API}/chats/shared/messages", json={"messages": [{"name": "user", "data": str(number)}]}
            )
            assert made.status_code == 201, made.text
            heads.append(made.json()[0]["id"])
            position = made.headers["Chatledger-Position"]
            read = reader.get(
                f"{API}/chats/shared/messages", params={"limit": 1000}, headers={"Chatledger-Wait-For": position}
            )
            assert [entry["message"]["id"] for entry in read.json()["entries"]] == heads
        last = int(position)
        for ids in streams:
            seen = [next(ids)]
            while seen[-1] < last:
                seen.append(next(ids))
            assert seen == sorted(set(seen))
            assert len(seen) == 31
        text = clients[0].get("/metrics").text
        assert f"chatledger_index_position {last}\n" in text
        process.terminate()
        assert process.wait(60) == 0


def clients_again(url: str, stack: ExitStack) -> list[httpx.Client]:
    return [stack.enter_context(httpx.Client(base_url=url, timeout=60)) for _ in range(4)]


@pytest.mark.soak
def test_workers_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    workers = 2
    with feed_server(tmp_path / "data", workers) as (_, url), ExitStack() as stack:
        clients = clients_of_all(url, workers, stack)
        next(iter(clients.values())).post(f"{API}/chats", json={"id": "race"}).raise_for_status()
        made: list[str] = []

        def write_many(client: httpx.Client) -> None:
            for number in range(25):
                answer = client.post(
                    f"{API}/chats/race/messages", json={"messages": [{"name": "user", "data": str(number)}]}
                )
                assert answer.status_code == 201, answer.text
                made.append(answer.json()[0]["id"])

        threads = [threading.Thread(target=write_many, args=(client,)) for client in clients.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 50
        client = next(iter(clients.values()))
        page = client.get(f"{API}/chats/race/messages", params={"limit": 1000}).json()
        assert sorted(entry["message"]["id"] for entry in page["entries"]) == sorted(made)
