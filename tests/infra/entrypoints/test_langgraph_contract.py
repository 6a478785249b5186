"""
What a saver of LangGraph has to do beyond its published suite; through the sync and the async methods, bound and unbound.

Where the peers agree, the same tests run on them: they show that it is LangGraph's contract and not only ours.
"""

import threading
from collections.abc import Generator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]  # its only name
from langgraph.types import Send
from tests.support.langgraph_world import OURS, PEERS, Calls, config, open_calls, thread

from chatledger.domain.errors import AlreadyExistsError, InvalidValueError


@pytest.fixture(params=OURS)
def saver(request: pytest.FixtureRequest) -> Generator[Calls]:
    """One of ours."""
    with open_calls(request.param) as calls:
        yield calls


@pytest.fixture(params=[*OURS, *PEERS])
def anyones(request: pytest.FixtureRequest) -> Generator[Calls]:
    """One of ours, or a peer."""
    with open_calls(request.param) as calls:
        yield calls


class TestPutAndGet:
    def test_a_parent_is_what_the_config_names(self, anyones: Calls) -> None:
        first = anyones.put("t", {"a": 1})
        second = anyones.put("t", {"a": 2}, parent=first)

        assert anyones.at("t").parent_config == config("t", first)
        assert anyones.at("t", first).parent_config is None
        assert anyones.at("t").config == config("t", second)

    def test_the_latest_is_the_greatest_id_and_not_the_last_put(self, anyones: Calls) -> None:
        anyones.put("t", {"a": "late"}, id="2")
        anyones.put("t", {"a": "early"}, id="1")

        assert anyones.at("t").checkpoint["channel_values"] == {"a": "late"}

    def test_forks_with_equal_version_numbers_have_their_own_values(self, saver: Calls) -> None:
        root = saver.put("t", {"a": "root"}, versions={"a": 1})
        one = saver.put("t", {"a": "one"}, parent=root, versions={"a": 2})
        other = saver.put("t", {"a": "other"}, parent=root, versions={"a": 2})

        assert saver.at("t", one).checkpoint["channel_values"] == {"a": "one"}
        assert saver.at("t", other).checkpoint["channel_values"] == {"a": "other"}

    def test_a_channel_that_is_gone_does_not_come_back(self, saver: Calls) -> None:
        first = saver.put("t", {"a": 1, "b": 2}, versions={"a": 1, "b": 1})
        second = saver.put("t", {"a": 1}, parent=first, versions={"a": 1}, changed=[])
        saver.put("t", {"a": 3}, parent=second, versions={"a": 2}, changed=["a"])

        assert saver.at("t").checkpoint["channel_values"] == {"a": 3}

    def test_a_channel_that_was_emptied_is_empty(self, saver: Calls) -> None:
        first = saver.put("t", {"a": 1, "b": 2}, versions={"a": 1, "b": 1})
        saver.put("t", {"b": 2}, parent=first, versions={"a": 2, "b": 1}, changed=["a"])

        assert saver.at("t").checkpoint["channel_values"] == {"b": 2}

    def test_a_config_without_a_namespace_means_the_root(self, saver: Calls) -> None:
        checkpoint_id = saver.put("t", {"a": 1}, ns=None)  # type: ignore[arg-type]  # what is tested

        assert saver.at("t").checkpoint["id"] == checkpoint_id

    def test_a_thread_id_that_is_a_number_is_its_text(self, saver: Calls) -> None:
        saver.put(7, {"a": 1})

        assert saver.at("7").checkpoint["channel_values"] == {"a": 1}

    def test_a_config_without_a_thread_is_refused(self, saver: Calls) -> None:
        for call in ("get_tuple", "put_writes"):
            arguments: list[Any] = [] if call == "get_tuple" else [[("a", 1)], "task"]
            with pytest.raises(InvalidValueError, match="thread_id"):
                saver(call, {"configurable": {}}, *arguments)

    def test_metadata_of_any_depth_come_back(self, saver: Calls) -> None:
        nested = {"deep": {"list": [1, None, {"x": "a\0b"}], "flag": True}}
        saver.put("t", {}, metadata=nested)

        assert saver.at("t").metadata["deep"] == nested["deep"]  # type: ignore[typeddict-item]  # a key of the caller's

    def test_a_copy_of_a_read_config_names_three_keys(self, saver: Calls) -> None:
        checkpoint_id = saver.put("t", {})
        asked = config("t", checkpoint_id)
        asked["configurable"]["extra"] = "mine"

        assert saver("get_tuple", asked).config == config("t", checkpoint_id)


