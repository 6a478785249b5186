"""Questions about prepared values that several formats ask."""

from collections.abc import Iterable, Mapping, Sequence

from .prepared import Named, Value
from .scalars import scalar_text


def partition(items: Iterable[Value]) -> tuple[list[Value], list[Named]]:
    """The items that are no fragments, and the fragments, both in order."""
    plain: list[Value] = []
    fragments: list[Named] = []
    for item in items:
        if isinstance(item, Named):
            fragments.append(item)
        else:
            plain.append(item)
    return plain, fragments


def by_name(fragments: Iterable[Named]) -> Mapping[str, Sequence[Named]]:
    """The fragments of each name, in order of first appearance."""
    groups: dict[str, list[Named]] = {}
    for fragment in fragments:
        groups.setdefault(fragment.name, []).append(fragment)
    return groups


def joined_scalars(items: Sequence[Value]) -> str | None:
    """The scalars of a list inside a list, as one text joined by commas; None if it holds something else."""
    if any(isinstance(item, Named | list | dict) for item in items):
        return None
    return ",".join(scalar_text(item) for item in items if not isinstance(item, Named | list | dict))
