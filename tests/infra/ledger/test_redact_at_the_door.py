"""Redaction at the door: what `open(redact=...)` takes out is nowhere, not on the log, in large data, live streams, the index, or an answer."""

# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from tests.support.cli_world import run
from tests.support.encrypted_world import found_in
from tests.support.http_world import serving

import chatledger
from chatledger import ConfigurationError, ContextEngine, InvalidValueError, Ledger, NewMessage, assistant, user
from chatledger.domain.chat.import_tree import Reporter
from chatledger.graph_state import StateStore
from chatledger.importers import ImportedChat, write_all
from chatledger.infra.entrypoints.http.settings import Serving
from chatledger.infra.exchange.jsonl import read_export
from chatledger.infra.ledger.history import MessageHistory
from chatledger.infra.store.redactor import Redactor
from chatledger.items import ItemStore
from chatledger.langgraph import LedgerSaver
from chatledger.redaction import REDACTED, secrets
from chatledger.server import create_app

KEY = "AKIAIOSFODNN7EXAMPLE"
CARD = "4111 1111 1111 1111"
RULES: Any = [secrets(), re.compile(r"\b\d{4}(?: \d{4}){3}\b")]
SAID = f"My key is {KEY}, the card {CARD}. "
CLEAN = f"My key is {REDACTED}, the card {REDACTED}. "
LONG = "Nothing of that is secret. " * 400
CONFIG: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def ledger(place: Path) -> Iterator[Ledger]:
    """A ledger in a directory, uncompressed: afterwards no file has what was taken out."""
    with chatledger.open(place, redact=RULES, compression="none") as opened:
        opened.create_chat("c", "ada")
        yield opened
        opened.verify()
        for found in (KEY, "4111 1111"):
            assert [] == [hit for hit in opened.search(f'"{found}"') if found in hit.message.text]
    assert not found_in(place, {"key": KEY, "card": "4111 1111"})


class State(TypedDict):
    """Messages as pieces, and a note that is serialized as a whole."""

    messages: Annotated[list[Any], add_messages]
    note: str


def graph(saver: LedgerSaver) -> Any:
    program: Any = StateGraph(State)
    program.add_node("answer", lambda _state: {"messages": [AIMessage(SAID)], "note": LONG + SAID})
    program.add_edge(START, "answer")
    return program.compile(checkpointer=saver)


def check_graph(saver: LedgerSaver, turns: int) -> None:
    state = graph(saver).get_state(CONFIG).values
    assert [message.content for message in state["messages"]] == [CLEAN] * 2 * turns
    assert state["note"] == LONG + CLEAN


def test_messages(ledger: Ledger) -> None:
    """Appended, added, large, with metadata, edited, saved; and repeating a call writes nothing."""
    calls: list[Callable[[], object]] = [
        lambda: ledger.append("c", [user(SAID, id="1")]),
        lambda: ledger.add_messages(
            "c", [NewMessage("user", {"deep": [SAID]}, id="2", parent_id="1", metadata={"k": SAID})]
        ),
        lambda: ledger.append("c", [NewMessage("user", LONG * 50 + SAID, id="3")]),
    ]
    assert ledger.append("c", {"role": "user", "content": SAID})[0].text == CLEAN
    for call in calls:
        first, position = call(), ledger.last_position()
        assert call() == first
        assert ledger.last_position() == position
    history = MessageHistory(ledger, "by adapters", owner="ada")
    for count in (1, 0):
        assert len(history.add([user(SAID, id="a")])) == count
        assert len(history.commit(lambda commit: commit.insert([NewMessage("user", SAID, id="b")])) or []) == count
    base = ledger.get_message("a")
    assert base is not None
    history.commit(lambda commit: commit.put(base, NewMessage("user", SAID, id="z")))
    assert {message.text for message in history.messages()} == {CLEAN}
    engine = ContextEngine(ledger, "c", "ada").set(user(SAID, id="5"))
    engine.save()
    ContextEngine(ledger, "c", "ada").set(user(SAID, id="5")).save()  # no edit
    assert [branch.name for branch in ledger.list_branches("c")] == ["main"]
    ContextEngine(ledger, "c", "ada").set(user(f"changed {SAID}", id="5")).save()

    assert ledger.get_message("1") == ledger.append("c", [user(SAID, id="1")])[0]
    assert ledger.get_messages("c", branch="main")[0].text == CLEAN
    assert ledger.get_messages("c")[-1].text == f"changed {CLEAN}"
    ledger.redact("3", keep=f"It was {KEY}")
    kept = ledger.get_message("3")
    assert kept is not None
    assert kept.text == f"It was {REDACTED}"
    stored = ledger.get_message("2")
    assert stored is not None
    assert (stored.data, stored.metadata) == ({"deep": [CLEAN]}, {"k": CLEAN})


