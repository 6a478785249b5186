"""
Legal holds: what they refuse, and the events that put them on streams.

A hold is an item of the ledger's own, whose versions say when it was put and released, and a mark in each stream that it covers. The mark
is what decides: it is an event of the stream, so a deletion that was decided before it loses the race and is decided again. What
begins under a hold is marked by its first commit, and the item is asked once more where something would be destroyed, as whoever
began it may not have known the hold yet.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, get_args

from .chat.events import Body, ChatCreated, ChatUpdated, ContentRedacted, Recorded, StreamDeleted
from .chat.state import ChatProfile, StreamRecord
from .errors import InvalidValueError
from .legal_hold import HoldKind, LegalHold
from .limits import MAX_ID_BYTES, check_choice, check_id
from .log.tombstones import is_owner_of_deleted
from .versioned.decide import decide_delete
from .versioned.events import SOURCE_DELETED, VersionPut, VersionsExpirySet, VersionsRemoved
from .versioned.keys import ITEM, STATE, item_id, parse_item_id, thread_stream
from .versioned.numbered import LINE, has_value
from .versioned.record import VersionedRecord, VersionedState

HOLD_KINDS: Final[tuple[HoldKind, ...]] = get_args(HoldKind)
LEDGER_OWNER: Final = "chatledger:ledger"
"""The owner of the ledger's own items, as which no user can act."""
HOLDS: Final = "holds"
"""The first label of the items that are holds; the second is the kind."""
SETTING: Final = "setting"
"""The node of the version of a hold that is not in force yet: marks are being set."""


def hold_key(kind: HoldKind, some_id: str) -> str:
    """
    Return the id of the item that is the hold on something.

    Raises:
        InvalidValueError: There is no such kind, or the id breaks a rule or is too long for this.
    """
    check_choice(kind, HOLD_KINDS, "the kind of a hold")
    check_id(some_id, f"{kind}_id")
    try:
        return item_id(LEDGER_OWNER, (HOLDS, kind), some_id)
    except InvalidValueError as error:
        msg = f"an id of {len(some_id.encode()):,} bytes is too long for a hold; with : and % counted as 3, it may take {MAX_ID_BYTES - 40:,}"
        raise InvalidValueError(msg) from error


def decide_forget_hold(state: VersionedState, _now: int) -> list[Body]:
    """The tombstone of a hold that was released, which takes along who put it on what, and why. Nothing while it is in force."""
    return [] if is_in_force(state) else decide_delete(state)


def is_in_force(state: VersionedState) -> bool:
    """Whether an item of the ledger's own, a hold or a retention rule, was put and not ended since."""
    record = state.record
    return record is not None and record.newest is not None and has_value(state.version(LINE, record.newest))


def is_destroying(body: Body) -> bool:
    """Whether an event takes content away, which a hold refuses."""
    if isinstance(body, VersionsRemoved):
        return body.reason != SOURCE_DELETED  # of a copy: what it has was written anew before
    return isinstance(body, StreamDeleted | ContentRedacted)


def mark(record: StreamRecord | None, profile: ChatProfile | None, holds: Sequence[LegalHold]) -> list[Body]:
    """The event after which these are the holds on a value, or on the chat of this profile; none where they are, or nothing is there."""
    if isinstance(record, VersionedRecord):
        return [] if {*record.holds} == {*holds} else [VersionsExpirySet(record.expires_at, **_fields(holds))]
    return [] if profile is None or {*profile.holds} == {*holds} else [ChatUpdated(_fields(holds))]


def begun_under(bodies: Sequence[Body], holds: Sequence[LegalHold]) -> list[Body]:
    """Return the first events of a stream with the mark that it begins under these holds."""
    if any(isinstance(body, ChatCreated) for body in bodies):
        return [*bodies, ChatUpdated(_fields(holds))]
    ends = [body.expires_at for body in bodies if isinstance(body, VersionPut)]
    return [*bodies, VersionsExpirySet(ends[-1] if ends else None, **_fields(holds))]


def _fields(holds: Sequence[LegalHold]) -> dict[str, Any]:
    notes = {hold.kind: (hold.id, hold.held_by, hold.reason) for hold in holds}
    return {"holds": {hold.kind: hold.held_at for hold in holds}, "hold_notes": notes or None}


class HoldWatch:
    """
    Finds what broke a hold, event by event in the order of the log. Takes memory for each hold in force and each stream that it marked.

    Attributes:
        broken: The positions of events that destroyed what was held.
    """

    def __init__(self) -> None:
        self.broken: list[int] = []
        self._at = 0
        self._targets: dict[str, tuple[str, str]] = {}
        """The kinds and ids of what the holds are on, by their streams."""
        self._in_force: dict[str, tuple[str, str]] = {}
        """The same, of those in force, by the stream that they are on; by that of the hold where it is on a user."""
        self._marked: set[str] = set()

    def take(self, recorded: Recorded) -> None:
        """Take the next event. An event that was taken before changes nothing."""
        if recorded.position <= self._at:
            return
        self._at = recorded.position
        body, stream = recorded.body, recorded.event.originator_id
        if is_destroying(body) and self._is_held(stream, body):
            self.broken.append(recorded.position)
        if isinstance(body, StreamDeleted):
            self._marked.discard(stream)
            return
        if isinstance(body, VersionPut) and stream.startswith(ITEM.prefix):
            self._take_hold(stream, body)
        holds = body.changes.get("holds") if isinstance(body, ChatUpdated) else getattr(body, "holds", None)
        if holds:
            self._marked.add(stream)
        elif holds is not None:
            self._marked.discard(stream)

    def _is_held(self, stream: str, body: Body) -> bool:
        if stream in self._marked or stream in self._in_force:
            return True
        users = [some_id for kind, some_id in self._in_force.values() if kind == "user"]
        return isinstance(body, StreamDeleted) and any(is_owner_of_deleted(body, stream, user) for user in users)

    def _take_hold(self, stream: str, body: VersionPut) -> None:
        if body.begins is not None:
            item = parse_item_id(body.begins.key)
            if item is not None and item.user_id == LEDGER_OWNER and item.namespace[0] == HOLDS:
                self._targets[stream] = item.namespace[1], item.key
        target = self._targets.get(stream)
        if target is None or body.node == SETTING:
            return
        kind, some_id = target
        streams: dict[str, Callable[[str], str]] = {
            "chat": str,
            "thread": thread_stream,
            "state": STATE.stream_of,
            "item": ITEM.stream_of,
        }
        held = streams[kind](some_id) if kind in streams else stream
        if body.fields:
            self._in_force[held] = target
        else:
            self._in_force.pop(held, None)
