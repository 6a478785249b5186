"""The stored form of pages: a message in it is found without reading the others."""

from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from chatledger.projections.chat.pages import bodies_in, pack_page, part_of_page, plain_page, split_page, unpack_page

sizes = st.lists(st.sampled_from([0, 1, 30, 200, 16_000, 65_529, 65_530, 65_531, 65_532, 65_533, 70_000]), max_size=20)


@given(sizes, st.integers(0, 2**32 - 1))
def test_what_was_packed_is_found_again(sizes: list[int], first: int) -> None:
    """Also where two bytes just suffice to say where a message begins, or just do not."""
    bodies = [msgspec.msgpack.encode("x" * size) for size in [3, *sizes]]
    ordinals = list(range(len(bodies), 2 * len(bodies)))
    packed = pack_page(ordinals, bodies)
    page = unpack_page(b"key" + first.to_bytes(4, "big"), packed)
    plain = plain_page(packed)

    assert bodies == split_page(packed)
    assert list(pairwise([b"", *bodies])) == [bodies_in(plain, number) for number in range(len(bodies))]
    assert (first, tuple(ordinals)) == (page.first_offset, page.ordinals)
    assert ["x" * size for size in [3, *sizes]] == msgspec.msgpack.decode(page.array)


def test_a_message_takes_two_bytes_more_than_its_body_and_number() -> None:
    bodies = [msgspec.msgpack.encode("x" * 300)] * 50

    assert len(pack_page(range(50), bodies)) == sum(map(len, bodies)) + 50 * (4 + 2) + 4 + 3


@given(st.lists(st.binary(min_size=1, max_size=3000), min_size=1, max_size=40), st.integers(0, 100), st.data())
def test_part_of_a_page_is_these_messages(texts: list[bytes], page_first: int, data: st.DataObject) -> None:
    """At least those asked for, in one array that begins where it says."""
    count = len(texts)
    first = data.draw(st.integers(0, page_first + count - 1))
    last = data.draw(st.integers(max(first, page_first), page_first + count + 3))
    page = pack_page(range(count), [msgspec.msgpack.encode(text) for text in texts])
    begin, array = part_of_page(memoryview(page), page_first, first, last)
    found = msgspec.msgpack.decode(array)

    assert page_first <= begin <= max(first, page_first)
    assert texts[begin - page_first :][: len(found)] == found
    assert begin + len(found) > min(last, page_first + count - 1)
    if count > 16 and last + 1 - max(first, page_first) < count / 2:
        assert len(found) < count
