"""Search for what agents said: messages of threads, states and items, each in the version from which on there is it."""

# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false, reportUnknownArgumentType=false

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, StateGraph
from tests.support.cli_world import ask, fails, run
from tests.support.langgraph_programs import react
from tests.support.langgraph_world import open_calls
from tests.support.operation_counting import counting
from tests.support.soak import examples

import chatledger
from chatledger.domain.values import HitPlace
from chatledger.domain.versioned.events import Skeleton
from chatledger.domain.versioned.pruning import Removal
from chatledger.errors import InvalidValueError
from chatledger.graph_state import StateStore
from chatledger.infra.ledger.threads import Threads
from chatledger.infra.testing.savers import Calls
from chatledger.items import ItemStore
from chatledger.langgraph import LedgerSaver

CONFIG: Any = {"configurable": {"thread_id": "t"}}
WORDS = ("river", "harbour", "castle", "bridge")


def places(hits: chatledger.SearchHits) -> list[tuple[str, str | None]]:
    """Return the text and the version of each hit."""
    return [(hit.message.text, None if hit.place is None else hit.place.version) for hit in hits]


def texts(hits: chatledger.SearchHits) -> list[str]:
    return sorted(hit.message.text for hit in hits)


def sound(ledger: chatledger.Ledger) -> None:
    """Assert that the search index says what messages say, and what a rebuilt one does."""
    ledger.verify()


def test_messages_of_a_graph_are_found_where_they_came(ledger: chatledger.Ledger) -> None:
    graph = react(LedgerSaver(ledger))
    for text in ("Where is the castle?", "And the bridge?"):
        graph.invoke({"messages": [HumanMessage(text)]}, CONFIG)
    history = [*graph.get_state_history(CONFIG)][::-1]
    hits = ledger.search("castle", within=["text", "tools"])

    assert sorted(hit.message.name for hit in hits) == ["assistant", "assistant", "tool", "user"]
    for hit in hits:
        first = next(
            state for state in history if hit.message.id in [one.id for one in state.values.get("messages", [])]
        )
        assert hit.place is not None
        assert hit.place.version == first.config["configurable"]["checkpoint_id"]
        assert (hit.place.kind, hit.place.id, hit.place.namespace, hit.place.field) == ("thread", "t", "", "messages")
        assert ("castle", True) in hit.parts
    assert ledger.search('"and the bridge"', limit=1)[0].message.text == "And the bridge?"
    assert ledger.search("castle", roles=["assistant"], thread_id="t")[0].message.form == "langchain"
    sound(ledger)


def test_chats_and_agents_are_told_apart(ledger: chatledger.Ledger) -> None:
    ledger.create_chat("c", "ada")
    ledger.append("c", [chatledger.user("a castle of a chat")])
    ledger.create_chat("t", "ada")
    ledger.append("t", [chatledger.user("another castle of a chat")])
    Calls(LedgerSaver(ledger), is_async=False).put("t", {"messages": [HumanMessage("a castle of a thread")]})

    assert len(ledger.search("castle")) == 3
    assert texts(ledger.search("castle", where="chats")) == ["a castle of a chat", "another castle of a chat"]
    assert texts(ledger.search("castle", where="agents")) == ["a castle of a thread"]
    assert texts(ledger.search("castle", thread_id="t")) == ["a castle of a thread"]
    assert texts(ledger.search("castle", chat_id="t")) == ["another castle of a chat"]
    assert len(ledger.search("castle", user_id="ada")) == 3  # the thread is that of her chat
    assert ledger.search("castle", user_id="bob") == ledger.search("castle", thread_id="c") == []
    wrong: list[dict[str, Any]] = [
        *(
            {"thread_id": "t", "chat_id": "t"},
            {"thread_id": "t", "where": "chats"},
            {"where": "agents", "chat_id": "t"},
        ),
        *(
            {"where": "everywhere"},
            {"thread_id": "t", "where": "items"},
            {"thread_id": "t", "mode": "both"},
            {"where": "agents", "mode": "meaning"},
        ),
    ]
    for arguments in wrong:
        with pytest.raises(InvalidValueError):
            ledger.search("castle", **arguments)


