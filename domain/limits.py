"""Checks of ids, names, numbers and JSON values. Each check raises `InvalidValueError` and returns its value."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from .errors import InvalidValueError
from .packing import MAX_DIGITS, joined

MAX_ID_BYTES: Final = 2048
MAX_JSON_DEPTH: Final = 200
MAX_COMMIT_EVENTS: Final = 1000
"""The most events that a JetStream server takes in one atomic batch."""
COMMIT_EVENTS: Final = MAX_COMMIT_EVENTS // 2
"""Number of events in each commit of work that takes several; one that is too large may become more."""
MAX_TITLE_BYTES: Final = 16 * 1024
MAX_METADATA_BYTES: Final = 256 * 1024
"""Encoded in msgpack."""
MAX_METADATA_KEYS: Final = 1000
"""At the top: chats are listed by each of them."""
MAX_MEMBERS: Final = 500
"""Of one chat: each has it in a list, in which it moves with every message; and a new chat has all of them in one commit."""
MAX_LINKS: Final = 20
"""Of one chat, of those that hold: they are in the row that has its title, which each list reads."""
MAX_UNPACKED_BYTES: Final = 1024 * 1024 * 1024
"""The size of one imported file when it is unpacked, and of all that an archive has together."""
S = TypeVar("S", bound=msgspec.Struct)
C = TypeVar("C", bound=str)
_encode: Final = msgspec.msgpack.Encoder().encode
_type_of: Final = cast("Callable[[Any], object]", type)
_SCALARS: Final = frozenset[object]({type(None), bool, str, int})
_TEXTS: Final = frozenset[object]({str})
_ENTRIES: Final[dict[object, Callable[[Any], Iterable[tuple[Any, Any]]]]] = {
    list: enumerate,
    dict: dict[Any, Any].items,
}
"""The entries of a list or an object, whose items may be replaced meanwhile."""
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1  # what msgpack keeps exactly
_LARGEST: Final = 10**MAX_DIGITS


def check_id(value: Any, what: str, *, empty: bool = False) -> str:
    """An id or a name: text of 1 to 2,048 bytes of UTF-8 (0 with `empty`), without NUL and lone surrogates."""
    if type(value) is str and value.isascii() and 0 < len(value) <= MAX_ID_BYTES and "\0" not in value:
        return value
    if not isinstance(value, str):
        msg = f"{what} must be text, not {type(value).__name__}"
        raise InvalidValueError(msg)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise _no_text(what) from None
    if not (size or empty):
        msg = f"{what} must not be empty"
        raise InvalidValueError(msg)
    if size > MAX_ID_BYTES:
        msg = f"{what} takes {size:,} bytes, at most {MAX_ID_BYTES:,} are allowed"
        raise InvalidValueError(msg)
    if "\0" in value:
        msg = f"{what} must not contain a NUL character"
        raise InvalidValueError(msg)
    return value


NO_ID: Final = "\0"
"""An id that nothing has."""


def sought_id(value: Any, what: str, *, empty: bool = False) -> str:
    """An id to look for: `NO_ID` in place of a text that can be nobody's, which is looked for like any unknown id."""
    try:
        return check_id(value, what, empty=empty)
    except InvalidValueError:
        if not isinstance(value, str):
            raise
        return NO_ID


def check_optional_id(value: Any, what: str) -> str | None:
    return None if value is None else check_id(value, what)


def check_ids(value: Any, what: str) -> tuple[str, ...]:
    """Several ids, as a list or the like."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        msg = f"{what} must be a list of ids, not {type(value).__name__}"
        raise InvalidValueError(msg)
    return tuple(check_id(item, f"an id in {what}") for item in cast("Iterable[Any]", value))


def utf8_bytes(value: str, what: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise _no_text(what) from None


def _no_text(what: str) -> InvalidValueError:
    return InvalidValueError(
        f"{what} contains a lone surrogate, which is not text; encode the bytes it came from properly"
    )


def check_count(value: Any, what: str) -> int:
    """A whole number that is not negative; for one beyond all that there may be, and that no iterator counts to, the largest it does."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        msg = f"{what} must be a whole number of at least 0, not {value!r}"
        raise InvalidValueError(msg)
    return min(value, 2**63 - 1)


