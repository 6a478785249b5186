"""The one way from a route to its answer, whatever contract the route is of."""

from collections.abc import Iterator

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from tests.support.http_world import serving

import chatledger
from chatledger import user
from chatledger.infra.entrypoints.http.contract import Contract, encode_answer
from chatledger.infra.entrypoints.http.problems import RequestError
from chatledger.infra.entrypoints.http.routing import HttpCall, Route
from chatledger.server import create_app


def read(call: HttpCall) -> list[str]:
    """Read, while somebody else writes."""
    messages = call.ledger.get_messages("c")
    call.ledger.append("c", [user("meanwhile")])
    return [message.id for message in messages]


def write(call: HttpCall) -> str:
    """Write."""
    (message,) = call.ledger.append("c", [user("later")])
    return message.id


async def write_twice(call: HttpCall) -> list[str]:
    """Write more than once, as what begins a run does."""
    stored = [await call.async_ledger.append("c", [user(text)]) for text in ("first", "second")]
    return [message.id for (message,) in stored]


async def refuse(call: HttpCall) -> None:
    """Refuse."""
    del call
    raise RequestError(409, "no")


def refused(_: Request, error: Exception) -> Response:
    return Response(f"refused: {error}", 418)


ROUTES = [
    Route("GET", "/read", read),
    Route("POST", "/write", write),
    Route("POST", "/twice", write_twice),
    Route("GET", "/refuse", refuse),
]


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    ledger = chatledger.open_async("memory:")
    ledger.blocking().create_chat("c", "ann")
    app = create_app(ledger, closes_ledger=True)
    app.router.routes[:0] = Contract("/own", ROUTES, encode_answer, refused).paths(app.state.service)
    with serving(app) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client


def test_whoever_follows_from_the_position_of_what_was_read_misses_nothing(client: httpx.Client) -> None:
    answer = client.get("/own/read")
    feed = client.get("/api/v1/history", params={"after": answer.headers["Chatledger-Position"]}).json()

    assert answer.json() == []
    assert [event["type"] for event in feed["events"]].count("message_appended") == 1


def test_the_position_of_a_write_has_what_was_written(client: httpx.Client) -> None:
    answer = client.post("/own/write")
    feed = client.get("/api/v1/history", params={"after": answer.headers["Chatledger-Position"]}).json()

    assert feed["events"] == []


def test_a_function_writes_once_with_a_key_and_a_coroutine_each_of_its_writes(client: httpx.Client) -> None:
    key = {"Idempotency-Key": "k"}
    once, again = (client.post("/own/write", headers=key).json() for _ in range(2))
    twice = client.post("/own/twice", headers={"Idempotency-Key": "other"}).json()

    assert once == again
    assert len(set(twice)) == 2


def test_errors_are_told_in_the_form_of_the_contract_also_where_no_route_is(client: httpx.Client) -> None:
    answers = [client.get("/own/refuse"), client.get("/own/absent"), client.get("/api/v1/absent")]

    assert [answer.status_code for answer in answers] == [418, 418, 404]
    assert answers[0].text == "refused: no"
