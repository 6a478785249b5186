import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.json_values import json_values
from tests.support.soak import examples

from chatledger.domain.content import Content, DictNode, Leaf, ListNode, Missing, Tree, piece_digest
from chatledger.domain.graph.pieces import RUN, cut, join

LARGE: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 0, 1.5, "é", "a" * 200, "b" * 300, "c" * 2_000]),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=3), inner, max_size=8),
    max_leaves=60,
)


class Stored:
    """Stored pieces, as the index has them: by digest, lists with all elements."""

    def __init__(self) -> None:
        self.pieces: dict[bytes, Content] = {}
        self.written = 0

    def put(self, value: Any, before: bytes | None = None) -> bytes:
        """Store what is missing of a value."""
        missing = Missing(self.pieces.__contains__, self.pieces.get, is_deep=True)
        made = cut(value).tree
        missing.add(made, before)
        for piece in missing.found:
            content = piece.content
            self.written += len(getattr(content, "data", b"")) + len(getattr(content, "children", b""))
            if isinstance(content, ListNode) and content.base:
                base = self.pieces[content.base]
                assert isinstance(base, ListNode)
                content = ListNode(base.children[: content.keep * 20] + content.children)
            assert piece_digest(content) == piece.digest
            self.pieces[piece.digest] = content
        return made.digest


@settings(max_examples=examples(60), deadline=None)
@given(values=st.lists(LARGE | json_values, min_size=1, max_size=4))
def test_what_is_cut_comes_back(values: list[Any]) -> None:
    """Key order and kinds of numbers included, whatever was stored before."""
    stored, digest = Stored(), None
    for value in values:
        digest = stored.put(value, digest)
        assert repr(join(digest, stored.pieces.__getitem__)) == repr(value)
        assert cut(copy.deepcopy(value)).tree.digest == digest


@pytest.mark.parametrize("size", [20, 400], ids=["small elements", "large elements"])
@pytest.mark.parametrize(
    ("start", "end", "has_new"),
    [(500, 500, True), (0, 1, False), (250, 251, True), (250, 250, True), (250, 251, False)],
    ids=["append", "drop first", "replace", "insert", "remove"],
)
def test_a_change_in_a_list_is_stored_by_itself(size: int, start: int, end: int, *, has_new: bool) -> None:
    """Of 500 elements the others are shared: small ones but for those beside, and a few bytes for each digest."""
    items = [{"id": number, "text": f"{number:03}" + "x" * size} for number in range(500)]
    stored = Stored()
    before = stored.put({"deep": {"list": items}, "text": "t" * 5_000})
    written = stored.written
    new = [{"id": -1, "text": "new"}] if has_new else []
    stored.put({"deep": {"list": items[:start] + new + items[end:]}, "text": "t" * 5_000}, before)
    digests = 20 * (500 if size >= 256 else 60)  # of the elements or runs behind the change
    assert stored.written - written < 5_000 + digests
    assert written > 500 * size


def pieces_of(tree: Tree) -> dict[bytes, Content]:
    """All that a value is made of, by digest."""
    found = {tree.digest: tree.content}
    for child in tree.children:
        found |= pieces_of(child)
    return found


def test_numbers_lie_together() -> None:
    """A vector is not taken apart into its numbers."""
    pieces = pieces_of(cut([number / 7 for number in range(3_000)]).tree)
    assert sum(len(getattr(content, "data", b"")) for content in pieces.values()) < 3_000 * 9 + 1_000
    assert len(pieces) < 130
    assert {content.type for content in pieces.values() if isinstance(content, Leaf)} == {RUN}


def test_equal_values_are_stored_once() -> None:
    made = cut({"a": ["x" * 2_000] * 50, "b": {"c": ["x" * 2_000] * 50, "d": 1}}).tree
    assert len([content for content in pieces_of(made).values() if isinstance(content, Leaf)]) == 2
    assert isinstance(made.content, DictNode)