def check_position(value: Any, what: str) -> int:
    """A position on the log, there or to come. Refused are numbers that rows, SQL and struct cannot hold, which would fail there without words."""
    position = check_count(value, what)
    if position != value:
        msg = f"{what} is a position on the log, which are below 2**63"
        raise InvalidValueError(msg)
    return position


def check_time(value: Any, what: str, allowed: str = "whole milliseconds since the epoch") -> int:
    """Milliseconds since the Unix epoch. `allowed` says in the error what the caller takes."""
    if not isinstance(value, int) or isinstance(value, bool) or not _MIN_INT <= value < 2**63:
        msg = f"{what} must be {allowed}, not {value!r}"
        raise InvalidValueError(msg)
    return value


def check_flag(value: Any, what: str) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if not isinstance(value, bool):
        msg = f"{what} must be True or False, not {value!r}"
        raise InvalidValueError(msg)
    return value


def check_choice(value: Any, choices: Sequence[C], what: str) -> C:
    if not isinstance(value, str) or value not in choices:
        msg = f"{what} must be one of {', '.join(choices)}, not {value!r}"
        raise InvalidValueError(msg)
    return cast("C", value)


def json_copy(value: Any, what: str, depth: int = 0) -> Any:
    """
    A deep copy of a JSON value, so that later changes by the caller have no effect.

    Allowed are None, booleans, text, numbers, lists and objects with text keys. Not: NaN and infinities, integers beyond
    64 bits, lone surrogates, tuples, sets, bytes and other objects, and more than 200 levels.
    """
    copied = _plain_copy(value, depth)
    return walked_json_copy(value, what, depth) if copied is UNSET else copied


def data_copy(value: Any, what: str, depth: int = 0) -> Any:
    """
    A deep copy of the data of a message: what `json_copy` takes, and what else Python's `json` reads and writes.

    That is NaN and infinities, integers of up to 4,300 digits, and half of an emoji, in texts and in keys. Two halves that follow
    each other become the emoji, as JSON writes both alike.
    """
    copied = _plain_copy(value, depth)
    return walked_json_copy(value, what, depth, is_strict=False) if copied is UNSET else copied


def _plain_copy(value: Any, depth: int) -> Any:
    """Copy a JSON value of nothing but Python's own types, without a call for each item; UNSET for any other value."""
    try:
        _encode(value)  # refuses lone surrogates, integers beyond 64 bits, and what contains itself
    except Exception:  # noqa: BLE001 - the walk says what is wrong, if anything is
        return UNSET
    whole: list[Any] = [value]
    level: list[tuple[Any, Iterable[tuple[Any, Any]]]] = [(whole, enumerate(whole))]
    for _ in range(depth, MAX_JSON_DEPTH + 1):
        below: list[tuple[Any, Iterable[tuple[Any, Any]]]] = []
        for container, entries in level:
            for key, item in entries:
                kind = _type_of(item)
                if kind in _SCALARS or (kind is float and math.isfinite(item)):
                    continue
                entries_of = _ENTRIES.get(kind)
                if entries_of is None:
                    return UNSET
                copied = container[key] = item.copy()
                if kind is dict and not _TEXTS.issuperset(map(type, copied)):
                    return UNSET
                below.append((copied, entries_of(copied)))
        if not below:
            return whole[0]
        level = below
    return UNSET