def test_a_saver_finds_what_is_its_own(ledger: chatledger.Ledger) -> None:
    saver = LedgerSaver(ledger)
    for assistant in ("planner", "critic"):
        Calls(saver.for_assistant(assistant), is_async=False).put(
            "t", {"messages": [HumanMessage(f"castle, {assistant}")]}
        )
    ItemStore(ledger.for_user("ada")).put(("notes",), "k", {"role": "user", "content": "castle, a note"})

    assert sorted(hit.message.text for hit in saver.search("castle")) == ["castle, critic", "castle, planner"]
    assert [hit.message.text for hit in saver.for_assistant("critic").search("castle")] == ["castle, critic"]
    assert len(saver.search("castle", limit=1)) == 1
    assert asyncio.run(saver.asearch("castle")) == saver.search("castle")
    assert texts(ledger.search("castle", where="items")) == ["castle, a note"]
    assert texts(ledger.search("castle", where="items", user_id="ada")) == ["castle, a note"]
    assert ledger.search("castle", where="states") == ledger.search("castle", where="threads", user_id="ada") == []


def test_users_see_their_own(ledger: chatledger.Ledger) -> None:
    for owner in ("ada", "bob"):
        user = ledger.for_user(owner)
        Calls(LedgerSaver(user), is_async=False).put(f"of {owner}", {"messages": [HumanMessage(f"castle of {owner}")]})
        StateStore(user).put(
            f"chat:{owner}:c", {"messages": [{"role": "user", "content": f"castle, state of {owner}"}]}
        )
        ItemStore(user).put(("notes",), "k", {"role": "user", "content": f"castle, item of {owner}"})
    ledger.create_chat("shared", "bob")
    ledger.set_member("shared", "ada", "reader")
    Calls(LedgerSaver(ledger.for_user("bob")), is_async=False).put(
        "shared", {"messages": [HumanMessage("castle for both")]}
    )
    of_ada = ["castle of ada", "castle, item of ada", "castle, state of ada"]

    assert len(ledger.search("castle")) == 7
    assert texts(ledger.for_user("ada").search("castle")) == ["castle for both", *of_ada]
    assert texts(ledger.search("castle", user_id="ada")) == of_ada
    assert texts(ledger.for_user("ada").search("castle", user_id="bob")) == ["castle for both"]
    assert {hit.place.owner for hit in ledger.search("castle", user_id="bob") if hit.place} == {"bob"}
    counts = ledger.for_user("ada").count_hits("castle")
    assert (counts.total, counts.where, counts.owners) == (
        4,
        {"thread": 2, "state": 1, "item": 1},
        {"ada": 3, "bob": 1},
    )
    assert ledger.count_hits("castle", limit=2).total == 2
    assert (ledger.count_hits("castel").nearest, ledger.for_user("eve").count_hits("castel").nearest) == (
        "castle",
        None,
    )
    assert ledger.for_user("eve").search("castle") == ledger.for_user("ada").search("castle", thread_id="of bob") == []


