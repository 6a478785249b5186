"""Who may do what with whose state: decided from the ids alone, so nothing is told of what is there."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from chatledger.domain.errors import AccessDeniedError
from chatledger.domain.graph_state.ids import parse_state_id, shown_id

Kind = Literal["access", "modify", "delete"]


class Identity(msgspec.Struct, frozen=True):
    """On whose behalf a store is used. Without a user nothing is allowed."""

    user_id: str | None
    is_admin: bool = False

    def check(self, kind: Kind, state_id: str) -> None:
        """Raise `AccessDeniedError` unless the state is the user's, or the user is an admin."""
        self.check_known()
        if not self.is_admin and parse_state_id(state_id).user_id != self.user_id:
            msg = f"may not {kind} state {shown_id(state_id)!r}: it belongs to another user"
            raise AccessDeniedError(msg)

    def check_known(self) -> None:
        """Raise `AccessDeniedError` without a user."""
        if not self.user_id:
            msg = "may not access, modify or delete states without an identity; give the id of the user to for_identity"
            raise AccessDeniedError(msg)

    def narrowed(self, given: "Identity") -> "Identity":
        """What a view of a view is limited to: never more than the first one."""
        return given if self.is_admin or given == self else Identity(None)


def check_user(state_id: str, state: Mapping[str, Any]) -> None:
    """Raise `AccessDeniedError` when a state says that it is of another user than its id."""
    user_id = state.get("user_id")
    if user_id is not None and user_id != parse_state_id(state_id).user_id:
        msg = f"may not modify state {shown_id(state_id)!r}: its user_id is not that of its owner, who never changes"
        raise AccessDeniedError(msg)
