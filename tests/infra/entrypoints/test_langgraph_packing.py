"""The bookkeeping of checkpoints in few bytes: what is unpacked is what was packed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from chatledger.domain.errors import UnsupportedFormatError
from chatledger.domain.versioned.checkpoint_packing import pack, packed_version, unpack, versions_of
from chatledger.infra.entrypoints.langgraph.bound import next_version

SERDE = JsonPlusSerializer()
OURS = st.builds("{:032}.{:08}".format, st.integers(0, 10**32 - 1), st.integers(0, 10**8 - 1))
NEAR = st.from_regex(r"[0-9]{31,33}\.?[0-9]{7,9}", fullmatch=True)
VERSIONS = OURS | NEAR | st.text(max_size=45) | st.integers(0, 2**40) | st.floats(allow_nan=False)
NAMES = st.sampled_from(["__start__", "messages", "branch:to:a", "branch:to:", "a", ""]) | st.text(max_size=8)
BY_NAME = st.dictionaries(NAMES, VERSIONS, max_size=5)
TIMES = st.datetimes().map(lambda time: time.isoformat() + "+00:00") | st.text(max_size=40) | st.none()
CHECKPOINTS = st.fixed_dictionaries(
    {
        "v": st.integers(1, 9),
        "ts": TIMES,
        "id": st.just("1"),
        "channel_versions": BY_NAME,
        "versions_seen": st.dictionaries(NAMES, BY_NAME, max_size=4),
    },
    optional={"updated_channels": st.none() | st.lists(NAMES, max_size=4), "pending_sends": st.just([])},
)


@given(CHECKPOINTS)
def test_a_checkpoint_is_the_same_after_it_was_packed_and_serialized(checkpoint: dict[str, Any]) -> None:
    packed = SERDE.loads_typed(SERDE.dumps_typed(pack(checkpoint)))
    assert repr(unpack(packed, "1")) == repr({key: checkpoint[key] for key in unpack(packed, "1")})
    assert unpack(packed, "1") == checkpoint
    assert versions_of(packed) == checkpoint["channel_versions"]


@pytest.mark.parametrize(
    "other",
    [{"channel_versions": {1: "1"}}, {"channel_versions": {"a": [1]}}, {"updated_channels": {"a"}}, {"more": 1}],
    ids=["a name that is no text", "a version that is a list", "a set", "a key more"],
)
def test_a_checkpoint_of_another_form_stays_as_it_is(other: dict[str, Any]) -> None:
    checkpoint: dict[str, Any] = {"v": 4, "ts": "", "id": "1", "channel_versions": {}, "versions_seen": {}, **other}
    assert pack(checkpoint) == checkpoint


def test_a_version_of_a_new_thread_is_packed_into_a_number() -> None:
    assert isinstance(packed_version(next_version(next_version(None))), int)


def test_the_form_of_a_newer_chatledger_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        unpack([2], "1")
