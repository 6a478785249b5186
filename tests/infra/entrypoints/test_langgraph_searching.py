"""Messages of threads, found by their words in the checkpoint from which on the state has them."""

# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false, reportUnknownArgumentType=false

import asyncio
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, StateGraph
from tests.support.cli_world import ask, fails, run
from tests.support.langgraph_programs import react
from tests.support.langgraph_world import open_calls
from tests.support.soak import examples

import chatledger
from chatledger.domain.versioned.record import VersionRecord
from chatledger.errors import InvalidValueError
from chatledger.infra.entrypoints.langgraph.searching import _Line  # pyright: ignore[reportPrivateUsage]
from chatledger.infra.testing.savers import Calls
from chatledger.langgraph import LedgerSaver, ThreadHit

CONFIG: Any = {"configurable": {"thread_id": "t"}}
WORDS = ("river", "harbour", "castle", "bridge")


def texts(hits: list[ThreadHit]) -> list[str]:
    return [hit.text for hit in hits]


def test_messages_of_a_graph_are_found_where_they_came(ledger: chatledger.Ledger) -> None:
    saver = LedgerSaver(ledger)
    graph = react(saver)
    for text in ("Where is the castle?", "And the bridge?"):
        graph.invoke({"messages": [HumanMessage(text)]}, CONFIG)
    history = [*graph.get_state_history(CONFIG)][::-1]
    hits = saver.search("castle", thread_id="t")

    assert len(hits) == 3
    for hit in hits:
        first = next(
            state for state in history if hit.message_id in [one.id for one in state.values.get("messages", [])]
        )
        assert hit.checkpoint_id == first.config["configurable"]["checkpoint_id"]
        assert (hit.thread_id, hit.checkpoint_ns, hit.channel) == ("t", "", "messages")
        assert "<mark>castle</mark>" in hit.snippet
    assert sorted(hit.role for hit in hits) == ["ai", "human", "tool"]
    assert [hit.role for hit in saver.search("bridge AND where", thread_id="t")] == []
    assert saver.search('"and the bridge"', thread_id="t", limit=1)[0].text.endswith("And the bridge?")


def test_threads_assistants_and_users_do_not_mix(ledger: chatledger.Ledger) -> None:
    for number, owner in enumerate(("ada", "bob")):
        saver = LedgerSaver(ledger.for_user(owner))
        for assistant in ("planner", "critic"):
            calls = Calls(saver.for_assistant(assistant), is_async=bool(number))
            calls.put(f"of {owner}", {"messages": [HumanMessage(f"a castle for {owner} and {assistant}")]})
    ada = LedgerSaver(ledger.for_user("ada"))

    assert len(LedgerSaver(ledger).search("castle")) == 4
    assert {hit.thread_id for hit in ada.search("castle")} == {"of ada"}
    assert ada.search("castle", thread_id="of bob") == ada.search("castle", thread_id="unknown") == []
    assert texts(ada.for_assistant("planner").search("castle")) == ["a castle for ada and planner"]
    assert texts(ada.search("castle", checkpoint_ns="assistant:critic")) == ["a castle for ada and critic"]
    assert ada.for_assistant("planner").search("castle", checkpoint_ns="assistant:critic") == []


def _append(state: list[Any] | None, writes: Any) -> list[Any]:
    return [*(state or []), *(one for write in writes for one in write)]


class Deltas(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_append, snapshot_frequency=3)]


def test_messages_of_delta_channels_are_found(ledger: chatledger.Ledger) -> None:
    """Also those that are only the writes of a checkpoint that was pruned: in the one that is made from it."""
    builder: Any = StateGraph(Deltas)
    builder.add_node("answer", lambda state: {"messages": [AIMessage(f"answer {len(state['messages'])}")]})
    builder.add_edge(START, "answer")
    saver = LedgerSaver(ledger)
    graph = builder.compile(checkpointer=saver)
    for number in range(4):
        graph.invoke({"messages": [HumanMessage(f"question {number}")]}, CONFIG)
    everything = texts(saver.search("question OR answer", thread_id="t"))
    history = {state.config["configurable"]["checkpoint_id"]: state for state in graph.get_state_history(CONFIG)}

    assert sorted(everything) == sorted(message.text for message in graph.get_state(CONFIG).values["messages"])
    for hit in saver.search("question OR answer", thread_id="t"):
        assert hit.text in [message.text for message in history[hit.checkpoint_id].values["messages"]]
    saver.prune(["t"])
    newest = graph.get_state(CONFIG)
    hits = saver.search("question OR answer", thread_id="t")
    assert sorted(texts(hits)) == sorted(message.text for message in newest.values["messages"])
    assert {hit.checkpoint_id for hit in hits} == {newest.config["configurable"]["checkpoint_id"]}