def test_imports(ledger: Ledger) -> None:
    """Chats, and threads whose pieces have other digests then; twice, which adds nothing."""
    with chatledger.open("memory:") as other:
        other.create_chat("i", "ada")
        other.append("i", [user(SAID), assistant(SAID)])
        for _ in range(3):
            graph(LedgerSaver(other)).invoke({"messages": [HumanMessage(SAID)]}, CONFIG)
        StateStore(other).put("chat:ada:i", {"note": LONG + SAID, "other": "x"})
        StateStore(other).put("chat:ada:i", {"note": LONG + SAID + "more", "other": "x"})
        stream = io.BytesIO()
        write_all(stream, other.export_all())
    for is_again in (False, True):
        stream.seek(0)
        position = ledger.last_position()
        for record in read_export(
            stream, Reporter("export", strict=True, on_problem=lambda problem: pytest.fail(repr(problem)))
        ):
            _ = ledger.import_chat(record) if isinstance(record, ImportedChat) else ledger.import_value(record)
        assert (ledger.last_position() == position) is is_again

    assert [message.text for message in ledger.get_messages("i")] == [CLEAN, CLEAN]
    assert StateStore(ledger).get("chat:ada:i") == {"note": LONG + CLEAN + "more", "other": "x"}
    check_graph(LedgerSaver(ledger), 3)


def test_threads_states_and_items(ledger: Ledger) -> None:
    saver = LedgerSaver(ledger)
    for _ in range(3):
        graph(saver).invoke({"messages": [HumanMessage(SAID)]}, CONFIG)
    check_graph(saver, 3)
    newest = saver.get_tuple(CONFIG)
    assert newest is not None
    saver.put_writes(newest.config, [("note", SAID), ("messages", HumanMessage(SAID))], "task")
    position = ledger.last_position()
    saver.put_writes(newest.config, [("note", SAID), ("messages", HumanMessage(SAID))], "task")
    assert ledger.last_position() == position
    newest = saver.get_tuple(CONFIG)
    assert newest is not None
    assert newest.pending_writes is not None
    assert [getattr(value, "content", value) for _, _, value in newest.pending_writes] == [CLEAN, CLEAN]
    ItemStore(ledger.for_user("ada")).put(("notes",), "k", {"text": [SAID, {"inner": SAID}], "number": 5})
    item = ItemStore(ledger.for_user("ada")).get(("notes",), "k")
    assert item is not None
    assert item.value == {"text": [CLEAN, {"inner": CLEAN}], "number": 5}
    StateStore(ledger).put("chat:ada:c", {"note": SAID})
    StateStore(ledger).update("chat:ada:c", {"other": SAID}, node="n")
    state = StateStore(ledger).get("chat:ada:c")
    assert state is not None
    assert (state["note"], state["other"]) == (CLEAN, CLEAN)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_live_streams(ledger: Ledger, size: int) -> None:
    """Also where a secret comes in several chunks; readers see all but the end at once."""
    said = SAID * 3 + LONG
    with ledger.live("c", id="s") as answer:
        for at in range(0, len(said), size):
            answer.write(said[at : at + size])
        answer.flush()
        answer.write({"delta": SAID})
        with ledger.read_live("c", "s") as reader:
            chunks = [next(reader).data for _ in range(answer.chunk_count)]
        assert "".join(chunk for chunk in chunks if isinstance(chunk, str)) == CLEAN * 3 + LONG
        assert chunks[-1] == {"delta": CLEAN}
        message = answer.commit(assistant(said))
    assert message.text == CLEAN * 3 + LONG
    with ledger.live("c") as answer:
        answer.write(f"At the end {KEY}")
        assert answer.commit().text == f"At the end {REDACTED}"