def test_a_thread_that_names_nobody_costs_the_same_among_many_chats() -> None:
    """Of a user's chats only those are looked at that have such a thread, or that others share."""
    gets: list[int] = []
    for count in (5, 200):
        with chatledger.open("memory:") as ledger:
            for number in range(count):
                ledger.create_chat(f"chat {number}", "ada")
            ledger.create_chat("shared", "bob")
            ledger.set_member("shared", "ada", "reader")
            for owner, thread in ((ledger, "chat 3"), (ledger.for_user("bob"), "shared"), (ledger, "of no chat")):
                Calls(LedgerSaver(owner), is_async=False).put(thread, {"messages": [HumanMessage(f"castle {thread}")]})
            with counting() as counts:
                assert texts(ledger.for_user("ada").search("castle")) == ["castle chat 3", "castle shared"]
                assert texts(ledger.search("castle", user_id="ada")) == ["castle chat 3"]
            gets.append(counts["get"])
            for number in range(4):  # and where such threads are more than the chats
                Calls(LedgerSaver(ledger), is_async=False).put(f"more {number}", {"messages": [HumanMessage("castle")]})
            ledger.create_chat("of cleo", "cleo")
            Calls(LedgerSaver(ledger), is_async=False).put("of cleo", {"messages": [HumanMessage("castle of cleo")]})
            assert texts(ledger.for_user("cleo").search("castle")) == ["castle of cleo"]

    assert gets[0] == gets[1]


def test_where_a_message_waits_costs_the_same_in_a_long_thread() -> None:
    """The checkpoint that took it up is the next one, however many follow; of forks it is the first."""
    totals: list[int] = []
    for count in (5, 200):
        with chatledger.open("memory:") as ledger:
            saver = Calls(LedgerSaver(ledger), is_async=False)
            first = saver.put("t", {"other": "x"})
            saver.writes("t", first, [("messages", [HumanMessage("castle on its way")])])
            second = saver.put("t", {"other": "y"}, parent=first)
            saver.put("t", {"other": "z"}, parent=first)
            parent = second
            for number in range(count):
                parent = saver.put("t", {"other": f"{number}"}, parent=parent)
            with counting() as counts:
                assert places(ledger.search("castle")) == [("castle on its way", second)]
            totals.append(counts.total())

    assert totals[0] == totals[1]


def test_messages_of_pruned_checkpoints_are_at_the_first_one_that_is_left() -> None:
    """A delta channel keeps pruned checkpoints for what they wrote: of all their messages the way down is gone once."""
    with chatledger.open("memory:") as ledger:
        threads, saver = Threads(ledger), Calls(LedgerSaver(ledger), is_async=False)
        ids: list[str] = []
        for number in range(30):
            parent = ids[-1] if ids else None
            ids.append(saver.put("t", {"messages": [HumanMessage(f"castle {number}", id=str(number))]}, parent=parent))
        bare = [Skeleton("", checkpoint_id, ("messages",)) for checkpoint_id in ids[:-1]]
        threads.remove("t", lambda _thread: Removal([], bare), reason="pruned")
        with counting() as counts:
            hits = ledger.search("castle", limit=30)

        assert {version for _, version in places(hits)} == {ids[-1]}
        assert len(hits) == 30
        assert counts["move"] < 30 * 12


def test_states_and_items(ledger: chatledger.Ledger) -> None:
    """Lists that grow, each element once; an item that was deleted is not found, nor one that has expired."""
    states, items = StateStore(ledger), ItemStore(ledger.for_user("ada"))
    said = [{"role": "user", "content": f"castle number {number}" + " word" * 200} for number in range(30)]
    for count in range(1, 31):
        states.put("chat:ada:c", {"messages": said[:count], "count": count})
    changed = [said[0], {"role": "assistant", "content": "another castle"}, *said[2:]]
    states.put("chat:ada:c", {"messages": changed, "count": 30})
    items.put(("notes",), "k", {"text": "castle", "seen": [{"role": "assistant", "content": "castle in a note"}]})
    hits = ledger.search("castle", limit=None, where="agents")

    by_version = {hit.place.version: hit for hit in hits if hit.place and hit.place.kind == "state"}
    assert sorted(by_version, key=lambda version: int(version or 0)) == [str(number) for number in range(1, 32)]
    assert by_version["31"].message.text == "another castle"
    assert by_version["3"].message.text.startswith("castle number 2")
    (item,) = (hit for hit in hits if hit.place and hit.place.kind == "item")
    assert item.place == HitPlace(
        kind="item", id="item:ada:notes:k", namespace="", version="1", field="value", owner="ada"
    )
    sound(ledger)
    items.delete(("notes",), "k")
    states.delete("chat:ada:c")
    assert ledger.search("castle") == []
    sound(ledger)


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
    history = {state.config["configurable"]["checkpoint_id"]: state for state in graph.get_state_history(CONFIG)}

    expected = sorted(message.text for message in graph.get_state(CONFIG).values["messages"])
    hits = ledger.search("question OR answer")
    assert texts(hits) == expected
    for text, version in places(hits):
        assert text in [message.text for message in history[version or ""].values["messages"]]
    saver.prune(["t"])
    newest = graph.get_state(CONFIG).config["configurable"]["checkpoint_id"]
    hits = ledger.search("question OR answer")
    assert texts(hits) == expected
    assert {version for _, version in places(hits)} == {newest}
    sound(ledger)


