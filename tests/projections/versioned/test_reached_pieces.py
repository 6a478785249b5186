"""Which pieces a removal keeps: what the versions that stay are made of, found without a look at each element of each list."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

from chatledger.domain.versioned.content import (
    DIGEST_BYTES,
    Content,
    Leaf,
    ListNode,
    list_piece,
    split_digests,
)
from chatledger.projections.versioned.pieces import StoredPiece, reached_pieces

MOST = 60


def element(number: int) -> bytes:
    """The digest of an element."""
    return number.to_bytes(DIGEST_BYTES)


lists = st.one_of(
    st.tuples(st.integers(0, MOST), st.integers(0, MOST)).map(lambda ends: range(min(ends), max(ends))),
    st.lists(st.integers(0, MOST), max_size=MOST),
)


@given(st.lists(st.tuples(lists, st.booleans()), min_size=1, max_size=12), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_what_lists_are_made_of_is_reached_and_nothing_else(
    versions: list[tuple[list[int] | range, bool]], data: st.DataObject
) -> None:
    """Whatever they have in common: their ends, as those that grow or slide, or some elements in another order."""
    stored: dict[bytes, Content] = {element(number): Leaf("text", str(number).encode()) for number in range(MOST + 1)}
    wholes: dict[bytes, bytes] = {}
    before: bytes | None = None
    for numbers, may_grow in versions:
        piece = list_piece([element(number) for number in numbers])
        assert isinstance(piece.content, ListNode)
        content: Content = piece.content
        if may_grow and before is not None and before != piece.digest and piece.digest not in stored:
            content = grown(piece.content.children, before, wholes[before])
        stored.setdefault(piece.digest, content)
        wholes[piece.digest] = piece.content.children
        before = piece.digest
    roots = data.draw(st.lists(st.sampled_from(sorted(wholes)), unique=True))
    reached = reached_pieces(roots, lambda digest: StoredPiece(stored[digest]))

    assert reached.keys() == {*roots}.union(*(split_digests(wholes[root]) for root in roots))


def grown(children: bytes, base: bytes, base_children: bytes) -> ListNode:
    """The list as what it adds to another one, however little they have in common."""
    keep = 0
    while children[: (keep + 1) * DIGEST_BYTES] == base_children[: (keep + 1) * DIGEST_BYTES] and (
        (keep + 1) * DIGEST_BYTES <= min(len(children), len(base_children))
    ):
        keep += 1
    return ListNode(children[keep * DIGEST_BYTES :], base, keep)
