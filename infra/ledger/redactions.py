"""Redaction: the content of messages is taken out of the log, and of all that is derived from it."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from chatledger.domain.chat.decide_redact import decide_redact
from chatledger.domain.chat.decide_words import WORDY, decide_redact_words
from chatledger.domain.chat.events import Body, ContentRedacted, Recorded
from chatledger.domain.errors import AccessDeniedError, HeldError, InvalidValueError, MessageNotFoundError
from chatledger.domain.forms.items import REDACTED
from chatledger.domain.holds import decide_forget_hold, hold_key
from chatledger.domain.legal_hold import HoldKind
from chatledger.domain.limits import check_flag, sought_id
from chatledger.domain.values import Message, Redaction, RedactionCause
from chatledger.domain.versioned.events import VersionsDeleted
from chatledger.domain.wire import Value
from chatledger.projections.chat.reader import IndexedChat, chat_at
from chatledger.projections.log.kinds import CHATS, ITEMS
from chatledger.projections.log.stream_trees import content_slots

from ..log.envelope import acting
from ..store.commands import ChatsToRead
from .port import LedgerPart, StorePort

Keep = str | Callable[[Message], Any] | None
"""Content in the place of a message's own: a text, or what a function makes of the message; None for nothing."""


class Redacted(Value, frozen=True, kw_only=True):
    """
    What a redaction did.

    Args:
        message_ids: The messages that lost their content by it, copies among them. None that had lost it already.
        copies: Those of them that are copies of others.
        may_quote: Runs of agents that these messages began or ended with: what the agents kept of them, as states and checkpoints of
            their threads, is not found by itself.
        held: Chats whose messages, copies mostly, have their content still, as a legal hold keeps it.
    """

    message_ids: list[str]
    copies: list[str]
    may_quote: list[str]
    held: list[str]


class RedactionMethods(LedgerPart):
    """The part of a ledger that takes the content of messages away."""

    def redact(
        self,
        message_ids: str | Sequence[str],
        *,
        keep: Keep = None,
        part: Sequence[str | int] | None = None,
        reason: str | None = None,
        cause: RedactionCause = "request",
        copies: bool = True,
        versions: bool = False,
    ) -> Redacted:
        """
        Erase the content of messages for ever; each stays in its place, with id, parent, time and role, and says that it is redacted.

        When this returns, no answer has the content any more, and events that say so are on the log. Its bytes are erased after that,
        from log, index and vectors: `wait_erased` waits for it, and `erasures` has a receipt. Chain, anchors and proofs verify as
        before. Neither what is kept nor the message is found by searches. What was redacted already is left as it is; a message of
        which something was kept can be redacted again, and loses what differs from `keep`.

        Args:
            message_ids: A message, or several, of any chats. Each chat gets its own event, and each message of which something is kept.
            keep: What takes the place of the content: a text; or a function that gets the message, and returns a text, or data in
                the form of the message, for the rest of a message of which only a part is to go. Where it returns the data as they
                are, the message is left alone. It may be called several times, and keeps nothing.
            part: The path of the part that is to go, as keys of objects and numbers in lists, such as `("parts", 0, "text")`: in its
                place stands the text of `keep`, or `[redacted]`, and the rest of the data is kept.
            reason: Why, in words that may stay.
            cause: Why, as one of a few words; structure, which stays for ever.
            copies: Whether the copies of the messages lose their content too, those in chats that were forked and those that a
                regeneration carried over.
            versions: Whether the other versions of the messages go too, as what was said before an edit: all answers to the same
                message, see `versions`.

        Raises:
            MessageNotFoundError: One is unknown; nothing was redacted.
            AccessDeniedError: Only the owner of a chat may do this.
            HeldError: A legal hold keeps a chat of one of them; nothing was redacted.
            InvalidValueError: A value breaks a rule.
            PayloadTooLargeError: What is kept does not fit into an event.
        """
        replacement = _keep_of(self._store, keep, part)
        ids = [message_ids] if isinstance(message_ids, str) else list(message_ids)
        if check_flag(versions, "versions"):
            # Of an unknown message it is the message itself, of which the redaction says that it is unknown.
            ids = [
                version
                for message_id in ids
                for version in self._of_message(
                    message_id, lambda chat, place: chat.versions(place).ids, absent=[message_id]
                )
            ]
        return redact_messages(self._store, ids, replacement, reason=reason, cause=cause, copies=copies)

    def redact_words(self, chat_id: str, *, reason: str | None = None) -> int:
        """
        Erase for ever what a chat was called and what was noted on it before: what others took the place of, or nothing.

        That are titles and metadata, also those that the chat began with, annotations, metadata of runs, names of branches and
        checkpoints, and by whom and why it was held. What stands now stays: change it first. So a card number in a title is gone
        after `update_chat(chat_id, title="Card")` and this, and a name in that of a branch after `rename_branch` or
        `delete_branch`. The history says at which events something was taken away; hashes and proofs verify as before. Earlier moments call
        branches that lost their name `redacted-<number>`, and do not show such checkpoints. Left is what was noted on several
        messages at once as long as it stands for one of them, and, on a thread or state that was held with the chat, who held it and why.

        Args:
            chat_id: The chat.
            reason: Why, in words that may stay.

        Returns:
            The number of events that lost words, or went with a hold that was released. Their bytes are erased after that; `wait_erased` waits for it.

        Raises:
            ChatNotFoundError: There is no such chat.
            AccessDeniedError: Only its owner may do this.
            HeldError: A legal hold keeps it.
            InvalidValueError: The reason is none, or a branch is called `redacted-<number>` as another one would be: rename it.

        Source: the log. Costs reading the events of the chat.
        """
        first = self._of_chat(chat_id, lambda chat: 0 if chat.record is None else chat.record.first_position)
        after = max(first - 1, 0)
        events = [event for event in self._store.events(after, stream_id=chat_id) if isinstance(event.body, WORDY)]
        written = self._store.execute(
            CHATS, chat_id, lambda state, _now: decide_redact_words(state, events, reason=reason)
        )
        if written:
            self._store.erase_deleted()
        words = sum(len(event.body.targets) for event in written if isinstance(event.body, ContentRedacted))
        # The hold itself is the ledger's, of which an owner sees the mark in the chat only.
        return words + (forget_hold(self._store, "chat", chat_id) if self._store.user_id is None else 0)