def test_what_was_removed_is_not_found(saver: Calls) -> None:
    """Neither what was pruned, though a list that stays grew out of it, nor what was deleted."""
    ours: LedgerSaver = saver.saver
    messages = [HumanMessage(f"castle number {number} " * 20, id=str(number)) for number in range(6)]
    first = saver.put("t", {"messages": messages})
    saver.put("t", {"messages": [*messages[:2], HumanMessage("castle of the end", id="e")]}, parent=first)
    saver.writes("t", first, [("messages", [AIMessage("castle on its way")])])
    assert len(ours.search("castle", thread_id="t")) == 7
    saver("prune", ["t"])

    assert {hit.message_id for hit in ours.search("castle", thread_id="t")} == {"0", "1", "e"}
    saver("delete_thread", "t")
    assert ours.search("castle") == []


def test_pending_writes_changes_and_other_forms(saver: Calls) -> None:
    ours: LedgerSaver = saver.saver
    first = saver.put("t", {"messages": [{"role": "user", "content": "a castle", "id": "1"}, RemoveMessage(id="0")]})
    content = [{"type": "text", "text": "another castle"}, {"type": "image", "url": "castle"}]
    second = saver.put("t", {"messages": [{"role": "user", "content": content, "id": "1"}]}, parent=first)
    saver.writes("t", second, [("messages", HumanMessage("castle to come")), ("other", HumanMessage("castle"))])
    hits = ours.search("castle", thread_id="t")

    assert [("castle to come", second), ("another castle", second), ("a castle", first)] == [
        (hit.text, hit.checkpoint_id) for hit in hits
    ]
    assert texts(ours.search("castle", thread_id="t", channels=["other"])) == ["castle"]
    assert texts(ours.search("castle", thread_id="t", limit=1)) == ["castle to come"]


@settings(max_examples=examples(40))
@given(
    turns=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), max_size=8),
    query=st.sampled_from([*WORDS, "river castle", "river OR castle", "river NOT castle", "riv*"]),
)
def test_as_a_scan_of_every_state_finds_them(turns: list[list[str]], query: str) -> None:
    """Each message once, in the first state that has it."""
    with open_calls("unbound sync") as saver:
        messages: list[HumanMessage] = []
        expected: list[tuple[str, str]] = []
        parent: str | None = None
        for number, words in enumerate(turns):
            messages = [*messages, HumanMessage(" ".join(words), id=str(number))]
            parent = saver.put("t", {"messages": messages}, parent=parent)
            is_match = {
                "river castle": {"river", "castle"} <= {*words},
                "river OR castle": bool({"river", "castle"} & {*words}),
                "river NOT castle": "river" in words and "castle" not in words,
                "riv*": "river" in words,
            }.get(query, query in words)
            if is_match:
                expected.append((str(number), parent))

        hits = saver.saver.search(query, thread_id="t", limit=None)
        assert expected[::-1] == [(hit.message_id, hit.checkpoint_id) for hit in hits]


def test_a_serializer_of_ones_own_is_asked(ledger: chatledger.Ledger) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")
    saver = LedgerSaver(ledger, serde=serde)
    Calls(saver, is_async=False).put("t", {"messages": [HumanMessage("a castle")]})

    assert texts(saver.search("castle")) == ["a castle"]


