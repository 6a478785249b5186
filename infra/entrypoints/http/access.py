"""Access: callers, and what they may do."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec

from chatledger.domain.values import MemberRole

if TYPE_CHECKING:
    from ...ledger.aio.async_ledger import AsyncLedger
    from ...ledger.ledger import Ledger

L = TypeVar("L", "Ledger", "AsyncLedger")
Scope = Literal["read", "write", "admin"]
"""A permission that routes need; `write` includes `read`, and `admin` both."""

PRINCIPAL: Final = "chatledger.principal"
"""The entry of a request's ASGI scope that holds the caller."""

_INCLUDED: Final[Mapping[Scope, frozenset[Scope]]] = {
    "read": frozenset({"read", "write", "admin"}),
    "write": frozenset({"write", "admin"}),
    "admin": frozenset({"admin"}),
}


class Principal(msgspec.Struct, frozen=True):
    """
    The caller of a request.

    Args:
        user_id: The user whose own chats, and those that this user is a member of, exist for the caller; None for everybody's,
            which only trusted code gets.
        scopes: The permissions of the caller.
        name: The name of the caller in logs, such as that of a key.
        grants: Chats with the roles that the application gives the user in them, besides what the chats say; see `Authorize`.
    """

    user_id: str | None = None
    scopes: frozenset[Scope] = frozenset({"read", "write", "admin"})
    name: str = ""
    grants: tuple[tuple[str, MemberRole], ...] = ()

    @property
    def owner(self) -> str:
        """The owner of what this caller makes, unless another one is named."""
        return LOCAL_USER if self.user_id is None else self.user_id

    @property
    def actor(self) -> str | None:
        """The name of the caller on the log."""
        return self.user_id or self.name or None

    @property
    def view(self) -> tuple[str | None, tuple[tuple[str, MemberRole], ...]]:
        """The same for callers who see the same chats."""
        return self.user_id, self.grants

    def limited(self, ledger: L) -> L:
        """Return a whole ledger, limited to what this caller may read."""
        return ledger if self.user_id is None else ledger.for_user(self.user_id, grants=dict(self.grants))

    def may(self, scope: Scope) -> bool:
        return not self.scopes.isdisjoint(_INCLUDED[scope])


Authenticate = Callable[[Mapping[str, str]], Awaitable[Principal | None] | Principal | None]
"""Returns the caller from the headers of a request, whose names are in lower case; None for a stranger, who gets a 401."""


Authorize = Callable[[Principal, str], Awaitable[MemberRole | None] | MemberRole | None]
"""
Returns the role, `"reader"` or `"writer"`, of a caller in the chat or thread of an id; None where it gives none.

For applications that keep elsewhere who belongs to a chat. It is asked at each request that names a chat in its path or query,
and adds to what the chat itself says of its owner and members; it takes nothing away. A stream that is open goes on.
"""


def credential_of(headers: Mapping[str, str]) -> str | None:
    """Return the key or token that the headers carry, as `X-Api-Key` or `Authorization: Bearer`."""
    key = headers.get("x-api-key")
    if key:
        return key.strip()
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if kind.lower() == "bearer" else None


def any_of(*ways: Authenticate) -> Authenticate:
    """Return a way to authenticate that tries several: the first one that knows the caller counts."""

    async def authenticate(headers: Mapping[str, str]) -> Principal | None:
        for way in ways:
            answer = way(headers)
            principal = await answer if isawaitable(answer) else answer
            if principal is not None:
                return principal
        return None

    return authenticate


LOCAL_USER: Final = "local"
"""The owner of what a caller makes that acts for everybody and names no owner."""

EVERYBODY: Final = Principal(name="anonymous")
"""The caller where nobody has to authenticate."""
