"""
The bookkeeping of a checkpoint in few bytes: it names every channel and version several times, and is written at each step.

    [format, v, ts, names, versions, channel_versions, versions_seen, updated_channels]

The last three hold places in `names` and `versions`. A name that every graph has is a number, and a name that begins with
`branch:to:` is the only item of a list, without that. A time is in us since the epoch, and a version of our own form a number.
What has any other form stays as it is.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from ..errors import UnsupportedFormatError

_DIGITS: Final = 32
_TAIL_DIGITS: Final = 8
VERSION_TAILS: Final = 10**_TAIL_DIGITS
VERSION_FORM: Final = f"%0{_DIGITS}d.%0{_TAIL_DIGITS}d"
_MAX_PACKED: Final = 2**63


def packed_version(version: Any) -> Any:
    """A version in few bytes: ours as a number, other text as it is, and anything else as the only item of a list."""
    if not isinstance(version, str):
        return [version]
    if len(version) != _DIGITS + 1 + _TAIL_DIGITS or not version.isascii():
        return version
    number, dot, tail = version.partition(".")
    if len(number) != _DIGITS or not (dot and number.isdecimal() and tail.isdecimal()):
        return version
    packed = int(number) * VERSION_TAILS + int(tail)
    return packed if packed < _MAX_PACKED else version


def unpacked_version(packed: Any) -> Any:
    """The version that was packed."""
    if isinstance(packed, int):
        return VERSION_FORM % divmod(packed, VERSION_TAILS)
    return cast("list[Any]", packed)[0] if isinstance(packed, list) else packed


_FORMAT: Final = 1
_REQUIRED: Final = {"v", "ts", "id", "channel_versions", "versions_seen"}
_KNOWN: Final = _REQUIRED | {"updated_channels"}
_NO_KEY: Final = 0
"""Stands for `updated_channels` where there is no such key."""
_KINDS: Final[set[type[Any]]] = {str, int, float}
_USUAL: Final = ("__start__", "__input__", "__pregel_tasks", "__interrupt__", "messages")
_USUAL_PLACES: Final = {name: place for place, name in enumerate(_USUAL)}
_BRANCH: Final = "branch:to:"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)


def pack(checkpoint: Mapping[str, Any]) -> Any:
    """A checkpoint without values, and without its id where it has the usual form; a copy of it where it has not."""
    if not _is_usual(checkpoint):
        return dict(checkpoint)
    seen: dict[str, dict[str, Any]] = checkpoint["versions_seen"]
    updated: list[str] | int | None = checkpoint.get("updated_channels", _NO_KEY)
    names: dict[str, int] = {}
    versions: dict[tuple[type[Any], Any], int] = {}

    def places(of: dict[str, Any]) -> list[int]:
        return [
            place
            for name, version in of.items()
            for place in (
                names.setdefault(name, len(names)),
                versions.setdefault((cast("type[Any]", type(version)), version), len(versions)),
            )
        ]

    current = places(checkpoint["channel_versions"])
    by_node = [part for node, of in seen.items() for part in (names.setdefault(node, len(names)), places(of))]
    of_updated = [names.setdefault(name, len(names)) for name in updated] if isinstance(updated, list) else updated
    numbers = [packed_version(version) for _, version in versions]
    return [
        _FORMAT,
        checkpoint["v"],
        _packed_time(checkpoint["ts"]),
        [*map(_packed_name, names)],
        numbers,
        current,
        by_node,
        of_updated,
    ]


def unpack(packed: Any, checkpoint_id: str) -> dict[str, Any]:
    """
    The checkpoint that was packed, without values.

    Raises:
        UnsupportedFormatError: A newer chatledger wrote it.
    """
    if isinstance(packed, dict):
        return cast("dict[str, Any]", packed)
    if packed[0] != _FORMAT:
        msg = f"checkpoint {checkpoint_id!r} has form {packed[0]!r}: a newer chatledger wrote it; upgrade to read it"
        raise UnsupportedFormatError(msg)
    _, v, time, packed_names, numbers, current, by_node, updated = packed
    names = [*map(_name, packed_names)]
    versions = [unpacked_version(number) for number in numbers]

    def by_name(places: list[int]) -> dict[str, Any]:
        paired = iter(places)
        return {names[name]: versions[version] for name, version in zip(paired, paired, strict=True)}

    checkpoint: dict[str, Any] = {
        "v": v,
        "ts": _time(time),
        "id": checkpoint_id,
        "channel_versions": by_name(current),
        "versions_seen": {names[by_node[at]]: by_name(by_node[at + 1]) for at in range(0, len(by_node), 2)},
    }
    if updated != _NO_KEY:
        checkpoint["updated_channels"] = None if updated is None else [names[place] for place in updated]
    return checkpoint


def versions_of(packed: Any) -> dict[str, Any]:
    if isinstance(packed, dict):
        return cast("dict[str, dict[str, Any]]", packed)["channel_versions"]
    _, _, _, names, numbers, current, *_ = packed
    return {_name(names[current[at]]): unpacked_version(numbers[current[at + 1]]) for at in range(0, len(current), 2)}


def _is_usual(checkpoint: Mapping[str, Any]) -> bool:
    """Whether a checkpoint has the form that LangGraph gives it, so that it comes back from `unpack` as it was."""
    if not _REQUIRED <= checkpoint.keys() <= _KNOWN or type(checkpoint["versions_seen"]) is not dict:
        return False
    seen = cast("dict[Any, Any]", checkpoint["versions_seen"])
    updated = checkpoint.get("updated_channels")
    if not (updated is None or (type(updated) is list and _are_text(cast("list[Any]", updated)))):
        return False
    if not _are_text(seen):
        return False
    for versions in (checkpoint["channel_versions"], *seen.values()):
        if type(versions) is not dict:
            return False
        by_name = cast("dict[Any, Any]", versions)
        # Versions are looked up by equality and type: of other kinds it is not known that equal means the same.
        if not (_are_text(by_name) and _KINDS.issuperset(map(type, by_name.values()))):
            return False
    return True


def _are_text(values: Iterable[Any]) -> bool:
    return all(type(value) is str for value in values)


def _packed_name(name: str) -> int | str | list[str]:
    if name.startswith(_BRANCH):
        return [name.removeprefix(_BRANCH)]
    return _USUAL_PLACES.get(name, name)


def _name(packed: Any) -> str:
    if isinstance(packed, list):
        return _BRANCH + cast("list[str]", packed)[0]
    return _USUAL[packed] if isinstance(packed, int) else packed


def _packed_time(text: Any) -> Any:
    try:
        time = datetime.fromisoformat(text)
        number = (time - _EPOCH) // _US
    except (TypeError, ValueError):
        return text
    # Another zone, or another way to write the time, would not come back as it was.
    return number if _time(number) == text else text


def _time(packed: Any) -> Any:
    return (_EPOCH + packed * _US).isoformat() if isinstance(packed, int) else packed
