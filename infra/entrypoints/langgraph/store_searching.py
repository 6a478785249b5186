"""Searching of a LangGraph store: filters of values, ranking of items by words or by vectors, and namespaces that match."""

import operator
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import groupby, islice
from typing import Any, Final, NamedTuple, cast

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    IndexConfig,
    ListNamespacesOp,
    MatchCondition,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from chatledger.domain.errors import ConfigurationError, InvalidValueError
from chatledger.domain.search.bm25 import rank_texts
from chatledger.domain.search.fields import leaf_texts

from ...ledger.items.item_store import Item, ItemReader

_ANY: Final = "*"
_MAX_DEPTH: Final = 100
WHOLE: Final = "$"
"""The path of the whole value."""
FIELDS, VECTORS = "fields", "vectors"
"""Names beside the value of an item: the fields that are searched, and their vectors."""
_ORDERED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_OPERATORS: Final = ("$eq", "$ne", *_ORDERED)


class Ranked(NamedTuple):
    """An item that was found, and its score; None where it was not compared with a query."""

    item: Item
    score: float | None


def check_filter(wanted: Any) -> Mapping[str, Any]:
    """Return the filter of a search; one that is no object, or has an operator that is not known, such as `$and`, is refused."""
    if wanted is None:
        return {}
    if not isinstance(wanted, Mapping):
        msg = f"a filter must be an object of keys and what they must be, not {type(wanted).__name__}"
        raise InvalidValueError(msg)
    conditions = cast("Mapping[str, Any]", wanted)
    for name, condition in conditions.items():
        if str(name).startswith("$"):
            msg = (
                f"the filter has {name!r} in the place of a key; all keys must match, and stores differ in $and and $or"
            )
            raise InvalidValueError(msg)
        _check_condition(condition, 1)
    return conditions


def _check_condition(condition: Any, depth: int) -> None:
    if depth > _MAX_DEPTH:
        msg = f"the filter has more than {_MAX_DEPTH} levels"
        raise InvalidValueError(msg)
    if isinstance(condition, list | tuple):
        for inner in cast("Sequence[Any]", condition):
            _check_condition(inner, depth + 1)
    if isinstance(condition, Mapping):
        for name, inner in cast("Mapping[str, Any]", condition).items():
            if str(name).startswith("$") and name not in _OPERATORS:
                msg = f"Unsupported operator: {name}; there are {', '.join(_OPERATORS)}"
                raise InvalidValueError(msg)
            _check_condition(inner, depth + 1)


