"""Half an emoji, integers beyond 64 bits and NaN in messages, through every door: appended, streamed, over HTTP, exported, printed."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import HumanMessage
from tests.support.cli_world import ask, run
from tests.support.explorer_world import BROWSER
from tests.support.http_world import serving

import chatledger
from chatledger import ContextEngine, Ledger, NewMessage, user
from chatledger.domain.chat.live import LiveChunk
from chatledger.domain.limits import same_json
from chatledger.infra.entrypoints.langgraph.serializer import StateSerializer
from chatledger.server import create_app

HALF, OTHER_HALF = "\ud83d", "\ude00"
ODD: dict[str, Any] = {
    "text": f"cut {HALF}",
    f"{HALF} key": [2**70, -(2**300)],
    "nan": [math.nan, math.inf],
    "usual": "😀",
}


def append_odd(ledger: Ledger) -> None:
    ledger.create_chat("c", "ada")
    ledger.append("c", [user(f"said {HALF}", id="u"), NewMessage("tool", ODD, id="t")])


@pytest.mark.parametrize("location", ["memory:", "data", "sqlite:///log.db"])
def test_a_message_is_kept(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole and lazily, in the last messages, in a context, found again, and after the index was built anew."""
    monkeypatch.chdir(tmp_path)
    with chatledger.open(location) as ledger:
        append_odd(ledger)
        append_odd_again = ledger.append("c", [user(f"said {HALF}", id="u"), NewMessage("tool", ODD, id="t")])
        first, second = ledger.get_messages("c")

        assert same_json(ODD, second.data)
        assert f"said {HALF}" == first.text
        assert [first, second] == ledger.get_messages("c", lazy_data=True) == append_odd_again
        assert second == ledger.get_message("t") == ledger.get_messages("c", limit=1)[0]
        assert [second.id] == [hit.message.id for hit in ledger.search("cut")]
        assert [("", False), ("said", True), (" \ufffd", False)] == ledger.search("said")[0].parts
        assert f"said {HALF}" == ContextEngine(ledger, "c", user_id="ada").resolve().messages[0]["parts"][0]["text"]
        ledger.rebuild()
        assert [first, second] == ledger.get_messages("c")
        ledger.verify()


