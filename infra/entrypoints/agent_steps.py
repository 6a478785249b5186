"""Steps of agents in words: whose they are, and how long they took."""

from collections.abc import Iterable

from chatledger.domain.errors import NamespaceError
from chatledger.domain.versioned.keys import assistant_of

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000


def duration(ms: int) -> str:
    """Return a length of time in words, such as `213 ms`, `3.10 s`, `38 min`, `2 h 04 min` or `5 days`."""
    if ms < _SECOND:
        return f"{ms} ms"
    if ms < _MINUTE:
        return f"{ms / _SECOND:.2f} s" if ms < 10 * _SECOND else f"{ms / _SECOND:.1f} s"
    if ms < _HOUR:
        return f"{ms // _MINUTE} min"
    if ms < _DAY:
        return f"{ms // _HOUR} h {ms % _HOUR // _MINUTE:02} min"
    return f"{ms // _DAY} day{'' if ms < 2 * _DAY else 's'}"


def assistants_of(namespaces: Iterable[str]) -> list[str]:
    """Return the assistants that namespaces belong to, in the order in which they came up."""
    return list(dict.fromkeys(filter(None, map(_assistant_of, namespaces))))


def _assistant_of(namespace: str) -> str | None:
    try:
        return assistant_of(namespace)
    except NamespaceError:
        return None
