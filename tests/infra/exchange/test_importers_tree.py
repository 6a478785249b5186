import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.chat.import_tree import branch_leaves, sort_parents_first
from chatledger.domain.errors import ChainIntegrityError, InvalidValueError
from chatledger.importers import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    validate_chat,
)

DEEP = 200_000


def make_chat(
    parents: dict[str, str | None],
    *,
    branches: tuple[ImportedBranch, ...] = (ImportedBranch(name="main", head_message_id=None, is_active=True),),
    checkpoints: tuple[ImportedCheckpoint, ...] = (),
) -> ImportedChat:
    return ImportedChat(
        id="chat-1",
        user_id="ada",
        title=None,
        metadata=None,
        messages=tuple(
            ImportedMessage(id=key, parent_id=parent, name="user", data=None) for key, parent in parents.items()
        ),
        branches=branches,
        checkpoints=checkpoints,
    )


@given(st.dictionaries(st.integers(0, 12), st.integers(0, 15) | st.none()))
def test_any_graph_becomes_a_forest(links: dict[int, int | None]) -> None:
    """Every message is kept once, parents come first, and exactly the reported messages lose their parent."""
    parents = {str(key): None if parent is None else str(parent) for key, parent in links.items()}
    cut: list[str] = []
    order = sort_parents_first(parents, on_fault=lambda key, _: cut.append(key))

    assert set(parents) == set(order)
    placed: set[str] = set()
    for key, parent in order.items():
        assert parent is None or parent in placed
        placed.add(key)
    assert len(cut) == len(set(cut))
    assert set(cut) == {key for key in parents if order[key] != parents[key]}
    assert sort_parents_first(order, on_fault=lambda key, _: cut.append(key)) == order


@given(st.lists(st.integers(0, 1000), max_size=40))
def test_sorted_messages_stay_as_they_are(choices: list[int]) -> None:
    """A valid order is not changed, and nothing is reported."""
    parents = {str(n): None if choice > n else str(choice % n) if n else None for n, choice in enumerate(choices)}
    faults: list[str] = []

    assert list(parents.items()) == list(sort_parents_first(parents, on_fault=lambda _, f: faults.append(f)).items())
    assert faults == []


def test_a_cycle_is_cut_at_its_first_member() -> None:
    """The tail that leads into the cycle stays attached."""
    faults: list[tuple[str, str]] = []
    order = sort_parents_first({"tail": "c", "b": "a", "c": "b", "a": "c"}, on_fault=lambda k, f: faults.append((k, f)))

    assert order == {"b": None, "a": "c", "c": "b", "tail": "c"}
    assert [key for key, _ in faults] == ["b"]
    assert "3 message(s) are their own ancestors" in faults[0][1]


@pytest.mark.soak
def test_depth_is_no_limit() -> None:
    """A chain given backwards, and a cycle as long, are handled without recursion."""
    chain = {str(n): str(n - 1) if n else None for n in reversed(range(DEEP))}
    faults: list[str] = []
    order = sort_parents_first(chain, on_fault=lambda key, _: faults.append(key))

    assert [str(n) for n in range(DEEP)] == list(order)
    assert faults == []

    cycle = {**chain, "0": str(DEEP - 1)}
    order = sort_parents_first(cycle, on_fault=lambda key, _: faults.append(key))

    assert faults == [str(DEEP - 1)]
    assert set(order) == set(cycle)


def test_every_leaf_has_a_branch() -> None:
    chat = make_chat({"a": None, "b": "a", "c": "a", "d": "b", "x": None})
    branches = branch_leaves(chat.messages, main_head="c")

    assert [(branch.name, branch.head_message_id, branch.is_active) for branch in branches] == [
        ("main", "c", True),
        ("main-v2", "d", False),
        ("main-v3", "x", False),
    ]


def test_a_sound_chat_is_valid() -> None:
    main = ImportedBranch(name="main", head_message_id="b", is_active=True)
    validate_chat(
        make_chat(
            {"a": None, "b": "a"},
            branches=(main, ImportedBranch(name="other", head_message_id=None)),
            checkpoints=(ImportedCheckpoint(name="start", message_id="a"),),
        )
    )


MAIN = ImportedBranch(name="main", head_message_id=None, is_active=True)


@pytest.mark.parametrize(
    ("chat", "expected"),
    [
        (make_chat({"a": "a"}), "own ancestors"),
        (make_chat({"a": "b", "b": "a"}), "own ancestors"),
        (make_chat({"a": "gone"}), "'gone', which is not there"),
        (make_chat({"a": None}, branches=(msgspec.structs.replace(MAIN, head_message_id="x"),)), "branch 'main'"),
        (make_chat({}, checkpoints=(ImportedCheckpoint(name="c", message_id="x"),)), "checkpoint 'c'"),
    ],
)
def test_broken_links_are_refused(chat: ImportedChat, expected: str) -> None:
    with pytest.raises(ChainIntegrityError, match=expected):
        validate_chat(chat)


@pytest.mark.parametrize(
    ("chat", "expected"),
    [
        (make_chat({"b": "a", "a": None}), "comes before its parent"),
        (make_chat({}, branches=()), "0 active"),
        (make_chat({}, branches=(MAIN, ImportedBranch(name="b", head_message_id=None, is_active=True))), "2 active"),
        (make_chat({}, branches=(MAIN, ImportedBranch(name="main", head_message_id=None))), "twice"),
        (make_chat({}, branches=(ImportedBranch(name="", head_message_id=None, is_active=True),)), "empty branch name"),
        (make_chat({"a\0": None}), "NUL"),
        (make_chat({"": None}), "is empty"),
        (make_chat({"é" * 1025: None}), "2050 bytes"),
        (make_chat({"\ud800": None}), "surrogate"),
        (msgspec.structs.replace(make_chat({}), metadata={"a": float("nan")}), "not finite"),
        (msgspec.structs.replace(make_chat({}), metadata={"a": [{1: 2}]}), "key"),
        (msgspec.structs.replace(make_chat({}), metadata={"a": b""}), "bytes is not a JSON type"),
    ],
)
def test_broken_values_are_refused(chat: ImportedChat, expected: str) -> None:
    with pytest.raises(InvalidValueError, match=expected):
        validate_chat(chat)


def test_a_message_id_twice_is_refused() -> None:
    chat = make_chat({"a": None})
    with pytest.raises(InvalidValueError, match="'a' twice"):
        validate_chat(msgspec.structs.replace(chat, messages=chat.messages * 2))
