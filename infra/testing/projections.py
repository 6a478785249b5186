"""The contract of a custom projection."""

import tempfile
from collections.abc import Callable
from typing import Any, Final

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import ProjectionError
from chatledger.projections.custom.projection import Projection
from chatledger.projections.custom.rows import Key, ProjectionRows

from ..ledger.ledger import Ledger
from ..ledger.open import open as open_ledger
from . import expect
from .story import tell_story

Rows = dict[tuple[str | None, Key], Any]
"""The rows of a projection by chat, None for those under no chat, and key."""
_SHOWN: Final = 5
_NO_ROW: Final = "no such row"


def check_projection(
    make_projection: Callable[[], Projection], *, story: Callable[[Ledger], object] = tell_story
) -> None:
    """
    Check that a projection gives the same rows however it is built, before and after chats are deleted.

    It follows a ledger while a story is written to it; then other objects of it build their rows from the log: each event once,
    and each event twice as after a crash. At last all chats are deleted, and nothing of them may stay. Takes about a second.

    Args:
        make_projection: Makes a new object, each time the same projection.
        story: Writes to an empty ledger, in place of `tell_story`, what the projection is about.

    Raises:
        AssertionError: The rows differ, or `apply` failed; says how.
        ConfigurationError: It is no projection, or has no proper name or version.
    """
    with tempfile.TemporaryDirectory(prefix="chatledger-check-") as folder:
        location = f"sqlite:///{folder}/log.db"
        with open_ledger(location, index=f"{folder}/followed", projections=[make_projection()]) as ledger:
            story(ledger)
            _compare(_rows(ledger), make_projection, location, f"{folder}/built")
            for chat in ledger.list_chats():
                ledger.delete_chat(chat.id)
            _compare(_rows(ledger), make_projection, location, f"{folder}/left", "after all chats were deleted, ")


def _compare(followed: Rows, make: Callable[[], Projection], location: str, index: str, when: str = "") -> None:
    built = _built(make(), location, f"{index}-once")
    _expect_same(followed, built, f"{when}a build from the log must give the rows that came while it was written")
    # As after a crash in the middle of a transaction.
    repeated = _built(_Repeated(make()), location, f"{index}-twice")
    _expect_same(followed, repeated, f"{when}applying an event again, of which nothing was kept, must change nothing")


def _expect_same(expected: Rows, actual: Rows, rule: str) -> None:
    differing = [row for row in {**expected, **actual} if expected.get(row, _NO_ROW) != actual.get(row, _NO_ROW)]
    some = differing[:_SHOWN]
    expect({row: expected.get(row, _NO_ROW) for row in some}, {row: actual.get(row, _NO_ROW) for row in some}, rule)


def _built(projection: Projection, location: str, index: str) -> Rows:
    with open_ledger(location, index=index, projections=[projection]) as ledger:
        return _rows(ledger)


def _rows(ledger: Ledger) -> Rows:
    (name,) = (info.name for info in ledger.projections() if info.is_attached)
    chat_ids = dict.fromkeys(recorded.chat_id for recorded in ledger.history())
    try:
        with ledger.projection(name) as view:
            rows: Rows = {(None, key): value for key, value in view.range()}
            for chat_id in chat_ids:
                rows.update({(chat_id, key): value for key, value in view.of(chat_id).range()})
    except ProjectionError as error:
        event = next((recorded for recorded in ledger.history() if recorded.position == error.position), None)
        msg = f"apply takes every event: {error}" + (f" It is a {event.type}" if event is not None else "")
        raise AssertionError(msg) from error
    return rows


class _Repeated(Projection):
    """Applies each event twice; what it did the first time is undone."""

    def __init__(self, inner: Projection) -> None:
        self._inner = inner
        self.name, self.version = inner.name, inner.version

    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        self._inner.apply(rows, recorded)
        rows._reach.undo()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as after a failure; not for users
        self._inner.apply(rows, recorded)