class Reading:
    """Counts the pieces that are read of threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from chatledger.projections.versioned.reader import IndexedVersioned

        self.count = 0
        read = IndexedVersioned.stored_content

        def counted(thread: IndexedVersioned, digest: bytes) -> Any:
            self.count += 1
            return read(thread, digest)

        monkeypatch.setattr(IndexedVersioned, "stored_content", counted)


def test_a_search_of_one_thread_costs_what_that_thread_has(
    ledger: chatledger.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many others there are; and a message that many checkpoints share is read once."""
    saver = Calls(LedgerSaver(ledger), is_async=False)

    def fill(thread_id: str, count: int) -> None:
        messages, parent = list[Any](), None
        for number in range(count):
            messages = [*messages, HumanMessage(f"castle {number}", id=str(number))]
            parent = saver.put(thread_id, {"messages": messages}, parent=parent)

    def cost(thread_id: str) -> int:
        reading = Reading(monkeypatch)
        assert LedgerSaver(ledger).search("castle", thread_id=thread_id, limit=1)
        monkeypatch.undo()
        return reading.count

    fill("t", 20)
    alone = cost("t")
    for number in range(10):
        fill(f"other {number}", 5)
    fill("long", 80)

    assert cost("t") == alone
    assert cost("long") < 6 * alone


class Endless(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_append, snapshot_frequency=10_000)]


def test_a_search_of_a_pruned_thread_costs_what_that_thread_has(
    ledger: chatledger.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that is made from a long row of pruned checkpoints is not looked for from each of them."""
    builder: Any = StateGraph(Endless)
    builder.add_node("answer", lambda _: {"messages": [AIMessage("castle")]})
    builder.add_edge(START, "answer")
    saver = LedgerSaver(ledger)
    graph = builder.compile(checkpointer=saver)
    following, count = _Line.following, 0

    def counted(line: _Line, record: VersionRecord) -> Any:
        nonlocal count
        count += 1
        return following(line, record)

    monkeypatch.setattr(_Line, "following", counted)

    def cost(thread_id: str, runs: int) -> int:
        nonlocal count
        for _ in range(runs):
            graph.invoke({"messages": []}, {"configurable": {"thread_id": thread_id}})
        saver.prune([thread_id])
        count = 0
        assert len(saver.search("castle", thread_id=thread_id, limit=None)) == runs
        return count

    assert cost("long", 20) < 5 * cost("short", 5)


async def _find(saver: LedgerSaver) -> list[ThreadHit]:
    return await saver.asearch("castle", thread_id="t")


def test_it_can_be_awaited_and_refuses_what_it_cannot_take(ledger: chatledger.Ledger) -> None:
    saver = LedgerSaver(ledger)
    Calls(saver, is_async=False).put("t", {"messages": [HumanMessage("a castle")]})
    assert asyncio.run(_find(saver)) == saver.search("castle", thread_id="t")
    assert saver.search("...") == saver.search("castle", limit=0) == []
    wrong: list[dict[str, Any]] = [{"query": 7}, {"query": "a", "limit": -1}, {"query": "a", "channels": "messages"}]
    for arguments in wrong:
        with pytest.raises(InvalidValueError):
            saver.search(**arguments)


def test_the_command_line_finds_messages_of_a_thread(tmp_path: Path) -> None:
    with chatledger.open(tmp_path) as ledger:
        calls = Calls(LedgerSaver(ledger).for_assistant("guide"), is_async=False)
        first = calls.put(
            "t", {"messages": [HumanMessage("Where is the castle?"), AIMessage("The castle? Above.", id="a")]}
        )
    shown = run("search", "castle", "--thread", "t", at=tmp_path).stdout

    assert f"ai  checkpoint {first}  assistant:guide" in shown
    assert "Where is the castle?" in shown
    found = ask("search", "castle", "--thread", "t", "--limit", "1", at=tmp_path)
    assert [("a", first, "assistant:guide")] == [
        (one["message_id"], one["checkpoint_id"], one["checkpoint_ns"]) for one in found
    ]
    rows = run("search", "castle", "--thread", "t", "--offset", "1", "--csv", at=tmp_path).stdout.splitlines()
    assert (2, "thread_id,checkpoint_ns") == (len(rows), ",".join(rows[0].split(",")[:2]))
    assert "No message matches" in run("search", "bridge", "--thread", "t", at=tmp_path).stdout
    assert "'u'" in fails(1, "search", "castle", "--thread", "u", at=tmp_path)
    for option in (("--role", "ai"), ("--in", "tools"), ("--include-hidden",)):
        assert "--thread" in fails(2, "search", "castle", "--thread", "t", *option, at=tmp_path)
