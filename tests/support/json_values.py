"""Texts and JSON values for property tests."""

from typing import Any

from hypothesis import strategies as st

texts = st.text(max_size=8)
ids = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(texts, json_values, max_size=4)
times = st.integers(-(2**63), 2**63 - 1)