def forget_hold(store: StorePort, kind: HoldKind, held_id: str) -> int:
    """Delete what the log has of a hold that was released: who put it on what, and why; the number of its events, 0 where there is none."""
    try:
        key = hold_key(kind, held_id)
    except InvalidValueError:
        return 0  # too long an id for a hold
    with store.snapshot() as snapshot:
        if snapshot.stream(ITEMS, key).record is None:  # as of nearly everything
            return 0
    deleted = store.execute(ITEMS, key, decide_forget_hold)
    if deleted:
        store.erase_deleted()
    return sum(event.body.event_count for event in deleted if isinstance(event.body, VersionsDeleted))


def redact_messages(
    store: StorePort,
    ids: Sequence[str],
    keep: Callable[[Message], Any],
    *,
    reason: str | None,
    cause: RedactionCause,
    copies: bool,
) -> Redacted:
    """Redact messages in a store; see `RedactionMethods.redact`. `keep` returns what takes the place of the content of a message."""
    check_flag(copies, "copies")
    ids_by_chat = _by_chat(store, ids)

    def decided(of_chat: Sequence[str], state: IndexedChat, _now: int) -> list[Body]:
        return decide_redact(state, of_chat, keep, partial(content_slots, state), reason=reason, cause=cause)

    written: list[Recorded] = []
    held: list[str] = []
    reached = set(ids)
    while ids_by_chat:
        originals, ids_by_chat = ids_by_chat, {}
        for chat_id, of_chat in originals.items():
            decide = partial(decided, of_chat)
            # The events of copies name the first one as their cause.
            with acting(causation_id=written[0].event_id if written else None):
                try:
                    written += store.execute(CHATS, chat_id, decide, kind=ContentRedacted)
                except HeldError:
                    # The error says that nothing was written: past the first event what is held is named in the answer.
                    if not written:
                        raise
                    held.append(chat_id)
        for chat_id, of_chat in _copies(store, originals).items() if copies else ():
            if unreached := [message_id for message_id in of_chat if message_id not in reached]:
                reached.update(unreached)
                ids_by_chat[chat_id] = unreached
    bodies = [recorded.body for recorded in written if isinstance(recorded.body, ContentRedacted)]
    redacted = [message_id for body in bodies for message_id in body.message_ids]
    if written:
        store.erase_deleted()
    return Redacted(
        message_ids=redacted,
        copies=[message_id for message_id in redacted if message_id not in set(ids)],
        may_quote=_runs_with(store, redacted),
        held=held,
    )


def _by_chat(store: StorePort, message_ids: Sequence[str]) -> dict[str, list[str]]:
    """Return messages by their chats. Raises `MessageNotFoundError` when one is unknown, `HeldError` when one is held."""
    ids_by_chat: dict[str, list[str]] = {}
    with store.snapshot(ChatsToRead(message_ids=tuple(message_ids))) as snapshot:
        for message_id in dict.fromkeys(sought_id(message_id, "message_id") for message_id in message_ids):
            located = snapshot.find(message_id)
            if located is None:
                raise MessageNotFoundError(message_id)
            # Asked before anything is written: the error says that nothing was.
            if located[0].holds:
                raise HeldError(located[0].name, located[0].holds[0])
            ids_by_chat.setdefault(located[0].chat_id, []).append(message_id)
    return ids_by_chat


def copies_left(store: StorePort, message_ids: Sequence[str]) -> dict[str, str]:
    """Return the copies of messages, and the copies of these, that have their content still, each with its chat."""
    left: dict[str, str] = {}
    reached = set(message_ids)
    originals = {"": list(message_ids)} if message_ids else {}
    while originals:
        copies = _copies(store, originals)
        originals = {}
        for chat_id, ids in copies.items():
            with store.snapshot(ChatsToRead(chat_id)) as snapshot:
                messages = [snapshot.chat(chat_id).message(each) for each in ids if each not in reached]
            unredacted = [message.id for message in messages if message is not None and message.redacted is None]
            if unredacted:
                left |= dict.fromkeys(unredacted, chat_id)
                reached.update(unredacted)
                originals[chat_id] = unredacted
    return left


