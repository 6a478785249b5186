"""Whether two servers differ as `known.toml` says, and in nothing else."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from .canonical import Json, differences

KNOWN: Final = Path(__file__).with_name("known.toml")
EVERY: Final = "*"
"""In the place of the names of calls: any call may differ so."""


class Entry(NamedTuple):
    """A known difference: in each of these calls there are lines of `differences` that fit one of the patterns."""

    reason: str
    calls: Sequence[str]
    patterns: Sequence[str]

    def is_about(self, call: str) -> bool:
        """Whether a call may differ so."""
        return call in self.calls or EVERY in self.calls

    def areas(self, every: Iterable[str]) -> set[str]:
        """Return the areas that it is about, of these."""
        return set(every) if EVERY in self.calls else {call.partition(":")[0] for call in self.calls}

    def explains(self, line: str) -> bool:
        """Whether a line fits a pattern."""
        return any(fits(pattern, line) for pattern in self.patterns)


def fits(pattern: str, line: str) -> bool:
    """Whether a line is as the pattern says, in which `*` stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), line) is not None


def listed() -> list[Entry]:
    """Read the known differences."""
    entries = tomllib.loads(KNOWN.read_text(encoding="utf-8"))["differs"]
    return [Entry(entry["reason"], entry["calls"], entry["lines"]) for entry in entries]


def compare(theirs: Mapping[str, Json], ours: Mapping[str, Json]) -> dict[str, list[str]]:
    """Return the differences of each call; a call that only one of them made has one line."""
    names = [*theirs, *(name for name in ours if name not in theirs)]
    return {
        name: list(differences(theirs[name], ours[name]))
        if name in theirs and name in ours
        else [f"called: {name in theirs} | {name in ours}".lower()]
        for name in names
    }


def unlisted(compared: Mapping[str, Sequence[str]], entries: Iterable[Entry]) -> dict[str, list[str]]:
    """Return the differences that no entry explains, by call."""
    left: dict[str, list[str]] = {}
    for call, lines in compared.items():
        about = [entry for entry in entries if entry.is_about(call)]
        for line in lines:
            if not any(entry.explains(line) for entry in about):
                left.setdefault(call, []).append(line)
    return left


def stale(entry: Entry, compared: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield what an entry says that is not so."""
    calls = compared if EVERY in entry.calls else {call: compared.get(call) for call in entry.calls}
    for call, lines in calls.items():
        if lines is None:
            yield f"there is no call {call!r}"
        elif EVERY not in entry.calls and not any(map(entry.explains, lines)):
            yield f"{call!r} does not differ so: {entry.reason}"
    for pattern in entry.patterns:
        if not any(fits(pattern, line) for lines in calls.values() for line in lines or ()):
            yield f"nothing fits {pattern!r}: {entry.reason}"
