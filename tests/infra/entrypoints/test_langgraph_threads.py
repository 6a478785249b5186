"""Threads on a ledger as LangGraph's saver has them: states, histories, owners, migration, deletion, bytes."""

# White-box: what savers keep is looked at, and some of their methods are replaced.
# pyright: reportPrivateUsage=false, reportIncompatibleMethodOverride=false, reportUnknownLambdaType=false

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.types import Command
from tests.support.langgraph_programs import Point, asking, fan_out, nested, react

import chatledger
from chatledger.domain.errors import AlreadyExistsError, InvalidValueError, NamespaceError, RuntimeMismatchError
from chatledger.infra.testing.savers import Calls, config, thread
from chatledger.langgraph import LedgerSaver

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def calls(saver: LedgerSaver) -> Calls:
    return Calls(saver, is_async=False)


def _do_nothing(*_arguments: Any, **_options: Any) -> None:
    """In place of what a process did not come to."""


class TestStates:
    def test_a_state_is_what_the_graph_says_it_is(self, ledger: chatledger.Ledger) -> None:
        """Of several graphs at every step, told without the graph."""
        graphs: tuple[tuple[Any, dict[str, Any]], ...] = (
            (asking, {"log": []}),
            (fan_out, {"log": []}),
            (react, {"messages": [HumanMessage("q")]}),
            (nested, {"log": []}),
        )
        for make, given in graphs:
            saver = LedgerSaver(ledger).for_assistant(make.__name__)
            graph = make(saver)
            graph.invoke(given, CONFIG)
            if make in (asking, nested):
                live, told = graph.get_state(CONFIG), saver.get_thread_state("t")
                assert told is not None
                assert told.next == list(live.next)
                assert told.interrupts == list(live.interrupts)
                assert [task.id for task in told.tasks] == [task.id for task in live.tasks]
                graph.invoke(Command(resume="r"), CONFIG)
            # An empty list is what the graph says of a channel that has no value yet.
            expected = [(one.values, list(one.next)) for one in graph.get_state_history(CONFIG)]
            found = saver.get_thread_history("t", f"assistant:{make.__name__}", limit=None)
            assert [
                ({**values, **one.values}, one.next) for one, (values, _) in zip(found, expected, strict=True)
            ] == expected
            assert all(
                values.get(name) == []
                for one, (values, _) in zip(found, expected, strict=True)
                for name in values.keys() - one.values.keys()
            )

    def test_a_history_covers_all_namespaces_or_one(self, ledger: chatledger.Ledger) -> None:
        """NS acceptance 7."""
        saver = LedgerSaver(ledger)
        made = calls(saver)
        ids = [made.put("t", {"n": n}, ns=ns) for n, ns in enumerate(["", "assistant:a", "assistant:b", "assistant:a"])]

        found = saver.get_thread_history("t")
        assert [one.checkpoint["checkpoint_id"] for one in found] == ids[::-1]
        assert [one.checkpoint["checkpoint_ns"] for one in found] == ["assistant:a", "assistant:b", "assistant:a", ""]
        only = saver.get_thread_history("t", "assistant:a", before=ids[3])
        assert [one.checkpoint["checkpoint_id"] for one in only] == [ids[1]]
        assert len(saver.get_thread_history("t", limit=2)) == 2
        assert saver.get_thread_history("t", limit=0) == saver.get_thread_history("unknown") == []

    def test_a_state_needs_a_namespace_where_there_are_several(self, ledger: chatledger.Ledger) -> None:
        saver = LedgerSaver(ledger)
        made = calls(saver)
        first = made.put("t", {"n": 1}, ns="assistant:a")
        made.put("t", {"n": 1}, ns="assistant:a|sub")
        state = saver.get_thread_state("t")
        assert state is not None
        assert (state.values, state.checkpoint["checkpoint_ns"], state.parent_checkpoint) == (
            {"n": 1},
            "assistant:a",
            None,
        )
        assert state.created_at == 1_767_225_600_000
        second = made.put("t", {"n": 2}, ns="assistant:b")

        with pytest.raises(InvalidValueError, match="assistant:b"):
            saver.get_thread_state("t")
        of_b = saver.for_assistant("b").get_thread_state("t")
        assert of_b is not None
        assert of_b.checkpoint["checkpoint_id"] == second
        assert saver.for_assistant("b").get_thread_state("t", "assistant:a") is None
        assert saver.get_thread_state("t", "assistant:a", first) is not None
        assert saver.get_thread_state("unknown") is None
        assert saver.get_thread_state("t", "assistant:c") is None

    def test_another_runtime_is_seen_and_not_resumed(self, ledger: chatledger.Ledger) -> None:
        """NS acceptance 8."""
        calls(LedgerSaver(ledger, runtime="ts")).put("t", {"n": 1}, metadata={"k": "v"})
        saver = LedgerSaver(ledger)

        with pytest.raises(RuntimeMismatchError, match="'ts'"):
            saver.get_tuple(config("t"))
        (listed,) = saver.list(thread("t"))
        assert listed.metadata["k"] == "v"  # type: ignore[typeddict-item]  # a key of the caller's
        state = saver.get_thread_state("t")
        assert state is not None
        assert (state.values, state.metadata["k"]) == ({}, "v")


