"""Links of a chat, by which anybody reads it: decisions on them, and which one a secret opens."""

import hmac
from hashlib import sha256

from ..errors import BranchNotFoundError, InvalidValueError, MessageNotFoundError
from ..limits import MAX_LINKS, check_id
from .decide_chats import require_chat
from .events import Body, LinkCreated, LinkRevoked
from .state import ChatProfile, ChatState, LinkRecord


def link_digest(secret: str) -> str:
    """The hash of the secret of a link, which is what the log has of it."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def opened_by(profile: ChatProfile | None, secret: str, now: int) -> LinkRecord | None:
    """The link of a chat that a secret opens; None where none does, as it was revoked, is over, or never was."""
    digest = link_digest(secret)
    links = () if profile is None else profile.links
    return next((link for link in links if hmac.compare_digest(link.digest, digest) and not link.is_over(now)), None)


def decide_create_link(state: ChatState, link: LinkCreated, *, branch: str | None = None, now: int) -> list[Body]:
    """
    A link, to the branch of a name where there is one; nothing when the chat has it.

    Raises:
        ChatNotFoundError, BranchNotFoundError, MessageNotFoundError: There is no such thing.
        InvalidValueError: It would be over, shows a branch and until a message, or there are too many.
    """
    require_chat(state)
    profile = state.profile
    assert profile is not None, "a chat with a record has a profile"
    if any(other.id == link.link_id for other in profile.links):
        return []
    if branch is not None and link.until is not None:
        msg = "give either branch or until, not both: a link follows a branch, or ends with a message"
        raise InvalidValueError(msg)
    number = None
    if branch is not None:
        stored = state.branch_record(check_id(branch, "branch"))
        if stored is None:
            raise BranchNotFoundError(state.chat_id, branch)
        number = stored.number
    if link.until is not None and not state.has_message(check_id(link.until, "until")):
        raise MessageNotFoundError(link.until, chat_id=state.chat_id)
    if link.expires_at is not None and link.expires_at <= now:
        msg = "expires_at is over: this link would open nothing"
        raise InvalidValueError(msg)
    if sum(not other.is_over(now) for other in profile.links) >= MAX_LINKS:
        msg = f"chat {state.chat_id!r} has {MAX_LINKS} links; revoke one first"
        raise InvalidValueError(msg)
    return [LinkCreated(link.link_id, link.digest, number, link.until, link.expires_at)]


def decide_revoke_link(state: ChatState, link_id: str) -> list[Body]:
    """A link revoked; nothing when there is no such one, or no such chat."""
    links = () if state.profile is None else state.profile.links
    return [LinkRevoked(link.id) for link in links if link.id == link_id]