class TestWrites:
    def test_pending_writes_come_by_path_task_and_index(self, saver: Calls) -> None:
        checkpoint_id = saver.put("t", {})
        saver.writes("t", checkpoint_id, [("a", 1), ("__interrupt__", "i"), ("b", 2)], "z", path="~1")
        saver.writes("t", checkpoint_id, [("a", 3)], "y", path="~2")
        saver.writes("t", checkpoint_id, [("a", 4)], "x", path="~1")

        assert saver.at("t").pending_writes == [
            ("x", "a", 4),
            ("z", "__interrupt__", "i"),
            ("z", "a", 1),
            ("z", "b", 2),
            ("y", "a", 3),
        ]

    def test_a_retry_replaces_special_writes_only(self, saver: Calls) -> None:
        """Each write is judged by itself, whatever comes with it."""
        checkpoint_id = saver.put("t", {})
        saver.writes("t", checkpoint_id, [("x", 1), ("__resume__", "r1")])
        saver.writes("t", checkpoint_id, [("x", 2), ("__resume__", "r2")], path="another")

        assert saver.at("t").pending_writes == [("task", "x", 1), ("task", "__resume__", "r2")]

    def test_writes_may_come_before_their_checkpoint(self, anyones: Calls) -> None:
        first = anyones.put("t", {}, id="1")
        anyones.writes("t", "2", [("a", "early")])

        assert anyones.at("t").checkpoint["id"] == first
        assert anyones.get("t", "2") is None
        anyones.put("t", {}, id="2", parent=first)
        assert anyones.at("t").pending_writes == [("task", "a", "early")]

    def test_no_writes_are_no_event(self, saver: Calls) -> None:
        checkpoint_id = saver.put("t", {})
        before = saver.saver.ledger.last_position()
        saver.writes("t", checkpoint_id, [])

        assert saver.saver.ledger.last_position() == before

    def test_a_packet_to_a_node_comes_back(self, anyones: Calls) -> None:
        state = {"prompt": "p" * 1000, "n": 1}
        checkpoint_id = anyones.put("t", {"__pregel_tasks": [Send("work", state)]})
        anyones.writes("t", checkpoint_id, [("__pregel_tasks", Send("work", {**state, "n": 2}))])

        found = anyones.at("t")
        assert found.checkpoint["channel_values"] == {"__pregel_tasks": [Send("work", state)]}
        assert found.pending_writes == [("task", "__pregel_tasks", Send("work", {**state, "n": 2}))]


