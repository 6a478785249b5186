"""Histories as frameworks count them: adding messages at the end of a chat, and those of a chain that count, in one decision each."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from chatledger.domain.chat.annotations import replacement
from chatledger.domain.chat.decide_chats import decide_upsert_chat
from chatledger.domain.chat.decide_messages import check_message, decide_append, find_branch
from chatledger.domain.chat.events import Body, BranchCreated, ChatCreated, MessagesAppended
from chatledger.domain.chat.fork import next_name
from chatledger.domain.chat.state import ChatState
from chatledger.domain.context.messages import object_at
from chatledger.domain.errors import ChatExistsError, OwnerMismatchError
from chatledger.domain.limits import same_json
from chatledger.domain.values import MAIN, UI, Branch, Message, NewMessage
from chatledger.projections.log.kinds import CHATS

from ...ledger.drafts import new_id
from ...ledger.ledger import Ledger
from ...ledger.port import store_of

T = TypeVar("T")


class Draft(NamedTuple):
    """A message to store, and whether its id tells it from all other messages of the framework."""

    message: NewMessage
    has_own_id: bool


class Adding(NamedTuple):
    """Messages to add at the end of the active branch of a chat, which is made for `owner` if there is none."""

    drafts: Sequence[Draft]
    owner: str
    branch_id: str

    def decided(self, state: ChatState, now: int) -> list[Body]:
        """
        Return the events to write. A message that stands on the branch already, by its own id and content, is left out.

        An id that another message has is not used again: models that give all their answers the same id lose nothing.

        Raises:
            OwnerMismatchError: The chat belongs to another user.
        """
        if state.record is None:
            created = decide_upsert_chat(state, user_id=self.owner, title=None, metadata=None, branch_id=self.branch_id)
            drafts = with_free_ids(state, [draft.message for draft in self.drafts], self.branch_id)
            return [*created, appended(drafts, MAIN, None, now)] if drafts else created
        head = find_branch(state, None).head_message_id
        new = [draft.message for draft in self.drafts if not _stands_on(state, draft, head)]
        if not new:
            return []
        free = with_free_ids(state, new, self.branch_id)
        return decide_append(state, free, branch=None, expected_head=UNSET, now=now)


def add(ledger: Ledger, chat_id: str, drafts: Sequence[Draft], *, owner: str | None) -> None:
    """
    Add messages at the end of the active branch of a chat: one commit. The chat is made if there is none.

    Raises:
        OwnerMismatchError: The chat belongs to another user.
    """
    adding = Adding(drafts, owner or "", new_id())
    try:
        store_of(ledger).execute(CHATS, chat_id, adding.decided, kind=(ChatCreated, MessagesAppended))
    except ChatExistsError:  # a store of one user does not show those of others
        raise OwnerMismatchError(chat_id) from None


def appended(drafts: Sequence[NewMessage], branch: str, base: str | None, now: int) -> MessagesAppended:
    """The messages, new to the chat, one after the other from a message of it on."""
    chained: list[Message] = []
    head = base
    for draft in drafts:
        message = msgspec.structs.replace(check_message(draft, now), parent_id=head)
        chained.append(message)
        head = message.id
    return MessagesAppended(tuple(chained), branch, base, head)


def branched(
    state: ChatState, target: Branch, base: str | None, drafts: Sequence[NewMessage], *, branch_id: str, now: int
) -> list[Body]:
    """A new active branch, named after another, which goes on from a message with others; an empty one from None."""
    name = next_name(
        target.name, named_after=state.branches_named_after, is_taken=lambda name: state.branch(name) is not None
    )
    created = BranchCreated(branch_id, name, base, now, is_active=True)
    return [created, appended(with_free_ids(state, drafts, branch_id), name, base, now)] if drafts else [created]


def with_free_ids(state: ChatState, drafts: Sequence[NewMessage], unique_id: str) -> list[NewMessage]:
    """The messages, with ids that end with `unique_id` where theirs are taken: the same ones, however often they are asked for."""
    found: list[NewMessage] = []
    taken: set[str] = set()
    for number, draft in enumerate(drafts):
        message_id = draft.id or f"{unique_id}-{number}"
        if message_id in taken or state.has_message(message_id) or state.is_elsewhere(message_id):
            message_id = f"{message_id}:{unique_id}-{number}"
        taken.add(message_id)
        data = {**draft.data, "id": message_id} if draft.form == UI else draft.data
        found.append(msgspec.structs.replace(draft, id=message_id, data=data))
    return found


def standing(state: ChatState, chain: Sequence[Message]) -> list[tuple[Message, Message]]:
    """
    Return the messages of a chain that count, each with the one that stands in its place: mostly itself.

    Those are the messages that `for_model` gives.
    """
    given: list[tuple[Message, Message]] = []
    placed: set[str] = set()
    for message in reversed(chain):
        if message.annotation is None:
            given.append((message, message))
            continue
        new = replacement(state, message.id)
        if new is not None and (new in placed or state.is_ancestor(new, chain[-1].id)):
            continue
        stands = message if new is None else state.message(new)
        if stands is not None and not stands.is_hidden:
            given.append((message, stands))
            placed.add(stands.id)
    return given[::-1]


def says_the_same(stored: Message, draft: NewMessage) -> bool:
    """Whether a stored message has the name and the data of another, whatever their ids."""
    return stored.name == draft.name and same_json(
        {**object_at(stored.data), "id": ""}, {**object_at(draft.data), "id": ""}
    )


def _stands_on(state: ChatState, draft: Draft, head: str | None) -> bool:
    message = draft.message
    if not draft.has_own_id or message.id is None or head is None:
        return False
    stored = state.message(message.id)
    return stored is not None and says_the_same(stored, message) and state.is_ancestor(stored.id, head)