def test_what_was_removed_is_not_found(saver: Calls) -> None:
    """Neither what was pruned, though a list that stays grew out of it, nor what was deleted."""
    ledger = saver.saver.ledger
    messages = [HumanMessage(f"castle number {number} " * 20, id=str(number)) for number in range(6)]
    first = saver.put("t", {"messages": messages})
    last = saver.put("t", {"messages": [*messages[:2], HumanMessage("castle of the end", id="e")]}, parent=first)
    saver.writes("t", first, [("messages", [AIMessage("castle on its way")])])
    assert len(ledger.search("castle", thread_id="t")) == 8
    saver("prune", ["t"])

    hits = ledger.search("castle")
    assert {hit.message.id for hit in hits} == {"0", "1", "e"}
    assert {version for _, version in places(hits)} == {last}
    sound(ledger)
    saver("delete_thread", "t")
    assert ledger.search("castle") == []
    ledger.wait_erased()
    sound(ledger)


def test_pruning_that_keeps_all_messages_numbers_nothing_anew(ledger: chatledger.Ledger) -> None:
    """Nor is any text taken apart again: the places change."""
    saver = Calls(LedgerSaver(ledger), is_async=False)
    messages = [HumanMessage(f"castle {number}", id=str(number)) for number in range(4)]
    parent = None
    for count in range(1, 5):
        parent = saver.put("t", {"messages": messages[:count]}, parent=parent)
    with Threads(ledger).reading("t") as thread:
        before = thread.record
    saver("prune", ["t"])
    with Threads(ledger).reading("t") as thread:
        after = thread.record

    assert before is not None
    assert after is not None
    assert (before.message_count, before.messages_no) == (after.message_count, after.messages_no) == (4, 1)
    assert {version for _, version in places(ledger.search("castle"))} == {parent}


def test_pending_writes_changes_and_other_forms(saver: Calls) -> None:
    ledger = saver.saver.ledger
    first = saver.put("t", {"messages": [{"role": "human", "content": "a castle", "id": "1"}, RemoveMessage(id="0")]})
    content = [{"type": "text", "text": "another castle"}, {"type": "image", "url": "castle"}]
    second = saver.put("t", {"messages": [{"role": "user", "content": content, "id": "1"}]}, parent=first)
    saver.writes("t", second, [("messages", HumanMessage("castle to come")), ("__interrupt__", HumanMessage("castle"))])
    expected = {("castle to come", second), ("another castle", second), ("a castle", first)}

    assert set(places(ledger.search("castle", thread_id="t"))) == expected
    assert {hit.message.name for hit in ledger.search("castle")} == {"user"}
    taken_up = [HumanMessage("castle to come", id="given")]
    third = saver.put("t", {"messages": taken_up}, parent=second)
    hits = ledger.search("castle to come")
    assert [(hit.message.id, hit.place and hit.place.version) for hit in hits] == [("given", third)]
    sound(ledger)


