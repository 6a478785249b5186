"""
Fragments of every shape for property tests: nested at will, with shared values, values that contain themselves, codecs,
mappings with the fields of a fragment (fragments at the top, data elsewhere), and text that looks like the syntax of each format.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

from hypothesis import strategies as st

from chatledger.domain.context.fragments import Fragment
from chatledger.domain.context.messages import StoredCodec
from chatledger.domain.render.prepared import Named, Value, scalar_text

_SYNTAX = (
    "", " ", "\n", " \n\t", "a\nb", "a\n\nb\n", "\r", "a\r\nb", "\x85\u2028", "\0", "\x1b[0m", "\ud800", "\ufffe", "\ufeff",
    "<", "</name>", "&amp;", "]]>", "<!--", "-->", "<?xml?>", "<!DOCTYPE a [<!ENTITY b 'c'>]>", "\"'",
    "# a", "## Title", "- **key**: value", "```", "[section]", "[[a.b]]", "a = 1", '"""', "'''", "\\", "\\u0041", "\\n",
    "- a", "-", "--", "[3]: a,b", "{id,name}:", "a: b", ":", ",", "|", "\t", "true", "false", "null", "NaN", "1", "-1.5e3", "05",
    "\u202e", "🦜", "e\u0301", "名前", "größe",
)  # fmt: skip
"""Texts that the four formats are made of, and that encoders stumble over."""

_NAMES = (
    "hint", "tags", "cities", "data", "children", "user_ids", "styleGuide", "user name", "1st", "-", ".", "a.b", "a:b", "xml",
    "xmlns:a", "<b>", "a\nb", "名前", "größe", "🦜", "true", "1", "__proto__", "\x01",
)  # fmt: skip

hostile_texts: st.SearchStrategy[str] = st.sampled_from(_SYNTAX) | st.text(max_size=6)
names: st.SearchStrategy[str] = st.sampled_from(_NAMES) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=4
)
"""Names of fragments: text of any kind, but not empty."""

keys: st.SearchStrategy[str] = st.just("") | names
scalars: st.SearchStrategy[str | float | bool] = hostile_texts | st.integers() | st.floats() | st.booleans()


def _as_mapping(name: str, data: Any) -> dict[str, Any]:
    return {"name": name, "data": data}


def _with_codec(name: str, data: Any) -> Fragment:
    return Fragment(name, "what the codec says wins", codec=StoredCodec(data))


_FORMS: tuple[Callable[[str, Any], Any], ...] = (Fragment, Fragment, _as_mapping, _with_codec)


def _made(form: Callable[[str, Any], Any], name: str, data: Any) -> Any:
    return form(name, data)


def _fragments(data: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(_made, st.sampled_from(_FORMS), names, data)


fragment_data: st.SearchStrategy[Any] = st.recursive(
    st.none() | scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | _fragments(inner),
    max_leaves=10,
)
"""`FragmentData` without shared values."""

plain_fragment_lists: st.SearchStrategy[list[Any]] = st.lists(_fragments(fragment_data), max_size=3)
"""Fragments that `render` takes, without shared values and cycles."""


@st.composite
def _tangled(draw: st.DrawFn) -> list[Any]:
    fragments = draw(plain_fragment_lists)
    containers = [value for value in _inner_values(fragments) if _holds_values(value)]
    if containers:
        places = st.sampled_from(range(len(containers)))
        for host, guest in draw(st.lists(st.tuples(places, places), max_size=3)):
            _put(containers[host], containers[guest])
    return fragments


fragment_lists: st.SearchStrategy[list[Any]] = _tangled()
"""Fragments that `render` takes: some values stand at several places, and some contain themselves."""


def nested(levels: int, innermost: Any = "x") -> Fragment:
    """A fragment so many levels deep: lists, objects and fragments in turn."""
    value = innermost
    for level in range(levels):
        value = ([value], {"key": value}, Fragment("inner", value))[level % 3]
    return Fragment("outer", value)


def leaf_texts(value: Value, *, in_list: bool = False) -> Iterator[str]:
    """The texts of the scalars in a prepared value, in order; those of a list inside a list are one text (CE-46)."""
    if isinstance(value, Named):
        yield from leaf_texts(value.value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaf_texts(item)
    elif not isinstance(value, list):
        yield scalar_text(value)
    elif in_list and value and not any(isinstance(item, Named | list | dict) for item in value):
        yield ",".join(map(scalar_text, value))  # type: ignore[arg-type]  # only scalars are left
    else:
        for item in value:
            yield from leaf_texts(item, in_list=True)


def _inner_values(fragments: list[Any]) -> list[Any]:
    """All values inside the fragments, which have no cycles yet."""
    found: list[Any] = []
    pending: list[Any] = [*fragments]
    while pending:
        value = pending.pop()
        found.append(value)
        if isinstance(value, Fragment):
            pending.append(value.data if value.codec is None else value.codec.decode())
        elif isinstance(value, list):
            pending.extend(cast("list[Any]", value))
        elif isinstance(value, dict):
            pending.extend(cast("dict[str, Any]", value).values())
    return found


def _holds_values(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and "data" not in value)


def _put(host: Any, guest: Any) -> None:
    if isinstance(host, list):
        cast("list[Any]", host).append(guest)
    else:
        host["again"] = guest