def walked_json_copy(value: Any, what: str, depth: int = 0, *, is_strict: bool = True) -> Any:
    """Do what `json_copy` or `data_copy` does, item by item: takes subclasses of Python's own types, and says what is wrong."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _json_text(value, what, is_strict=is_strict)
    if isinstance(value, int):
        if is_strict and not _MIN_INT <= value <= _MAX_INT:
            msg = f"{what} contains an integer beyond 64 bits, which cannot be kept exactly; store it as text"
            raise InvalidValueError(msg)
        if not -_LARGEST < value < _LARGEST:
            msg = f"{what} contains an integer of more than {MAX_DIGITS:,} digits, which Python reads from no JSON; store it as text"
            raise InvalidValueError(msg)
        return int(value)
    if isinstance(value, float):
        if is_strict and not math.isfinite(value):
            msg = f"{what} contains {value}, which JSON does not know; store None or text"
            raise InvalidValueError(msg)
        return float(value)
    if depth >= MAX_JSON_DEPTH:
        msg = f"{what} is nested more than {MAX_JSON_DEPTH} levels deep"
        raise InvalidValueError(msg)
    if isinstance(value, list):
        return [walked_json_copy(item, what, depth + 1, is_strict=is_strict) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            _json_key(key, what, is_strict=is_strict): walked_json_copy(item, what, depth + 1, is_strict=is_strict)
            for key, item in cast("dict[Any, Any]", value).items()
        }
    hint = "; use a list" if type(value) in {tuple, set, frozenset} else ""
    msg = f"{what} contains a {type(value).__name__}, which is not a JSON value{hint}"
    raise InvalidValueError(msg)


def check_metadata(value: Any, what: str = "metadata") -> dict[str, Any] | None:
    """A JSON object, copied, or None."""
    if value is not None and not isinstance(value, dict):
        msg = f"{what} must be an object or None, not {type(value).__name__}"
        raise InvalidValueError(msg)
    copied = cast("dict[str, Any] | None", json_copy(value, what))
    if copied is not None and len(copied) > MAX_METADATA_KEYS:
        msg = (
            f"{what} has {len(copied):,} keys, at most {MAX_METADATA_KEYS:,} are allowed; put lists or objects into it"
        )
        raise InvalidValueError(msg)
    size = len(_encode(copied))
    if size > MAX_METADATA_BYTES:
        msg = f"{what} takes {size:,} bytes, at most {MAX_METADATA_BYTES:,} are allowed; put large data into messages"
        raise InvalidValueError(msg)
    return copied


def changed_metadata(
    before: dict[str, Any] | None, replacing: dict[str, Any] | UnsetType | None, merged: dict[str, Any] | None
) -> dict[str, Any] | UnsetType | None:
    """
    Return metadata after `replacing` took their place, or the keys of `merged` were set among them; UNSET when neither is asked for.

    No keys set among no metadata leave None, not `{}`, so that there is no change to write.
    """
    if merged is None:
        return UNSET if isinstance(replacing, UnsetType) else check_metadata(replacing)
    if replacing is not UNSET:
        msg = "give metadata to merge, or replace_metadata, not both"
        raise InvalidValueError(msg)
    return check_metadata({**(before or {}), **(check_metadata(merged) or {})} or before)


def read_back(value: S, form: type[S], what: str) -> S:
    """
    Return a struct as it is read after it was written.

    Nothing checks the fields of a struct when it is made in Python; what is written with a value of another type cannot be read.

    Raises:
        InvalidValueError: It is of another class, or a value in it is of another type than its field.
    """
    if not isinstance(value, form):
        msg = f"{what} must be of the class {form.__name__}, not {type(value).__name__}"
        raise InvalidValueError(msg)
    try:
        return msgspec.msgpack.decode(_encode(value), type=form)
    except UnicodeEncodeError:
        raise _no_text(what) from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = f"{what} has a value of a wrong type: {error}"
        raise InvalidValueError(msg) from error


def same_json(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal: key order is ignored, `true` differs from `1`, `1` equals `1.0`, NaN equals NaN."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        left, right = cast("dict[str, Any]", a), cast("dict[str, Any]", b)
        return left.keys() == right.keys() and all(same_json(item, right[key]) for key, item in left.items())
    if isinstance(a, list) and isinstance(b, list):
        ours, theirs = cast("list[Any]", a), cast("list[Any]", b)
        return len(ours) == len(theirs) and all(same_json(x, y) for x, y in zip(ours, theirs, strict=True))
    return bool(a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)))


def _json_key(key: Any, what: str, *, is_strict: bool) -> str:
    if not isinstance(key, str):
        msg = f"{what} has the key {key!r}; keys must be text"
        raise InvalidValueError(msg)
    return _json_text(key, what, is_strict=is_strict)


def _json_text(text: str, what: str, *, is_strict: bool) -> str:
    if not is_strict:
        return joined(text)
    utf8_bytes(text, what)
    return str.__str__(text)
