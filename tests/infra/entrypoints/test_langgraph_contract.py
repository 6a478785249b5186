"""
Contract of a saver of LangGraph beyond its published suite; through the sync and the async methods, bound and unbound.

Where the peers agree, the same tests run on them: they show that it is LangGraph's contract and not only ours.
"""

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]  # its only name
from tests.contracts.store_world import together

from chatledger.domain.errors import AlreadyExistsError, InvalidValueError
from chatledger.infra.testing.savers import CHECKS, Calls, config, grow, log_of, thread


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Callable[[Calls], None], anyones: Calls) -> None:
    """What all savers agree on; `chatledger.testing.check_saver` asks it of any."""
    check(anyones)


class TestPutAndGet:
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

    def test_no_writes_are_no_event(self, saver: Calls) -> None:
        checkpoint_id = saver.put("t", {})
        before = saver.saver.ledger.last_position()
        saver.writes("t", checkpoint_id, [])

        assert saver.saver.ledger.last_position() == before


class TestList:
    def test_all_threads_are_in_one_order(self, saver: Calls) -> None:
        ids = [saver.put(thread_id, {}, ns=ns) for thread_id, ns in (("b", ""), ("a", "x"), ("b", "x"), ("a", ""))]

        assert saver.ids(None) == list(reversed(ids))
        assert saver.ids(thread("a")) == [ids[3], ids[1]]

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_limit_below_one_gives_nothing(self, saver: Calls, limit: int) -> None:
        saver.put("t", {})

        assert saver.ids(config("t"), limit=limit) == []

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
    def test_equal_is_not_the_same(self, saver: Calls) -> None:
        """Values that compare equal, but are written differently, are told apart."""
        saver.put("t", {"v": [1, True, 1.0, 0.0, -0.0, "1", b"1", (1,), [1]] * 50, "w": {"a": True, "b": "x" * 600}})
        saver.put("u", {"v": [True, 1, 1, -0.0, 0.0, b"1", "1", [1], [True]] * 50, "w": {"a": 1, "b": "x" * 600}})

        assert str(saver.at("t").checkpoint["channel_values"]["v"][:5]) == "[1, True, 1.0, 0.0, -0.0]"
        assert str(saver.at("u").checkpoint["channel_values"]["v"][:5]) == "[True, 1, 1, -0.0, 0.0]"
        assert str(saver.at("t").checkpoint["channel_values"]["w"]["a"]) == "True"
        assert str(saver.at("u").checkpoint["channel_values"]["w"]["a"]) == "1"


class TestRemoval:
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


class TestDeltaChannels:
    """The eight behaviours of the suite on LangGraph's main branch, and what must not be cut."""

    def test_the_nearest_value_is_the_seed_and_its_own_writes_count(self, anyones: Calls) -> None:
        grow(anyones, seed=_DeltaSnapshot(["base"]))

        assert log_of(anyones) == ([["entry 0"], ["entry 1"], ["entry 2"]], _DeltaSnapshot(["base"]))

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
    together(12, lambda number: saver.writes("t", checkpoint_id, [("a", number)], f"task{number}"))

    assert sorted(value for _, _, value in saver.at("t").pending_writes or []) == list(range(12))
