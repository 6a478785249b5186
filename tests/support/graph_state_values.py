"""States and updates for property tests. Ids come from a few letters, so that they meet."""

from typing import Any

from hypothesis import strategies as st
from tests.support.json_values import json_values

letters = st.sampled_from("abcd")
numbers = st.integers(0, 3)
docs: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.fixed_dictionaries({"id": letters, "body": numbers}), max_size=6
)
messages: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.fixed_dictionaries({"content": numbers}, optional={"id": letters}), max_size=6
)
tasks: st.SearchStrategy[dict[str, Any]] = st.dictionaries(letters, numbers | st.none(), max_size=4)
counters = st.dictionaries(letters, numbers, max_size=3)
errors: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.fixed_dictionaries({"node": letters, "timestamp": numbers}), max_size=4
)
_sections: dict[str, st.SearchStrategy[Any]] = {
    "node_timings": counters,
    "token_counts": counters,
    "trace_id": letters,
    "extra": json_values,
}
metadata_without_errors: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional=_sections)
metadata: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional={**_sections, "errors": errors})


def _states(meta: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "docs": docs,
            "tasks": tasks,
            "metadata": meta,
            "messages": messages,
            "generated_text": st.none() | letters,
            "unknown": json_values,
        },
    )


updates = _states(metadata)
updates_without_errors = _states(metadata_without_errors)