def test_writes_that_come_after_the_checkpoint_that_took_them_up_are_found_once(saver: Calls) -> None:
    """On a busy machine LangGraph puts them so; what else they say is found."""
    ledger = saver.saver.ledger
    first = saver.put("t", {"n": 1})
    second = saver.put("t", {"n": 1, "messages": [HumanMessage("a castle", id="given")]}, parent=first)
    saver.writes("t", first, [("messages", HumanMessage("a castle")), ("messages", HumanMessage("another castle"))])

    for _ in range(2):
        assert sorted(places(ledger.search("castle"))) == [("a castle", second), ("another castle", second)]
        sound(ledger)
        ledger.rebuild()


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

        hits = saver.saver.ledger.search(query, thread_id="t", limit=None)
        assert sorted(expected) == sorted((hit.message.id, hit.place.version or "") for hit in hits if hit.place)


def test_what_a_serializer_hides_is_not_found(ledger: chatledger.Ledger) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")
    Calls(LedgerSaver(ledger, serde=serde), is_async=False).put("t", {"messages": [HumanMessage("a castle")]})

    assert ledger.search("castle") == []


def test_a_copy_has_its_own(ledger: chatledger.Ledger) -> None:
    """Also after its source was deleted and erased, and the index made anew."""
    saver = Calls(LedgerSaver(ledger), is_async=False)
    first = saver.put("t", {"messages": [HumanMessage("castle one", id="1")]})
    saver.put("t", {"messages": [HumanMessage("castle one", id="1"), AIMessage("castle two", id="2")]}, parent=first)
    saver("copy_thread", "t", "copy")
    copied = places(ledger.search("castle", thread_id="copy"))
    assert sorted(copied) == sorted(places(ledger.search("castle", thread_id="t")))
    saver("delete_thread", "t")
    ledger.wait_erased()
    assert sorted(places(ledger.search("castle"))) == sorted(copied)
    sound(ledger)
    ledger.rebuild()
    assert sorted(places(ledger.search("castle"))) == sorted(copied)
    sound(ledger)


def test_a_rebuilt_index_finds_the_same(ledger: chatledger.Ledger) -> None:
    """Rebuilt from the log, or the search index alone from what there is."""
    react(LedgerSaver(ledger)).invoke({"messages": [HumanMessage("Where is the castle?")]}, CONFIG)
    ledger.create_chat("c", "ada")
    ledger.append("c", [chatledger.user("a castle " + "long " * 3000)])
    states = StateStore(ledger)
    states.put("chat:ada:c", {"messages": [{"role": "user", "content": "castle " + "long " * 3000 + "end"}]})
    found = ledger.search("castle OR end", within=["text", "tools"])

    assert len(found) == 6
    for only in (None, "search"):
        ledger.rebuild(only=only)
        assert ledger.search("castle OR end", within=["text", "tools"]) == found
        sound(ledger)


def test_views_of_earlier_moments(ledger: chatledger.Ledger) -> None:
    ledger.create_chat("c", "ada")
    ledger.append("c", [chatledger.user("castle in a chat")])
    saver = Calls(LedgerSaver(ledger), is_async=False)
    first = saver.put("t", {"messages": [HumanMessage("castle one", id="1")]})
    then = ledger.position
    saver.put("t", {"messages": [HumanMessage("castle one", id="1"), AIMessage("castle two", id="2")]}, parent=first)
    ledger.append("c", [chatledger.user("another castle in a chat")])
    saver.put("later", {"messages": [HumanMessage("castle three", id="3")]})

    with ledger.as_of(then) as view:
        assert texts(view.search("castle")) == ["castle in a chat", "castle one"]
        assert texts(view.search("castle", where="agents")) == ["castle one"]
        assert texts(view.search("castle", thread_id="t")) == ["castle one"]
        assert texts(view.search("castle", where="chats")) == ["castle in a chat"]
        assert len(view.search("castle", limit=1, offset=1)) == 1
        assert view.search("castle", thread_id="later") == []
    with ledger.as_of(1) as view:
        assert view.search("castle") == []