def redact_alike(store: StorePort, patterns: Mapping[str, tuple[Redaction, Any]]) -> list[str]:
    """
    Redact messages of one chat as others were: each for the same reason, and with the same in the place of its content.

    Raises `HeldError`. Returns those that were not redacted before.
    """
    by_reason: dict[tuple[str | None, RedactionCause], list[str]] = {}
    for message_id, (redaction, _) in patterns.items():
        by_reason.setdefault((redaction.reason, redaction.cause), []).append(message_id)
    redacted: list[str] = []
    for (reason, cause), ids in by_reason.items():
        redacted += redact_messages(
            store, ids, lambda message: patterns[message.id][1], reason=reason, cause=cause, copies=False
        ).message_ids
    return redacted


def redact_copies(store: StorePort, message_ids: Sequence[str]) -> list[str]:
    """Redact copies of messages that are redacted, as those are; those that cannot be stay. Returns the others."""
    patterns: dict[str, dict[str, tuple[Redaction, Any]]] = {}
    with store.snapshot() as snapshot:
        for message_id in dict.fromkeys(message_ids):
            located = snapshot.find(message_id)
            chat_id = None if located is None else located[0].chat_id
            message = None if located is None else located[0].message(message_id)
            # The copy of a copy is as what that was made of.
            while message is not None and message.redacted is None:
                located = None if message.copied_from is None else snapshot.find(message.copied_from)
                message = None if located is None else located[0].message(message.copied_from or "")
            if (
                chat_id is not None
                and message is not None
                and message.redacted is not None
                and message.id != message_id
            ):
                patterns.setdefault(chat_id, {})[message_id] = message.redacted, message.data
    redacted: list[str] = []
    for of_chat in patterns.values():
        with suppress(HeldError, AccessDeniedError):
            redacted += redact_alike(store, of_chat)
    return redacted


def _copies(store: StorePort, ids_by_chat: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the copies of messages, by their chats: those that this ledger shows."""
    copies: dict[str, list[str]] = {}
    with store.snapshot() as snapshot:
        for original_id in [message_id for of_chat in ids_by_chat.values() for message_id in of_chat]:
            for chat_no, place in snapshot.tables.copies_of(snapshot.txn, original_id):
                chat_id = chat_at(snapshot.txn, snapshot.tables, chat_no)
                assert chat_id is not None, "the copies of a deleted chat are forgotten"
                chat = snapshot.chat(chat_id, even_quarantined=True)
                if chat.chat_no == chat_no:
                    copies.setdefault(chat_id, []).append(chat.chains.id_at(place))
    return copies


def _runs_with(store: StorePort, message_ids: Sequence[str]) -> list[str]:
    """Return the runs that messages began or ended with."""
    run_ids: dict[str, None] = {}
    with store.snapshot() as snapshot:
        for message_id in message_ids:
            located = snapshot.find(message_id)
            if located is not None:
                chat = located[0]
                runs = [*chat.runs(trigger_message_id=message_id), *chat.runs(message_id=message_id)]
                run_ids |= dict.fromkeys(run.run_id for run in runs)
    return list(run_ids)


def _keep_of(store: StorePort, keep: Keep, part: Sequence[str | int] | None) -> Callable[[Message], Any]:
    """Return the function that says what is kept of a message. Raises `InvalidValueError`."""
    if not (keep is None or isinstance(keep, str) or (callable(keep) and part is None)):
        msg = f"keep must be a text, or, without `part`, a function that gets the message; not {type(keep).__name__}"
        raise InvalidValueError(msg)
    redactor = store.redactor

    def replacement(message: Message) -> Any:
        if part is not None:
            content = _without_part(part, REDACTED if keep is None else keep, message)
        else:
            content = keep(message) if callable(keep) else keep
        # What takes the place of content comes in by a door of its own.
        return content if redactor is None else redactor.data(content)

    return replacement


def _without_part(path: Sequence[str | int], text: Any, message: Message) -> Any:
    """Return the data of a message with a text in the place of a part. Raises `InvalidValueError` when there is no such part."""
    if isinstance(path, str) or not path:
        msg = f"part must be a list of keys and numbers, such as ['parts', 0, 'text'], not {path!r}"
        raise InvalidValueError(msg)
    holder: Any = [copy.deepcopy(message.data)]
    whole: list[Any] = holder
    place: str | int = 0
    for step in path:
        holder, place = holder[place], step
        if not _has(holder, step):
            msg = f"the data of message {message.id!r} have no part at {list(path)!r}"
            raise InvalidValueError(msg)
    holder[place] = text
    return whole[0]


def _has(holder: object, step: object) -> bool:
    if isinstance(holder, list):
        return type(step) is int and 0 <= step < len(cast("list[Any]", holder))
    return isinstance(holder, dict) and step in holder
