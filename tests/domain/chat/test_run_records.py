"""Records of runs and of their regeneration: ids of copies, places on the branch that is built, records of a stream."""

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.chat.runs import (
    CarryOver,
    MessageRun,
    RunData,
    RunEnd,
    RunMetadata,
    RunStreamRecord,
    Stretch,
    copy_id,
)
from chatledger.domain.errors import NamespaceError


def test_the_ids_of_copies_never_change() -> None:
    """A regeneration that an older version began goes on: its copies are found by their ids."""
    assert "225d1891-8928-ea5f-2c7e-13ba1d3e67cd" == copy_id("g", "m1")


@given(st.lists(st.text(), min_size=2, max_size=2), st.lists(st.text(), min_size=2, max_size=2))
def test_each_regeneration_has_its_own_copy_of_a_message(first: list[str], second: list[str]) -> None:
    """A UUID, of both ids and of where the one ends and the other begins."""
    copies = {copy_id(*first), copy_id(*second), copy_id("", "".join(first)), copy_id("".join(first), "")}

    assert copies == {str(UUID(copy)) for copy in copies}
    assert len({tuple(first), tuple(second), ("", "".join(first)), ("".join(first), "")}) == len(copies)


def test_an_answer_has_a_place_on_the_branch_where_a_stretch_names_its_run() -> None:
    carries = CarryOver(
        branch_id="b", stretches=(Stretch(run_ids=("R1",)), Stretch(first="m", last="m", run_ids=("R2", "R3")))
    )

    assert ["R1", "R3"] == [run_id for run_id in ("R1", "R3", "R4", "m", None) if carries.places(run_id)]


def test_records_of_a_stream() -> None:
    """The namespace is the real one, and each record says what it is."""
    run = MessageRun(
        id="1",
        run_id="r",
        thread_id="t",
        assistant_id="research",
        checkpoint_id="cp",
        status="completed",
        created_at=1,
        updated_at=2,
    )
    records = [RunMetadata.of(run), RunData(content="an", type="ai"), RunEnd.of(run)]
    lines = [msgspec.json.encode(record) for record in records]

    assert records == [msgspec.json.decode(line, type=RunStreamRecord) for line in lines]
    assert {
        "event": "metadata", "run_id": "r", "thread_id": "t", "assistant_id": "research", "checkpoint_ns": "assistant:research",
    } == msgspec.json.decode(lines[0])  # fmt: skip
    end = {"event": "end", "run_id": "r", "checkpoint_id": "cp", "status": "completed"}
    assert end == msgspec.json.decode(lines[2])
    assert "run:r" == RunMetadata.of(run, checkpoint_ns="run:r").checkpoint_ns
    with pytest.raises(NamespaceError):
        RunMetadata.of(msgspec.structs.replace(run, assistant_id="a|b"))