def is_match(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """
    Whether a value has all that a filter wants. A key with dots may be a path, where there is no such key.

    Values are compared as `InMemoryStore` does it; what cannot be compared does not match.
    """
    return all(_is_equal(_at(value, name), condition) for name, condition in wanted.items())


def _at(value: Mapping[str, Any], name: str) -> Any:
    if name in value or "." not in name:
        return value.get(name)
    inner: Any = value
    for part in name.split("."):
        inner = cast("Mapping[str, Any]", inner).get(part) if isinstance(inner, Mapping) else None
    return inner


def _is_equal(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        conditions = cast("Mapping[str, Any]", wanted)
        if any(name.startswith("$") for name in conditions):
            return all(_holds(value, name, operand) for name, operand in conditions.items())
        if not isinstance(value, Mapping):
            return False
        inner = cast("Mapping[str, Any]", value)
        return all(_is_equal(inner.get(name), condition) for name, condition in conditions.items())
    if isinstance(wanted, list | tuple):
        expected, actual = cast("Sequence[Any]", wanted), cast("Sequence[Any]", value)
        if not isinstance(value, list | tuple) or len(actual) != len(expected):
            return False
        return all(map(_is_equal, actual, expected))
    return bool(value == wanted)


def _holds(value: Any, name: str, operand: Any) -> bool:
    if name == "$eq":
        return bool(value == operand)
    if name == "$ne":
        return bool(value != operand)
    compare = _ORDERED.get(name)
    if compare is None:  # beside operators: a key, which the reference does not know there either
        return False
    try:
        return bool(compare(float(value), float(operand)))
    except (TypeError, ValueError, OverflowError):
        return isinstance(value, str) and isinstance(operand, str) and bool(compare(value, operand))


class ItemIndex:
    """The fields of items that a store searches, as LangGraph configures them: by vectors with `embed`, by words without."""

    def __init__(self, config: IndexConfig | None) -> None:
        settings: Mapping[str, Any] = config or {}
        fields: Any = settings.get("fields") or [WHOLE]
        if not isinstance(fields, list) or not all(isinstance(path, str) for path in cast("list[Any]", fields)):
            msg = f"the fields of an index must be a list of paths, such as ['text', 'tags[*]'], not {fields!r}"
            raise ConfigurationError(msg)
        self.fields = cast("list[str]", fields)
        dims: Any = settings.get("dims")
        if dims is not None and (not isinstance(dims, int) or isinstance(dims, bool) or dims < 1):
            msg = f"the dims of an index must be a whole number above 0, not {dims!r}"
            raise ConfigurationError(msg)
        self._dims: int | None = dims
        embed: Any = settings.get("embed")
        self.embeddings: Embeddings | None = None if embed is None else ensure_embeddings(embed)

    def texts(self, value: Mapping[str, Any], fields: Any) -> dict[str, str]:
        """Return the texts of an item that have a vector each, by their paths; `fields` as of a put."""
        by_path: dict[str, str] = {}
        for path in self._paths(fields):
            texts = get_text_at_path(value, path if path == WHOLE else tokenize_path(path))
            by_path |= {path if len(texts) == 1 else f"{path}.{number}": text for number, text in enumerate(texts)}
        return by_path

    def beside(self, fields: Any, texts: Mapping[str, str], vectors: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        """Return what is stored beside the value of an item: the fields of a put, and the vectors of its texts, by the text."""
        extra: dict[str, Any] = {} if fields is None else {FIELDS: fields}
        if texts:
            extra[VECTORS] = {path: self._encoded(vectors[text]) for path, text in texts.items()}
        return extra

    def by_words(self, query: str, items: Sequence[Item]) -> list[Ranked]:
        """The items that have a word of the query, the best first, by BM25; see `rank_texts`."""
        texts: dict[int, str] = {}
        for number, item in enumerate(items):
            parts: list[str] = []
            for path in self._paths((item.extra or {}).get(FIELDS)):
                is_whole = path == WHOLE
                parts += leaf_texts(item.value) if is_whole else get_text_at_path(item.value, tokenize_path(path))
            if parts:
                texts[number] = "\n".join(parts)
        scores = rank_texts(query, texts)
        best_first = sorted(scores, key=lambda number: -scores[number])
        return [Ranked(items[number], scores[number]) for number in best_first]

    def by_vectors(self, wanted: Sequence[float], items: Sequence[Item]) -> list[Ranked]:
        """All items, those with the most similar vectors first, by the cosine of the best of each; at the end those without vectors."""
        query = np.asarray(wanted, np.float64)
        owners: list[int] = []
        rows: list[Any] = []
        for number, item in enumerate(items):
            encoded: dict[str, str] = (item.extra or {}).get(VECTORS, {})
            vectors = [np.frombuffer(b64decode(vector), "<f4") for vector in encoded.values()]
            fitting = [vector for vector in vectors if vector.size == query.size]  # others are of another model
            rows += fitting
            owners += [number] * len(fitting)
        best: dict[int, float] = {}
        if rows:
            matrix = np.stack(rows).astype(np.float64)
            norms = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query)
            scores = np.divide(matrix @ query, norms, out=np.zeros_like(norms), where=norms != 0)
            for number, score in zip(owners, cast("list[float]", scores.tolist()), strict=True):
                best[number] = max(score, best.get(number, score))
        best_first = sorted(best, key=lambda number: -best[number])
        ranked = [Ranked(items[number], best[number]) for number in best_first]
        return ranked + [Ranked(item, None) for number, item in enumerate(items) if number not in best]

    def _paths(self, fields: Any) -> list[str]:
        if fields is False:
            return []
        return self.fields if fields is None else fields

    def _encoded(self, vector: Sequence[float]) -> str:
        numbers = np.asarray(vector, "<f4")
        if numbers.ndim != 1 or (self._dims is not None and numbers.size != self._dims):
            msg = f"the embedding of a text has the shape {numbers.shape}, and the index has dims={self._dims}"
            raise ConfigurationError(msg)
        return b64encode(numbers.tobytes()).decode()


def check_fields(fields: Any) -> Any:
    """Return the `index` of a put, checked: None, False, or a list of paths."""
    if fields is None or fields is False:
        return fields
    if isinstance(fields, list | tuple) and all(isinstance(path, str) for path in cast("Sequence[Any]", fields)):
        return list(cast("Sequence[str]", fields))
    msg = f"index must be None, False or a list of paths, not {fields!r}"
    raise InvalidValueError(msg)


def list_namespaces(items: ItemReader, op: ListNamespacesOp) -> list[tuple[str, ...]]:
    """Return the namespaces that match, cut to the depth, in order. Reads no further than to the last that is returned."""
    conditions = op.match_conditions or ()
    # All that match begin with the labels of a prefix up to a wildcard: the reader need not go through others.
    prefix = next((tuple(condition.path) for condition in conditions if condition.match_type == "prefix"), ())
    if _ANY in prefix:
        prefix = prefix[: prefix.index(_ANY)]
    with closing(items.scan_namespaces(prefix)) as namespaces:
        matching = (
            namespace if op.max_depth is None else namespace[: op.max_depth]
            for namespace in namespaces
            if all(_is_within(namespace, condition) for condition in conditions)
        )
        different = (namespace for namespace, _ in groupby(matching))  # in order, so that equal ones are neighbours
        return list(islice(different, op.offset, op.offset + op.limit))


def _is_within(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if condition.match_type not in {"prefix", "suffix"}:
        msg = f"Unsupported match type: {condition.match_type}"
        raise InvalidValueError(msg)
    if len(path) > len(namespace):
        return False
    labels = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in (_ANY, label) for label, wanted in zip(labels, path, strict=True))
