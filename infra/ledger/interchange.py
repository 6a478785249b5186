"""Whole conversations in and out."""

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from chatledger.domain.decide.imports import decide_import, import_result, rest_of
from chatledger.domain.errors import ChatNotFoundError
from chatledger.domain.events import Body
from chatledger.domain.imported import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
    ImportResult,
    renamed,
)
from chatledger.domain.rules import check_id
from chatledger.domain.runs.values import RegenerationRecord
from chatledger.domain.values import Branch, Checkpoint, Message
from chatledger.projections.indexed_chat import IndexedChat

from ..deciding import MAX_COMMIT_EVENTS, Decide
from ..importers.check import validate_chat
from ..messages import new_id
from ..store import Store

_COMMIT_EVENTS: Final = MAX_COMMIT_EVENTS // 2
T = TypeVar("T", ImportedMessage, ImportedBranch, ImportedCheckpoint, ImportedRegeneration)


class InterchangeMethods:
    """The part of a ledger that imports and exports conversations."""

    @property
    def _store(self) -> Store:
        raise NotImplementedError

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
            recorded = self._store.execute(chat.id, _deciding(rest, ids, before), kind=None)
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
        check_id(chat_id, "chat_id")
        with self._store.snapshot() as snapshot:
            state = snapshot.chat(chat_id)
            chat = state.chat
            if chat is None:
                raise ChatNotFoundError(chat_id)
            said = state.annotations()
            messages = [
                (at, msgspec.structs.replace(message, annotation=said.get(message.id)))
                for at, message in state.chains.all_messages()
            ]
            branches, checkpoints = state.branches(), state.checkpoints()
            runs = state.runs()
            regenerations = [] if state.run_rows is None else state.run_rows.regenerations()
        messages.sort(key=lambda item: item[0])
        return ImportedChat(
            id=chat.id,
            user_id=chat.user_id,
            title=chat.title,
            metadata=chat.metadata,
            created_at=chat.created_at,
            updated_at=chat.updated_at,
            expires_at=chat.expires_at,
            messages=tuple(_exported(ImportedMessage, message) for _, message in messages),
            branches=tuple(_exported(ImportedBranch, branch) for branch in branches),
            checkpoints=tuple(_exported(ImportedCheckpoint, checkpoint) for checkpoint in checkpoints),
            runs=tuple(msgspec.structs.replace(run, chat_id="") for run in runs),
            regenerations=tuple(_exported(ImportedRegeneration, one) for one in regenerations),
        )


def _exported(form: type[T], value: Message | Branch | Checkpoint | RegenerationRecord) -> T:
    """The same value in the form of exports, whose fields have the same names."""
    return form(**{field.name: getattr(value, field.name) for field in msgspec.structs.fields(form)})


def _deciding(chat: ImportedChat, ids: Sequence[str], branches_before: int | None) -> Decide:
    def decide(state: IndexedChat, now: int) -> list[Body]:
        return decide_import(state, chat, ids=ids, now=now, limit=_COMMIT_EVENTS, branches_before=branches_before)

    return decide