class TestList:
    def test_newest_first_of_a_thread_of_a_namespace_and_of_all(self, anyones: Calls) -> None:
        one = anyones.put("t", {})
        sub = anyones.put("t", {}, ns="sub")
        two = anyones.put("t", {})

        assert anyones.ids(config("t")) == [two, one]
        assert anyones.ids(config("t", ns="sub")) == [sub]
        assert set(anyones.ids(thread("t"))) == {one, sub, two}
        assert anyones.ids(thread("unknown")) == []

    def test_all_threads_are_in_one_order(self, saver: Calls) -> None:
        ids = [saver.put(thread_id, {}, ns=ns) for thread_id, ns in (("b", ""), ("a", "x"), ("b", "x"), ("a", ""))]

        assert saver.ids(None) == list(reversed(ids))
        assert saver.ids(thread("a")) == [ids[3], ids[1]]

    def test_a_listed_id_is_that_one_only(self, anyones: Calls) -> None:
        ids = [anyones.put("t", {}) for _ in range(3)]

        assert anyones.ids(config("t", ids[1])) == [ids[1]]

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_limit_below_one_gives_nothing(self, saver: Calls, limit: int) -> None:
        saver.put("t", {})

        assert saver.ids(config("t"), limit=limit) == []

    def test_before_is_a_comparison_with_any_id(self, anyones: Calls) -> None:
        """Replays of subgraphs ask with an id of the parent graph."""
        for number in ("1", "3", "5"):
            anyones.put("t", {}, id=number)

        assert anyones.ids(config("t"), before=config("t", "4"), limit=1) == ["3"]
        assert anyones.ids(config("t"), before=config("t", "5")) == ["3", "1"]

    def test_before_without_an_id_is_ignored(self, saver: Calls) -> None:
        saver.put("t", {}, id="1")

        assert saver.ids(config("t"), before=thread("t")) == ["1"]

    @pytest.mark.parametrize(
        ("wanted", "count"),
        [
            ({"k": "v"}, 1),
            ({"k": None}, 2),
            ({"a.b": 1}, 1),
            ({"tag": {"x": 1}}, 1),
            ({"tag": {}}, 0),
            ({"flag": 1}, 1),
            ({"with space": 1}, 1),
            ({"k": "v", "flag": True}, 0),
        ],
        ids=lambda value: str(value).replace(" ", "_"),
    )
    def test_a_filter_is_equality_of_every_key(self, saver: Calls, wanted: dict[str, Any], count: int) -> None:
        saver.put("t", {}, metadata={"k": "v", "a": {"b": 1}, "tag": {"x": 1, "y": 2}})
        saver.put("t", {}, metadata={"k": None, "a.b": 1, "tag": {"x": 1}})
        saver.put("t", {}, metadata={"flag": True, "with space": 1})

        assert len(saver.ids(config("t"), filter=wanted)) == count
        assert len(saver.ids(config("t"), filter=wanted, limit=1)) == min(1, count)

    def test_a_consumer_may_write_between_two_items(self, saver: Calls) -> None:
        for number in range(9):
            saver.put("t", {}, id=f"{number}")
        seen: list[str] = []
        for found in saver.saver.list(config("t")):
            seen.append(found.checkpoint["id"])
            saver.saver.put_writes(found.config, [("a", 1)], "task")

        assert seen == [f"{number}" for number in range(8, -1, -1)]


