"""Lists and maps in msgpack, stored without their headers."""

from typing import Any

import msgspec
import pytest

from chatledger.domain.errors import CorruptStateError
from chatledger.domain.versioned.content import Leaf
from chatledger.domain.versioned.serials import bare, decoded, is_plain, with_header


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
@pytest.mark.parametrize("make", [lambda count: [1] * count, lambda count: {str(number): 1 for number in range(count)}])
def test_a_header_comes_back(make: Any, count: int) -> None:
    data = msgspec.msgpack.encode(make(count))
    form, stored = bare("msgpack", data)

    assert len(stored) < len(data)
    assert form.endswith(f"{count}")
    assert with_header(form, stored) == ("msgpack", data)


@pytest.mark.parametrize("form", ["json", "null", "msgpack", "msgpack-items", "msgpack[", "msgpack[-1", "msgpack(3"])
def test_other_forms_stay(form: str) -> None:
    assert with_header(form, b"\x01") == (form, b"\x01")
    assert bare("text", b"\x91\x01") == ("text", b"\x91\x01")


@pytest.mark.parametrize("count", ["4294967296", "9999999999"])
def test_a_length_that_nothing_has_is_damage(count: str) -> None:
    """As a file may say that somebody else wrote."""
    with pytest.raises(CorruptStateError, match="nothing is as long"):
        decoded(Leaf(f"msgpack[{count}", b""))


def test_messages_as_dicts_are_no_plain_data() -> None:
    """They are pieces of their own, which a search looks at once."""
    assert is_plain([{"text": "x"}] * 3)
    assert not is_plain([{"role": "user", "content": "x"}] * 3)
    assert not is_plain({"messages": [{"role": "user", "content": "x"}]})