def _cost_of_put(
    ledger: chatledger.Ledger, monkeypatch: pytest.MonkeyPatch, thread_id: str, values: Callable[[int], Any], count: int
) -> int:
    """Return how many messages are looked at by the last of so many puts."""
    from chatledger.domain.versioned import messages as held

    calls = 0
    key = held.HeldMessage.key

    def counted(message: held.HeldMessage, *, without_id: bool = False) -> bytes:
        nonlocal calls
        calls += 1
        return key(message, without_id=without_id)

    saver, parent = Calls(LedgerSaver(ledger), is_async=False), None
    for number in range(count):
        calls = 0
        monkeypatch.setattr(held.HeldMessage, "key", counted)
        parent = saver.put(thread_id, values(number), parent=parent)
        monkeypatch.undo()
    return calls


@pytest.mark.parametrize("kind", ["messages", "dicts", "plain"])
def test_a_put_costs_what_is_new_in_it(ledger: chatledger.Ledger, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    made: dict[str, Callable[[int], Any]] = {
        "messages": lambda number: HumanMessage(f"castle {number} " * 10, id=str(number)),
        "dicts": lambda number: {"role": "user", "content": f"castle {number} " * 10, "id": str(number)},
        "plain": lambda number: {"said": {"role": "user", "content": f"castle {number} " * 10, "id": str(number)}},
    }

    def values(number: int) -> Any:
        return {"messages": [made[kind](at) for at in range(number + 1)]}

    assert _cost_of_put(ledger, monkeypatch, "long", values, 150) <= 2
    assert len(ledger.search("castle", limit=None)) == 150


def test_a_thread_in_quarantine_or_expired_is_left_out(tmp_path: Path) -> None:
    with chatledger.open(tmp_path) as ledger:
        LedgerSaver(ledger, ttl_seconds=0.001).put(
            {"configurable": {"thread_id": "gone", "checkpoint_ns": ""}},
            _checkpoint(HumanMessage("castle")),
            {},
            {"messages": 1},
        )
        Calls(LedgerSaver(ledger), is_async=False).put("t", {"messages": [ToolMessage("castle", tool_call_id="c")]})
        assert [hit.place and hit.place.id for hit in ledger.search("castle", within=["text", "tools"])] == ["t"]
        ledger.sweep()
        assert len(ledger.search("castle", within=["text", "tools"])) == 1
        sound(ledger)


def _checkpoint(message: AnyMessage) -> Any:
    return {
        "v": 4,
        "id": "1ef4f797-8335-6428-8001-8a1503f9b875",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {"messages": [message]},
        "channel_versions": {"messages": 1},
        "versions_seen": {},
    }


def test_the_command_line_finds_messages_of_a_thread(tmp_path: Path) -> None:
    with chatledger.open(tmp_path) as ledger:
        calls = Calls(LedgerSaver(ledger).for_assistant("guide"), is_async=False)
        first = calls.put(
            "t", {"messages": [HumanMessage("Where is the castle?"), AIMessage("The castle? Above.", id="a")]}
        )
    shown = run("search", "castle", at=tmp_path).stdout

    assert f"[thread t, checkpoint {first}, assistant:guide]" in shown
    assert "Where is the castle?" in shown
    found = ask("search", "castle", "--thread", "t", "--role", "assistant", at=tmp_path)
    assert [("a", first, "assistant:guide")] == [
        (one["message"]["id"], one["place"]["version"], one["place"]["namespace"]) for one in found
    ]
    rows = run("search", "castle", "--thread", "t", "--offset", "1", "--csv", at=tmp_path).stdout.splitlines()
    assert (2, "kind,in,version") == (len(rows), rows[0].partition("snippet,")[2])
    assert rows[1].endswith(f"thread,t,{first}")
    assert "No message matches" in run("search", "castle", "--where", "chats", at=tmp_path).stdout
    assert "'u'" in fails(1, "search", "castle", "--thread", "u", at=tmp_path)
