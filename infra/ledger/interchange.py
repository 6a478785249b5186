"""Whole conversations in and out."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Final, TypeVar

import msgspec

from chatledger.domain.chat.decide_import import decide_import, import_result, rest_of
from chatledger.domain.chat.events import Body
from chatledger.domain.chat.import_check import validate_chat
from chatledger.domain.chat.interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
    ImportResult,
    renamed,
)
from chatledger.domain.chat.runs import RegenerationRecord
from chatledger.domain.errors import ChatNotFoundError
from chatledger.domain.limits import check_id, sought_id
from chatledger.domain.values import Branch, Checkpoint, Graph, Message, make_graph
from chatledger.projections.chat.pages import only_new_collected
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS

from ..store.commands import MAX_COMMIT_EVENTS, Decide
from .drafts import new_id
from .port import ChatsToRead, LedgerPart

_COMMIT_EVENTS: Final = MAX_COMMIT_EVENTS // 2
T = TypeVar("T", ImportedMessage, ImportedBranch, ImportedCheckpoint, ImportedRegeneration)


class InterchangeMethods(LedgerPart):
    """The part of a ledger that is about whole conversations."""

    def import_chat(self, chat: ImportedChat, *, chat_id: str | None = None) -> ImportResult:
        """
        Take a whole conversation in: what the ledger has of it stays, what it lacks is added. Repeating changes nothing.

        A chat of more than 1,000 events (one for each further branch, checkpoint and run) takes several commits.

        Args:
            chat: As `chatledger.importers.read_chats` yields it, or `export_chat` returns it.
            chat_id: Import it under this id, with new ids for its messages: a copy, which may stand beside the original.
                Repeating makes nothing new only without it.

        Raises:
            ChainIntegrityError: The parents form a cycle or are missing. Nothing was written.
            MessageConflictError: A message id is stored with other content, or in another chat. Nothing was written.
            InvalidValueError: A value breaks a rule. Nothing was written.
        """
        validate_chat(chat)
        if chat_id is not None:
            chat = renamed(chat, check_id(chat_id, "chat_id"), {message.id: new_id() for message in chat.messages})
        written: list[Body] = []
        rest = chat
        while True:
            count = _COMMIT_EVENTS if written else len(chat.branches) + len(chat.checkpoints) + len(chat.runs)
            ids = [new_id() for _ in range(1 + count)]
            before = len(chat.branches) - len(rest.branches) if written else None
            recorded = self._store.execute(CHATS, chat.id, _deciding(rest, ids, before), kind=None)
            bodies = [event.body for event in recorded]
            written += bodies
            if len(bodies) < _COMMIT_EVENTS:
                return import_result(chat.id, written)
            rest = rest_of(rest, bodies)

    def export_chat(self, chat_id: str) -> ImportedChat:
        """
        The whole conversation, to be written with `chatledger.importers.write_chats` and imported elsewhere.

        Raises:
            ChatNotFoundError: There is no such chat.

        Source: the LMDB index at `position`.
        """
        sought = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(sought)) as snapshot:
            chat = snapshot.chat(sought)
            if chat.record is None:
                raise ChatNotFoundError(chat_id)
            return exported_chat(chat)

    def graph(self, chat_id: str) -> Graph:
        """
        The whole DAG of a chat: all messages by `created_at` (ties in log order), branches and checkpoints, oldest first.

        An unknown chat has none of them. Source: the LMDB index at `position`.
        """
        sought = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(sought)) as snapshot:
            chat = snapshot.chat(sought)
            if chat.record is None:
                return Graph(chat_id=chat_id, nodes=[], branches=[], checkpoints=[])
            branches = chat.branches()
            checkpoints = sorted(chat.checkpoints(), key=lambda checkpoint: (checkpoint.created_at, checkpoint.name))
            with only_new_collected(chat.record.message_count):
                messages = sorted(chat.chains.all_messages(), key=itemgetter(0))
        return make_graph(chat_id, (message for _, message in messages), branches, checkpoints)


def exported_chat(state: IndexedChat) -> ImportedChat:
    """Return a whole conversation as an index has it. Raises `ChatNotFoundError` when it has none."""
    chat = state.chat
    if chat is None:
        raise ChatNotFoundError(state.chat_id)
    said = state.annotations()
    messages = [
        (at, msgspec.structs.replace(message, annotation=said.get(message.id)))
        for at, message in state.chains.all_messages()
    ]
    messages.sort(key=lambda item: item[0])
    regenerations = [] if state.run_rows is None else state.run_rows.regenerations()
    return ImportedChat(
        id=chat.id,
        user_id=chat.user_id,
        title=chat.title,
        metadata=chat.metadata,
        created_at=chat.created_at,
        updated_at=chat.updated_at,
        expires_at=chat.expires_at,
        messages=tuple(_exported(ImportedMessage, message) for _, message in messages),
        branches=tuple(_exported(ImportedBranch, branch) for branch in state.branches()),
        checkpoints=tuple(_exported(ImportedCheckpoint, checkpoint) for checkpoint in state.checkpoints()),
        runs=tuple(msgspec.structs.replace(run, chat_id="") for run in state.runs()),
        regenerations=tuple(_exported(ImportedRegeneration, one) for one in regenerations),
    )


def _exported(form: type[T], value: Message | Branch | Checkpoint | RegenerationRecord) -> T:
    """The same value in the form of exports, whose fields have the same names."""
    return form(**{field.name: getattr(value, field.name) for field in msgspec.structs.fields(form)})


def _deciding(chat: ImportedChat, ids: Sequence[str], branches_before: int | None) -> Decide:
    def decide(state: IndexedChat, now: int) -> list[Body]:
        return decide_import(state, chat, ids=ids, now=now, limit=_COMMIT_EVENTS, branches_before=branches_before)

    return decide