@pytest.mark.parametrize(
    "make",
    [
        lambda place: create_app(
            chatledger.open_async(place, redact=RULES, compression="none"), enable=["api"], closes_ledger=True
        ),
        lambda place: Serving(location=str(place), redacts_secrets=True).application(),
    ],
    ids=["open", "serve"],
)
def test_what_is_written_over_http(place: Path, make: Callable[[Path], Any]) -> None:
    with (
        serving(make(place)) as url,
        httpx.Client(base_url=f"{url}/api/v1") as client,
    ):
        client.post("/chats", json={"id": "h"}).raise_for_status()
        for _ in range(2):
            body = {"messages": [{"name": "user", "data": SAID, "id": "1"}]}
            answer = client.post("/chats/h/messages", json=body)
            assert answer.status_code == 201, answer.text
        assert KEY not in client.get("/chats/h/messages").text
    assert not found_in(place, {"key": KEY})


def test_the_server_takes_secrets_out_where_it_is_told() -> None:
    assert "--redact-secrets" in run("serve", "--help").stdout


@pytest.mark.parametrize("redact", [5, ["(", 5], "(", [b"x"]])
def test_what_takes_nothing_out_is_refused(redact: Any) -> None:
    with pytest.raises(ConfigurationError, match="redact"):
        chatledger.open("memory:", redact=redact)


def test_a_function_that_returns_no_text_writes_nothing() -> None:
    with chatledger.open("memory:", redact=lambda _text: None) as opened:  # type: ignore[arg-type,return-value]  # pyright: ignore[reportArgumentType]
        opened.create_chat("c", "ada")
        with pytest.raises(InvalidValueError, match="returned NoneType"):
            opened.append("c", [user("x")])
        assert opened.get_messages("c") == []


def test_patterns_of_secrets() -> None:
    takes_out = secrets()
    tokens = [
        "ghp_" + "a" * 36,
        "sk-ant-api03-" + "b" * 90,
        "sk-proj-" + "c" * 60,
        "AIza" + "d" * 35,
        "xoxb-" + "1" * 12 + "-" + "2" * 12 + "-" + "e" * 24,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabcd\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nwithout an end",
    ]
    for token in tokens:
        assert takes_out(f"before {token}") == f"before {REDACTED}"
        assert takes_out(takes_out(token)) == REDACTED
    plain = "The password is the name of my cat; see https://example.org/a?b=c and sk-learn, 123456."
    assert takes_out(plain) == plain


@given(
    parts=st.lists(st.sampled_from(["word ", "4111 1111 1111 1111 ", "\n", KEY, " ", "x" * 70, "ü"]), max_size=60),
    cuts=st.lists(st.integers(1, 60), min_size=1, max_size=60),
)
def test_a_cut_stream_is_redacted_as_the_whole(parts: list[str], cuts: list[int]) -> None:
    """However its text comes in."""
    redactor, said = Redactor([_clean]), "".join(parts)
    sent, held, at = "", "", 0
    for size in (cuts * (len(said) + 1))[: len(said)]:
        clean, held = redactor.cut(held + said[at : at + size])
        sent, at = sent + clean, at + size

    assert sent + redactor.text(held + said[at:]) == _clean(said)


def _clean(text: str) -> str:
    return re.sub(rf"{KEY}|\d{{4}}(?: \d{{4}}){{3}}", REDACTED, text)


def test_values_that_only_their_serializer_reads_stay() -> None:
    """And what is no msgpack after all."""
    redactor = Redactor([_clean])
    for data in (b"\xc1", b"", msgspec.msgpack.encode("x")):
        assert redactor._packed(data) is data  # pyright: ignore[reportPrivateUsage]
