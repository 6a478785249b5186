"""
A legal hold as answers and errors show it.

It stands apart from `holds.py`, which has the rules: those are about events, and errors, which name a hold, come before events.
"""

from typing import Literal

from .wire import Value

HoldKind = Literal["chat", "thread", "state", "item", "user"]
"""The kinds of what a legal hold is put on; on a user it covers all that is theirs."""


class LegalHold(Value, frozen=True, kw_only=True):
    """
    A legal hold: what it covers is not deleted, erased or redacted, and does not expire, until it is released.

    Args:
        kind: The kind of what it was put on.
        id: The id of that: of a state held with its chat the chat's, of a chat held with its owner the user's.
        held_at: The time, in ms since the epoch.
        held_by: The actor who put it; None where nobody was named.
        reason: Why, for whoever may read what it covers.
    """

    kind: HoldKind
    id: str
    held_at: int
    held_by: str | None = None
    reason: str | None = None