class TestNamespaces:
    def test_assistants_have_names(self, ledger: chatledger.Ledger) -> None:
        """NS acceptance 4."""
        saver = LedgerSaver(ledger)
        team, part = calls(saver.for_assistant("team")), calls(saver.for_assistant("team:a"))
        team.put("t", {"n": 1})
        part.put("t", {"n": 2})
        assert part.at("t").checkpoint["channel_values"] == {"n": 2}
        assert len(team.ids(thread("t"))) == 1
        assert saver.threads()[0].namespaces == ["assistant:team", "assistant:team:a"]
        for wrong in ("a|b", "", None):
            with pytest.raises(NamespaceError):
                saver.for_assistant(wrong)  # type: ignore[arg-type]  # what is tested

    def test_a_bound_saver_removes_and_copies_its_own(self, ledger: chatledger.Ledger) -> None:
        saver = LedgerSaver(ledger)
        a, b = calls(saver.for_assistant("a")), calls(saver.for_assistant("b"))
        for one in (a, b):
            one.put("t", {"n": 1})
            one.put("t", {"n": 2}, ns="sub")
        a("copy_thread", "t", "u")
        a("delete_thread", "t")

        assert a.ids(thread("t")) == []
        assert len(b.ids(None)) == 2
        assert saver.for_assistant("a").threads()[0].namespaces == ["assistant:a", "assistant:a|sub"]
        saver.delete_namespace("u", "assistant:a")
        assert [one.thread_id for one in saver.for_assistant("a").threads()] == []
        with pytest.raises(InvalidValueError, match="assistant:b"):
            saver.for_assistant("a").delete_namespace("t", "assistant:b")

    def test_shared_state_is_migrated_once(self, ledger: chatledger.Ledger) -> None:
        """NS acceptance 12: two agents took turns under `""`; each gets its own line."""
        saver = LedgerSaver(ledger)
        old = calls(saver)
        ids: list[str] = []
        for n, name in enumerate(["a", "b", "a", None, "b"]):
            metadata = {} if name is None else {"assistant_id": name}
            ids.append(old.put("t", {"n": n}, parent=ids[-1] if ids else None, metadata=metadata))
            old.writes("t", ids[-1], [("n", n), ("__interrupt__", "i")])
        inner = old.put("t", {"s": 1}, ns="node:x", metadata={"parents": {"": ids[2]}})
        before = list(saver.list(config("t")))
        for _ in range(2):
            migration = saver.migrate_namespace("t")
            assert migration.migrated == {"a": 3, "b": 2}
            assert migration.left == [("", ids[3])]

        a, b = calls(saver.for_assistant("a")), calls(saver.for_assistant("b"))
        assert a.ids(config("t")) == [ids[2], ids[0]]
        assert b.ids(config("t")) == [ids[4], ids[1]]
        assert a.ids(config("t", ns="node:x")) == [inner]
        assert a.at("t").parent_config == config("t", ids[0])
        assert b.at("t").parent_config == config("t", ids[1])
        assert b.at("t").checkpoint["channel_values"] == {"n": 4}
        assert b.at("t").pending_writes == [("task", "__interrupt__", "i"), ("task", "n", 4)]
        assert list(saver.list(config("t"))) == before


