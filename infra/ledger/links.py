"""Links: what lets anybody read one chat, and can be revoked."""

import secrets
from typing import Final
from urllib.parse import quote

from chatledger.domain.chat.events import LinkCreated
from chatledger.domain.chat.links import decide_create_link, decide_revoke_link, link_digest, opened_by
from chatledger.domain.chat.state import LinkRecord
from chatledger.domain.limits import check_id
from chatledger.domain.moments import Moment
from chatledger.domain.values import Link
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS

from ..clock import clock_ms
from .expiry import Ending
from .port import LedgerPart

SHARED: Final = "/shared/"
"""The beginning of the paths of links."""


class LinkMethods(LedgerPart):
    """The part of a ledger that is about links, by which anybody reads a chat."""

    def create_link(
        self,
        chat_id: str,
        *,
        branch: str | None = None,
        until: str | None = None,
        expires_at: Moment | None = None,
        ttl_seconds: float | None = None,
    ) -> Link:
        """
        Make a link by which anybody reads a chat, without signing in: its messages and their files, and nothing else.

        Only the owner may, or a ledger that is not limited to a user. A chat has at most 20 links that hold. Repeating the call makes
        another link.

        Args:
            chat_id: The chat.
            branch: The one branch that is shown, also what is said on it later; without it and `until` all of them are.
            until: A message: what is shown is the chain that ends with it, whatever is said later.
            expires_at: When the link is over, in ms since the epoch, a `datetime`, or a text in ISO 8601; it holds until it is revoked when None.
            ttl_seconds: The same, as seconds from now on.

        Returns:
            The link, with its `path`, which nobody is told again: the ledger keeps a hash of the secret in it.

        Raises:
            ChatNotFoundError, BranchNotFoundError, MessageNotFoundError: There is no such thing.
            AccessDeniedError: The ledger is limited to a user who does not own the chat.
            InvalidValueError: The link would be over already, `branch` and `until` are given, or there are too many.
        """
        check_id(chat_id, "chat_id")
        secret, link_id, ending = secrets.token_urlsafe(32), secrets.token_hex(8), Ending(expires_at, ttl_seconds)
        created = self._store.execute(
            CHATS,
            chat_id,
            lambda state, now: decide_create_link(
                state,
                LinkCreated(link_id, link_digest(secret), None, until, ending.of_new(now)),
                branch=branch,
                now=now,
            ),
        )[0]
        assert isinstance(created.body, LinkCreated), created
        return Link(
            id=link_id,
            chat_id=chat_id,
            branch=branch,
            until=until,
            created_at=created.occurred_at,
            expires_at=created.body.expires_at,
            path=f"{SHARED}{quote(chat_id, safe='')}/{secret}",
        )

    def revoke_link(self, chat_id: str, link_id: str) -> bool:
        """
        Revoke a link: from then on it opens nothing, for anybody.

        Returns:
            Whether this call revoked it: False where the chat has no such link, or there is no such chat.

        Raises:
            AccessDeniedError: The ledger is limited to a user who does not own the chat.
        """
        check_id(chat_id, "chat_id")
        check_id(link_id, "link_id")
        return bool(self._store.execute(CHATS, chat_id, lambda state, _now: decide_revoke_link(state, link_id)))

    def links(self, chat_id: str) -> list[Link]:
        """
        The links of a chat that open it now, the first made first; none when there is no such chat. They have no `path`.

        Source: the LMDB index at `position`.
        """
        now = clock_ms()
        return self._of_chat(
            chat_id,
            lambda chat: [
                _described(chat, link)
                for link in (() if chat.profile is None else chat.profile.links)
                if not link.is_over(now)
            ],
        )

    def get_link(self, chat_id: str, secret: str) -> Link | None:
        """
        Return the link that the last part of its `path` opens: for an application that shows what is shared itself.

        None where none does, whether it was revoked, is over, or never was, or its branch or its chat is gone.

        Source: the LMDB index at `position`.
        """

        def read(chat: IndexedChat) -> Link | None:
            link = opened_by(chat.profile, secret, clock_ms())
            return None if link is None else _described(chat, link)

        return self._of_chat(chat_id, read)


def _described(chat: IndexedChat, link: LinkRecord) -> Link:
    branch = None if link.branch is None else chat.numbered_branch(link.branch)
    return Link(
        id=link.id,
        chat_id=chat.chat_id,
        branch=None if branch is None else branch.name,
        until=link.until,
        created_at=link.created_at,
        expires_at=link.expires_at,
    )