def test_an_export_brings_it_back(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with chatledger.open(place) as ledger:
        append_odd(ledger)
        stored = ledger.get_messages("c")
    written = run("export", "-o", tmp_path / "all.jsonl", at=place)
    run("import", tmp_path / "all.jsonl", at=tmp_path / "copy")

    assert 0 == written.exit_code
    with chatledger.open(tmp_path / "copy") as copy:
        assert stored == copy.get_messages("c")


def test_the_command_line_shows_it(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with chatledger.open(place) as ledger:
        append_odd(ledger)

    assert "said \ufffd" in str(ask("show", "c", "--json", at=place))
    for args in (["show", "c"], ["show", "c", "--messages"], ["log", "c"], ["diff", "c", "u", "t"], ["search", "cut"]):
        assert 0 == run(*args, at=place).exit_code


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        yield ledger


def chunks_of(ledger: Ledger, stream_id: str) -> list[Any]:
    with ledger.read_live("c", stream_id, follow=False) as reader:
        return [LiveChunk.data.__get__(chunk) for chunk in reader]


def test_an_emoji_in_two_tokens_of_a_live_stream_is_one(ledger: Ledger) -> None:
    """Readers get it whole, and so does the message; a half whose other half does not come stays one."""
    with ledger.live("c", id="s") as answer:
        for token in (
            "Hi ",
            f"a{HALF}",
            f"{OTHER_HALF}b",
            HALF,
            f"{OTHER_HALF}{HALF}",
            OTHER_HALF,
            f"c{HALF}",
            "d",
            HALF,
        ):
            answer.write(token)
        answer.flush()
        assert ["Hi ", "a", "😀b", "😀", "😀", "c", f"{HALF}d"] == chunks_of(ledger, "s")
        assert f"Hi a😀b😀😀c{HALF}d{HALF}" == answer.commit().text
        assert [HALF] == chunks_of(ledger, "s")[-1:]


def test_half_an_emoji_stays_before_what_is_no_text(ledger: Ledger) -> None:
    with ledger.live("c", id="s") as answer:
        for chunk in (f"a{HALF}", {"type": HALF, "n": 2**70}, f"b{HALF}"):
            answer.write(chunk)
    assert ["a", HALF, {"type": HALF, "n": 2**70}, "b", HALF] == chunks_of(ledger, "s")


ROUTES = {
    "AI SDK": ("PUT", "/api/chat/a", r'[{"id":"m1","role":"user","parts":[{"type":"text","text":"cut \ud83d %d"}]}]'),
    "Conversations": (
        "POST",
        "/v1/conversations",
        r'{"items":[{"type":"message","role":"user","content":"cut \ud83d %d"}]}',
    ),
    "native": ("POST", "/api/v1/chats/c/nodes", r'{"messages":[{"name":"user","data":"cut \ud83d %d"}]}'),
}


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    ledger = chatledger.open_async("memory:")
    with serving(create_app(ledger)) as url, httpx.Client(base_url=url, timeout=30) as client:
        assert 201 == client.post("/api/v1/chats", json={"id": "c", "user_id": "ada"}).status_code
        yield client


@pytest.mark.parametrize("name", ROUTES)
def test_javascript_may_send_it(http: httpx.Client, name: str) -> None:
    """`JSON.stringify` writes half an emoji as it stands, and that is JSON."""
    method, path, body = ROUTES[name]

    assert http.request(method, path, content=body % 2**70).status_code < 300
    broken = http.request(method, path, content=body % 1 + "]")
    assert (400, True) == (broken.status_code, "no JSON" in broken.text)


def test_what_comes_over_http_is_read_over_http(http: httpx.Client) -> None:
    """A client that saves what it was told changes nothing."""
    sent = json.dumps([{"id": "n1", "role": "user", "parts": [{"type": "text", "text": f"cut {HALF}", "n": 2**70}]}])
    http.put("/api/chat/n", content=sent)
    told = http.get("/api/chat/n").json()
    http.put("/api/chat/n", json=told["messages"] if isinstance(told, dict) else told)
    nodes = http.get("/api/v1/chats/n/graph").json()["nodes"]
    exported = [json.loads(line) for line in http.get("/api/v1/chats/n/export").text.splitlines()]
    history = http.get("/api/v1/history?chat_id=n")

    assert "cut \ufffd" in json.dumps(told, ensure_ascii=False)
    assert str(2**70) in json.dumps(told)
    assert [("n1", "cut \ufffd")] == [(node["id"], node["content"]) for node in nodes]
    assert json.loads(sent)[0]["parts"] == exported[2]["message"]["data"]["parts"]
    assert (200, True) == (history.status_code, "cut \ufffd" in history.text)


@pytest.mark.guard
def test_the_explorer_shows_it(http: httpx.Client) -> None:
    http.post("/api/v1/chats", json={"id": "shown", "user_id": "ada"})
    http.post(
        "/api/v1/chats/shown/nodes", content=r'{"messages":[{"id":"s1","name":"user","data":{"a":"cut \ud83d"}}]}'
    )
    for path in ("/c/shown", "/", "/search?q=cut", "/log"):
        page = http.get(path, headers=BROWSER)
        assert (200, path) == (page.status_code, path)


@dataclass
class Plan:
    """A value of a graph's state."""

    steps: list[int]


def test_a_graph_keeps_large_integers() -> None:
    """Also in objects; what LangGraph's own serializer takes is as it writes it."""
    serializer = StateSerializer([Plan])
    values: Any = {"hash": 2**70, "all": [-(2**65), (1, {"a": 2**64})], "plan": Plan([2**80]), "set": {2**90}}
    values["message"] = HumanMessage("x", additional_kwargs={"n": 2**70})

    back = serializer.loads_typed(serializer.dumps_typed(values))

    assert values | {"all": [-(2**65), [1, {"a": 2**64}]]} == back
    with pytest.raises(TypeError):
        serializer.dumps_typed({"n": 2**70, "no": object()})