class TestMutation:
    def test_what_a_reader_changes_is_his_own(self, anyones: Calls) -> None:
        """Everything that was returned is changed; the next one who reads sees nothing of it."""
        message = AIMessage("hi", id="m", tool_calls=[{"name": "f", "args": {"x": [1]}, "id": "c"}])
        state = {"messages": [message, HumanMessage("yo" * 400, id="n")], "files": {"a": ["b" * 600]}}
        checkpoint_id = anyones.put("t", state, metadata={"nested": {"a": [1]}})
        anyones.writes("t", checkpoint_id, [("messages", [AIMessage("w", id="w")])])
        expected = str(anyones.at("t"))
        for _ in range(2):
            for found in (anyones.at("t"), *anyones.list(config("t"))):
                values = found.checkpoint["channel_values"]
                values["messages"][0].tool_calls[0]["args"]["x"].append(2)
                values["messages"][0].content = "changed"
                values["messages"][1].additional_kwargs["k"] = 1
                values["messages"][1].response_metadata["k"] = 1
                values["messages"].append("more")
                values["files"]["a"][0] = "gone"
                values["new"] = 1
                found.metadata["nested"]["a"].append(2)  # type: ignore[typeddict-item]  # a key of the caller's
                found.checkpoint["channel_versions"]["x"] = 9
                assert found.pending_writes is not None
                found.pending_writes[0][2][0].content = "changed"
                found.pending_writes.clear()

        assert str(anyones.at("t")) == expected

    def test_what_the_writer_changes_afterwards_is_not_stored(self, anyones: Calls) -> None:
        messages = [HumanMessage("one " * 200, id="1"), *(HumanMessage(f"{n}", id=f"x{n}") for n in range(70))]
        first = anyones.put("t", {"messages": messages})
        messages[0].content = "two " * 200
        messages[40].additional_kwargs["late"] = True
        second = anyones.put("t", {"messages": messages}, parent=first)

        assert anyones.at("t", first).checkpoint["channel_values"]["messages"][0].content == "one " * 200
        assert anyones.at("t", first).checkpoint["channel_values"]["messages"][40].additional_kwargs == {}
        assert anyones.at("t", second).checkpoint["channel_values"]["messages"] == messages

    def test_equal_is_not_the_same(self, saver: Calls) -> None:
        """Values that compare equal, but are written differently, are told apart."""
        saver.put("t", {"v": [1, True, 1.0, 0.0, -0.0, "1", b"1", (1,), [1]] * 50, "w": {"a": True, "b": "x" * 600}})
        saver.put("u", {"v": [True, 1, 1, -0.0, 0.0, b"1", "1", [1], [True]] * 50, "w": {"a": 1, "b": "x" * 600}})

        assert str(saver.at("t").checkpoint["channel_values"]["v"][:5]) == "[1, True, 1.0, 0.0, -0.0]"
        assert str(saver.at("u").checkpoint["channel_values"]["v"][:5]) == "[True, 1, 1, -0.0, 0.0]"
        assert str(saver.at("t").checkpoint["channel_values"]["w"]["a"]) == "True"
        assert str(saver.at("u").checkpoint["channel_values"]["w"]["a"]) == "1"


class TestRemoval:
    def test_a_late_put_after_a_deletion_begins_the_thread_anew(self, anyones: Calls) -> None:
        first = anyones.put("t", {"a": 1})
        anyones.writes("t", "never came", [("a", 1)])
        anyones("delete_thread", "t")
        anyones("delete_thread", "unknown")
        assert anyones.get("t") is None
        late = anyones.put("t", {"a": 2}, parent=first)

        assert anyones.ids(thread("t")) == [late]
        assert anyones.at("t").checkpoint["channel_values"] == {"a": 2}

    def test_a_copy_is_complete_and_goes_its_own_way(self, saver: Calls) -> None:
        first = saver.put("s", {"a": ["x" * 600]})
        second = saver.put("s", {"a": ["x" * 600, "y"]}, parent=first)
        saver.put("s", {"b": 1}, ns="sub")
        saver.writes("s", second, [("a", "w")])
        saver("copy_thread", "s", "t")
        saver("copy_thread", "unknown", "v")
        with pytest.raises(AlreadyExistsError, match="'t'"):
            saver("copy_thread", "s", "t")
        third = saver.put("t", {"a": ["z"]}, parent=second)
        saver("delete_thread", "s")

        assert saver.ids(thread("s")) == []
        assert saver.ids(config("t")) == [third, second, first]
        assert saver.at("t", second).pending_writes == [("task", "a", "w")]
        assert saver.at("t", second).parent_config == config("t", first)
        assert saver.at("t", first).checkpoint["channel_values"] == {"a": ["x" * 600]}
        assert saver.at("t", ns="sub").checkpoint["channel_values"] == {"b": 1}

    def test_prune_keeps_what_an_interrupt_needs(self, saver: Calls) -> None:
        """The head's writes and the namespaces of calls in flight stay; those of calls that are over go."""
        old = saver.put("t", {"a": 1})
        saver.put("t", {"s": 1}, ns="node:over", metadata={"parents": {"": old}})
        saver.put("t", {"s": 1}, ns="stateful", metadata={"parents": {"": old}})
        head = saver.put("t", {"a": 2}, parent=old)
        inner = saver.put("t", {"s": 2}, ns="node:open", metadata={"parents": {"": head}})
        saver.writes("t", head, [("__interrupt__", "i")])
        saver.writes("t", head, [("__resume__", "r")])
        saver.writes("t", inner, [("__interrupt__", "i")], ns="node:open")
        saver("prune", ["t", "unknown"])

        assert saver.ids(config("t")) == [head]
        assert saver.at("t").parent_config is None
        assert {write[1] for write in saver.at("t").pending_writes or []} == {"__interrupt__", "__resume__"}
        assert saver.ids(config("t", ns="node:open")) == [inner]
        assert saver.at("t", ns="node:open").pending_writes == [("task", "__interrupt__", "i")]
        assert saver.ids(config("t", ns="node:over")) == []
        assert len(saver.ids(config("t", ns="stateful"))) == 1

    def test_prune_checks_what_it_is_given(self, saver: Calls) -> None:
        with pytest.raises(TypeError):
            saver("prune", "t")
        with pytest.raises(ValueError, match="keep_all"):
            saver("prune", ["t"], strategy="keep_all")

    def test_runs_are_removed_and_others_stay(self, saver: Calls) -> None:
        one = saver.put("t", {"a": 1}, metadata={"run_id": "r1"})
        two = saver.put("t", {"a": 2}, parent=one, metadata={"run_id": "r2"})
        saver.put("u", {"a": 1}, ns="sub", metadata={"run_id": "r1"})
        saver("delete_for_runs", [])
        saver("delete_for_runs", ["r1", "unknown"])

        assert saver.ids(None) == [two]
        assert saver.at("t").parent_config is None


