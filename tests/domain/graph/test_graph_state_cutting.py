"""Values of states in pieces: they come back, and a version costs what it changed."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.json_values import json_values
from tests.support.soak import examples

from chatledger.domain.errors import CorruptStateError
from chatledger.domain.versioned.content import (
    Content,
    Edited,
    Leaf,
    Missing,
    Tree,
    dict_tree,
    leaf_tree,
    list_tree,
    piece_digest,
    size_of,
    tree_of,
)
from chatledger.domain.versioned.serials import VALUE, encoded, join

LARGE: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 0, 1.5, "é", "a" * 200, "b" * 300, "c" * 2_000, "d" * 40_000]),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=3), inner, max_size=8),
    max_leaves=60,
)


class Stored:
    """Stored pieces, as the index gives them: by digest, leaves with all edits."""

    def __init__(self) -> None:
        self.pieces: dict[bytes, Content] = {}
        self.written = 0

    def put(self, value: Any, before: bytes | None = None) -> bytes:
        """Store what is missing of a value."""
        tree = tree_of(encoded(value).serial, before, self.pieces.get)
        missing = Missing(self.pieces.__contains__, self.pieces.get)
        missing.add(tree, before)
        self.written += size_of(missing.found)
        for piece in missing.found:
            content = piece.content
            if isinstance(content, Edited):
                base = self.pieces[content.base]
                assert isinstance(base, Leaf)
                content = content.of(base.data)
            assert piece_digest(content) == piece.digest
            self.pieces[piece.digest] = content
        return tree.digest


@settings(max_examples=examples(60), deadline=None)
@given(values=st.lists(LARGE | json_values, min_size=1, max_size=4))
def test_what_is_cut_comes_back(values: list[Any]) -> None:
    """Key order and kinds of numbers included, whatever was stored before."""
    stored, digest = Stored(), None
    for value in values:
        digest = stored.put(value, digest)
        assert repr(join(digest, stored.pieces.__getitem__)) == repr(value)
        assert encoded(value).size_bytes == len(msgspec.msgpack.encode(value))
        written = stored.written
        assert stored.put(value, digest) == digest
        assert stored.written == written


@pytest.mark.parametrize("size", [20, 400], ids=["small elements", "large elements"])
@pytest.mark.parametrize(
    ("start", "end", "has_new"),
    [(500, 500, True), (0, 1, False), (250, 251, True), (250, 250, True), (250, 251, False)],
    ids=["append", "drop first", "replace", "insert", "remove"],
)
def test_a_change_in_a_list_is_stored_by_itself(size: int, start: int, end: int, *, has_new: bool) -> None:
    """Wherever it is: the edits of one part, and the digests of the parts."""
    items = [{"id": number, "text": f"{number:03}" + "x" * size} for number in range(500)]
    stored = Stored()
    before = stored.put({"deep": {"list": items}, "text": "t" * 5_000})
    written = stored.written
    new = [{"id": -1, "text": "new"}] if has_new else []
    stored.put({"deep": {"list": items[:start] + new + items[end:]}, "text": "t" * 5_000}, before)

    assert stored.written - written < 1_000
    assert written > 500 * size


@pytest.mark.parametrize(
    "tree",
    [list_tree([leaf_tree(VALUE, b"\x01")]), dict_tree({}), leaf_tree("pickle", b"\x01"), leaf_tree("part", b"\x01")],
)
def test_what_no_state_has_is_not_read(tree: Tree) -> None:
    """Values of threads come in other forms."""
    with pytest.raises(CorruptStateError):
        join(tree.digest, {tree.digest: tree.content}.__getitem__)