class TestOwners:
    def test_a_thread_of_another_owner_is_not_there(self, ledger: chatledger.Ledger) -> None:
        """NS-25: not read, not listed, not changed, and its id cannot be used."""
        ada, bob = (LedgerSaver(ledger.for_user(name)) for name in ("ada", "bob"))
        calls(ada).put("t", {"secret": "x" * 3_000_000}, metadata={"run_id": "r"})
        ours = calls(bob)
        assert (ours.get("t"), ours.ids(None), ours.ids(thread("t")), bob.threads()) == (None, [], [], [])
        assert (bob.get_thread_state("t"), bob.get_thread_history("t")) == (None, [])
        ours("delete_thread", "t")
        ours("delete_for_runs", ["r"])
        ours("prune", ["t"])
        ours("copy_thread", "t", "u")
        bob.delete_namespace("t", "")
        assert bob.migrate_namespace("t").migrated == {}
        with pytest.raises(AlreadyExistsError, match="taken"):
            ours.put("t", {})
        with pytest.raises(AlreadyExistsError, match="taken"):
            ours.writes("t", "1", [("a", 1)])

        assert len(calls(ada).ids(None)) == 1
        assert [one.owner for one in LedgerSaver(ledger).threads()] == ["ada"]
        assert [recorded.chat_id for recorded in ledger.for_user("bob").history()] == []
        assert {recorded.chat_id for recorded in ledger.for_user("ada").history()} == {"chatledger:v:t:t"}
        calls(ada)("copy_thread", "t", "u")
        calls(ada)("delete_thread", "t")
        assert [one.owner for one in ada.threads()] == ["ada"]

    def test_a_thread_belongs_to_the_owner_of_its_chat(self, ledger: chatledger.Ledger) -> None:
        ledger.create_chat("c", "ada")
        with pytest.raises(AlreadyExistsError):
            calls(LedgerSaver(ledger.for_user("bob"))).put("c", {})
        calls(LedgerSaver(ledger)).put("c", {"n": 1})

        assert len(calls(LedgerSaver(ledger.for_user("ada"))).ids(None)) == 1
        assert calls(LedgerSaver(ledger.for_user("bob"))).ids(None) == []