def grow(saver: Calls, thread_id: str = "t", count: int = 4, *, seed: Any = None) -> list[str]:
    """A line of checkpoints with one write of the delta channel `log` each; the first one may have a value."""
    ids: list[str] = []
    for number in range(count):
        values = {"log": seed} if number == 0 and seed is not None else {}
        ids.append(
            saver.put(
                thread_id,
                values,
                parent=ids[-1] if ids else None,
                versions={"log": number + 1},
                metadata={"counters_since_delta_snapshot": {"log": (number + 1, number + 1)}, "run_id": f"r{number}"},
            )
        )
        saver.writes(thread_id, ids[-1], [("log", [f"entry {number}"]), ("other", number)], f"task{number}")
    return ids


def log_of(saver: Calls, thread_id: str = "t", checkpoint_id: str | None = None) -> Any:
    found = saver("get_delta_channel_history", config=config(thread_id, checkpoint_id), channels=["log"])["log"]
    return [value for _, _, value in found["writes"]], found.get("seed")


class TestDeltaChannels:
    """The eight behaviours of the suite on LangGraph's main branch, and what must not be cut."""

    def test_writes_of_ancestors_oldest_first_without_the_targets_own(self, anyones: Calls) -> None:
        grow(anyones)

        assert log_of(anyones) == ([["entry 0"], ["entry 1"], ["entry 2"]], None)

    def test_no_seed_is_no_key(self, anyones: Calls) -> None:
        grow(anyones)

        history = anyones("get_delta_channel_history", config=config("t"), channels=["log"])
        assert "seed" not in history["log"]

    def test_the_nearest_value_is_the_seed_and_its_own_writes_count(self, anyones: Calls) -> None:
        grow(anyones, seed=_DeltaSnapshot(["base"]))

        assert log_of(anyones) == ([["entry 0"], ["entry 1"], ["entry 2"]], _DeltaSnapshot(["base"]))

    def test_a_plain_value_is_a_seed_too(self, anyones: Calls) -> None:
        grow(anyones, seed=["plain"])

        assert log_of(anyones)[1] == ["plain"]

    def test_no_channels_and_no_thread(self, anyones: Calls) -> None:
        assert anyones("get_delta_channel_history", config=config("t"), channels=[]) == {}
        assert anyones("get_delta_channel_history", config=config("t"), channels=["log"]) == {"log": {"writes": []}}

    def test_a_named_checkpoint_has_its_own_ancestors(self, anyones: Calls) -> None:
        ids = grow(anyones)

        assert log_of(anyones, checkpoint_id=ids[1]) == ([["entry 0"]], None)

    def test_siblings_do_not_contribute(self, anyones: Calls) -> None:
        ids = grow(anyones)
        fork = anyones.put("t", {}, parent=ids[1], versions={"log": 9})
        anyones.writes("t", fork, [("log", ["of the fork"])])
        tip = anyones.put("t", {}, parent=fork, versions={"log": 10})

        assert log_of(anyones, checkpoint_id=tip) == ([["entry 0"], ["entry 1"], ["of the fork"]], None)
        assert log_of(anyones, checkpoint_id=ids[3]) == ([["entry 0"], ["entry 1"], ["entry 2"]], None)

    def test_writes_of_one_step_come_in_their_order(self, saver: Calls) -> None:
        first = saver.put("t", {})
        saver.writes("t", first, [("log", ["b"]), ("log", ["c"])], "z", path="~1")
        saver.writes("t", first, [("log", ["a"])], "y", path="~0")
        saver.put("t", {}, parent=first)

        assert log_of(saver) == ([["a"], ["b"], ["c"]], None)

    @pytest.mark.parametrize("seed", [None, _DeltaSnapshot(["base"])], ids=["no seed", "seed"])
    def test_prune_keeps_what_a_delta_channel_is_made_of(self, saver: Calls, seed: Any) -> None:
        """Ten entries stay ten entries, though only the newest checkpoint is seen."""
        ids = grow(saver, count=10, seed=seed)
        expected = log_of(saver)
        for _ in range(2):
            saver("prune", ["t"])
            assert log_of(saver) == expected
            assert len(expected[0]) == 9
            assert saver.ids(thread("t")) == [ids[-1]]
            assert saver.get("t", ids[0]) is None
        more = saver.put("t", {}, parent=ids[-1], versions={"log": 11})
        assert log_of(saver, checkpoint_id=more)[0] == [*expected[0], ["entry 9"]]

    def test_removing_a_run_keeps_what_later_ones_are_made_of(self, saver: Calls) -> None:
        ids = grow(saver)
        expected = log_of(saver)
        saver("delete_for_runs", ["r1", "r2"])

        assert saver.ids(thread("t")) == [ids[3], ids[0]]
        assert log_of(saver) == expected

    def test_a_copy_outlives_its_source_and_its_pruning(self, saver: Calls) -> None:
        grow(saver, "s")
        expected = log_of(saver, "s")
        saver("prune", ["s"])
        saver("copy_thread", "s", "t")
        saver("delete_thread", "s")

        assert log_of(saver, "t") == expected
        saver.saver.ledger.rebuild()
        assert log_of(saver, "t") == expected


