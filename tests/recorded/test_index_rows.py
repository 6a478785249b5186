"""The rows of an index change with its schema only, see `record_index.py`."""

import json

from tests.recorded.record_index import DIGESTS, digests_of, recorded_events

from chatledger.projections.generations import SCHEMA


def test_rows_change_with_the_schema_only() -> None:
    """An index that an earlier build wrote under this schema has the rows that this one reads; otherwise it is built anew."""
    said = json.loads(DIGESTS.read_text())
    events, _ = recorded_events(said["events"])

    assert said["schema"] == SCHEMA.decode(), "run python -m tests.recorded.record_index"
    assert said["tables"] == digests_of(events), "raise SCHEMA in projections/generations.py"