class TestDeletion:
    def test_with_a_chat_goes_the_thread_of_its_id(self, ledger: chatledger.Ledger) -> None:
        """PS-13, also for chats that end by themselves; copies and other threads stay."""
        saver = calls(LedgerSaver(ledger))
        for chat_id in ("c", "d", "e"):
            ledger.create_chat(chat_id, "ada", expires_at=1 if chat_id == "d" else None)
            saver.put(chat_id, {"text": f"secret of {chat_id}"})
        saver("copy_thread", "c", "copy")
        assert ledger.delete_chat("c", user_id="bob") is False
        assert saver.get("c") is not None
        assert ledger.delete_chat("c") is True
        assert ledger.sweep().chats == ["d"]

        for _ in range(2):
            assert (saver.get("c"), saver.get("d")) == (None, None)
            assert saver.at("copy").checkpoint["channel_values"] == {"text": "secret of c"}
            assert saver.at("e").checkpoint["channel_values"] == {"text": "secret of e"}
            ledger.rebuild()
        saver("delete_thread", "copy")
        assert b"secret of c" not in repr([recorded.to_dict() for recorded in ledger.history()]).encode()
        ledger.verify()

    def test_an_interrupted_deletion_is_finished(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The process ends between the tombstone of the chat and that of its thread."""
        with chatledger.open(tmp_path) as ledger:
            ledger.create_chat("c", "ada")
            calls(LedgerSaver(ledger)).put("c", {"n": 1})
            monkeypatch.setattr("chatledger.infra.store.store.Store.finish_erasures", _do_nothing)
            ledger.delete_chat("c")
            monkeypatch.undo()
        with chatledger.open(tmp_path) as ledger:
            assert LedgerSaver(ledger).threads() == []

    def test_a_thread_that_came_after_a_deletion_stays(self, ledger: chatledger.Ledger) -> None:
        ledger.create_chat("c", "ada")
        ledger.delete_chat("c")
        saver = calls(LedgerSaver(ledger))
        saver.put("c", {"n": 1})
        ledger.create_chat("d", "ada")
        ledger.delete_chat("d")

        assert saver.at("c").checkpoint["channel_values"] == {"n": 1}

    def test_ids_of_chats_do_not_look_like_threads(self, ledger: chatledger.Ledger) -> None:
        for create in (ledger.create_chat, ledger.upsert_chat):
            with pytest.raises(InvalidValueError, match="chatledger:v:"):
                create("chatledger:v:t:t", "ada")
        assert ledger.last_position() == 0


class TestSerializers:
    def test_loading_is_strict_unless_classes_are_allowed(self, ledger: chatledger.Ledger) -> None:
        """NS-20: what the data name is not called."""
        calls(LedgerSaver(ledger)).put("t", {"point": Point(1), "safe": HumanMessage("hi", id="m")})
        strict = calls(LedgerSaver(ledger)).at("t").checkpoint["channel_values"]
        allowed = calls(LedgerSaver(ledger, allow=[Point])).at("t").checkpoint["channel_values"]

        assert strict["safe"] == allowed["safe"] == HumanMessage("hi", id="m")
        assert not isinstance(strict["point"], Point)
        assert allowed["point"] == Point(1)

    def test_a_clone_with_another_allowlist_shares_the_threads_only(self, ledger: chatledger.Ledger) -> None:
        saver = LedgerSaver(ledger).for_assistant("a")
        clone = saver.with_allowlist([("tests.support.langgraph_programs", "Point")])
        assert clone.namespace == "assistant:a"
        assert clone._values is not saver._values
        calls(clone).put("t", {"n": 1})
        assert calls(saver).at("t").checkpoint["channel_values"] == {"n": 1}

    def test_another_serializer_hides_keys_too(self, ledger: chatledger.Ledger) -> None:
        class Reversing:
            """Stands for one that encrypts."""

            def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
                return "reversed", json.dumps(obj).encode()[::-1]

            def loads_typed(self, data: tuple[str, bytes]) -> Any:
                assert data[0] == "reversed"
                return json.loads(data[1][::-1])

        state = {"files": {"secret-key": "v" * 1000}, "list": [{"secret-key": "w" * 1000}] * 3}
        calls(LedgerSaver(ledger, serde=Reversing())).put("t", state, metadata={"secret-key": 1})
        assert calls(LedgerSaver(ledger, serde=Reversing())).at("t").checkpoint["channel_values"] == state
        assert "secret-key" not in repr([recorded.event.body for recorded in ledger.history()])


@pytest.mark.soak
def test_storage_grows_with_what_is_new(tmp_path: Path) -> None:
    """NS acceptance 6: 500 messages of 512 bytes take at most 20 times their size on the disk, and every step is readable."""
    with chatledger.open(tmp_path / "ours") as ledger:
        saver = calls(LedgerSaver(ledger))
        messages: list[HumanMessage] = []
        parent = None
        for number in range(500):
            messages = [*messages, HumanMessage(f"{number:04} " + "x" * 507, id=f"m{number}")]
            parent = saver.put("t", {"messages": messages}, parent=parent, versions={"messages": number + 1})
        lengths = [len(one.checkpoint["channel_values"]["messages"]) for one in saver.saver.list(config("t"))]
        assert lengths == list(range(500, 0, -1))
    files = [file for file in (tmp_path / "ours").rglob("*") if file.is_file()]
    assert sum(file.stat().st_blocks for file in files) * 512 <= 20 * 500 * 512