class TestVersions:
    @pytest.mark.parametrize("start", [None, 3, 2.5, f"{7:032}.{1:016}", f"{7:032}.0.123"], ids=str)
    def test_versions_grow_in_the_form_they_began_with(self, saver: Calls, start: Any) -> None:
        first = saver.saver.get_next_version(start, None)
        second = saver.saver.get_next_version(first, None)

        assert start is None or first > start
        assert second > first
        assert type(second) is type(first)

    def test_forks_have_versions_of_their_own(self, saver: Calls) -> None:
        assert len({saver.saver.get_next_version(f"{7:032}.{1:016}", None) for _ in range(100)}) == 100

    @pytest.mark.parametrize("wrong", ["x", True, ()], ids=repr)
    def test_a_version_of_no_saver_is_refused(self, saver: Calls, wrong: Any) -> None:
        with pytest.raises(InvalidValueError):
            saver.saver.get_next_version(wrong, None)


def test_tasks_of_one_step_may_write_at_once(saver: Calls) -> None:
    """Sync calls come from a pool of threads; none is lost."""
    checkpoint_id = saver.put("t", {})
    workers = [
        threading.Thread(target=saver.writes, args=("t", checkpoint_id, [("a", number)], f"task{number}"))
        for number in range(12)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert sorted(value for _, _, value in saver.at("t").pending_writes or []) == list(range(12))
