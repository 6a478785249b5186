"""Saving: what was set becomes part of the conversation."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final, cast, get_args

import msgspec
from msgspec import UNSET

from ...chat.save import Foreseen, OnConflict, Save, SaveResult
from ...errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ConflictError,
    InvalidValueError,
    LogFullError,
    NotFoundError,
    UnknownLazyTypeError,
    WrongChatError,
)
from ...forms.reading import ui_message_of
from ...render.xml import XmlRenderer
from ...values import UI
from ..caching import with_record
from ..estimate import usage_of
from ..fragments import Fragment, is_message_fragment
from ..messages import (
    ASSISTANT,
    ATTRIBUTION,
    LAST_ASSISTANT,
    USER,
    StoredCodec,
    as_fragments,
    draft_of,
    fragment_of,
    from_ui_message,
    is_ui_message,
    message_fragment,
    ui_message,
)
from ..predicates import ReminderContext
from ..reminders import fold_reminders, is_reminder, without_once
from ..summary import LazySummary, StoredChain, is_real_user_message
from .base import Attempt, EngineBase, PendingMessage

_PAGE: Final = 50


class PendingMessages(EngineBase):
    """Lazy fragments resolved, messages of one id merged, reminders folded in."""

    async def _resolve_lazy(self, entry: PendingMessage) -> PendingMessage:
        lazy = entry.fragment.lazy
        if lazy is None:
            return entry
        if lazy.type != LAST_ASSISTANT:
            raise UnknownLazyTypeError(lazy.type)
        answer = self._pending_assistant_before(entry) or await self._last_stored_assistant()
        metadata: dict[str, Any] = {}
        message_id = entry.spare_id
        if answer is not None:
            # It stays the answer of the agent, or the human, whom it came from: only its content is corrected.
            metadata = {key: answer.metadata[key] for key in ATTRIBUTION if key in answer.metadata}
            message_id = answer.id or message_id
        if not isinstance(lazy.content, str):
            msg = f"the content of a lazy {lazy.type!r} fragment must be text, not {type(lazy.content).__name__}"
            raise InvalidValueError(msg)
        codec = StoredCodec(ui_message(ASSISTANT, lazy.content, message_id), UI)
        fragment = message_fragment(ASSISTANT, codec, message_id, metadata=metadata)
        return msgspec.structs.replace(entry, fragment=fragment)

    async def _ready_to_save(self) -> list[PendingMessage]:
        """The pending messages as a save stores them: resolved, merged, with reminders folded in."""
        entries = [_recorded(await self._resolve_lazy(entry)) for entry in self._pending]
        if self._unsettled is not None:
            # The spare ids of a save whose outcome is unknown may be stored already.
            entries = [msgspec.structs.replace(entry, spare_id=self._port.new_id()) for entry in entries]
        # A dict keeps the place of the first, and has the last.
        entries = list({entry.fragment.id: entry for entry in entries}.values())
        reminders = [fragment for fragment in self._context if is_reminder(fragment)]
        if not (reminders and any(entry.fragment.name == USER for entry in entries)):
            return entries
        save = self._save_of(entries, await self._ready(), on_conflict="rebase")
        return await self._port.foresee(
            self._chat_id, save, lambda foreseen, chain: self._with_reminders(entries, reminders, foreseen, chain)
        )

    def _with_reminders(
        self, entries: list[PendingMessage], reminders: list[Fragment], foreseen: Foreseen, chain: StoredChain
    ) -> list[PendingMessage]:
        """The entries with reminders in the last message that a user wrote; an asynchronous engine asks for it in a thread."""
        new = {message.id: at for at, message in enumerate(foreseen.new) if is_real_user_message(message)}
        last = max(new.values(), default=None)
        context = ReminderContext(
            now_ms=self._port.clock_ms(),
            chain=LazySummary(chain, foreseen.new[:last]),
            usage=usage_of(foreseen.chat),
        )

        def folded(entry: PendingMessage) -> PendingMessage:
            # It is saved under its own id or its spare one.
            at = new.get(entry.spare_id, new.get(entry.fragment.id or ""))
            if at is None:
                return entry
            draft, form = draft_of(entry.fragment), foreseen.new[at].form
            data, notes = draft.data, without_once(draft.metadata)
            if form not in (None, UI):
                data = ui_message_of(form, data, draft.name, draft.id or entry.spare_id)
            message = fold_reminders(
                data,
                reminders if at == last else (),
                context,
                notes=notes,
                render=lambda fragment: XmlRenderer().render([fragment]),
                new_ids=(f"{entry.spare_id}-{number}" for number in count(1)),
                on_error=self._port.report,
            )
            if message is data:
                message = draft.data
            elif form is not None:
                form = UI  # reminders stand in the parts of a UIMessage: a message of another form becomes one
            codec = StoredCodec(message, form, notes)
            return msgspec.structs.replace(entry, fragment=msgspec.structs.replace(entry.fragment, codec=codec))

        return list(map(folded, entries))

    def _pending_assistant_before(self, lazy: PendingMessage) -> Fragment | None:
        """Return the last pending answer set before the correction."""
        answer = None
        for entry in self._pending:
            if entry is lazy:
                break
            if entry.fragment.name == ASSISTANT and entry.fragment.lazy is None:
                answer = entry.fragment
        return answer

    async def _last_stored_assistant(self) -> Fragment | None:
        branch = await self._ready()
        before: str | None = None
        while page := await self._port.get_messages(self._chat_id, branch=branch, limit=_PAGE, before=before):
            for message in reversed(page):
                if message.name == ASSISTANT:
                    return fragment_of(message)
            before = page[0].id
        return None

    def _save_of(self, entries: Sequence[PendingMessage], branch: str, *, on_conflict: OnConflict) -> Save:
        return Save(
            drafts=tuple(draft_of(entry.fragment) for entry in entries),
            spare_ids=tuple(entry.spare_id for entry in entries),
            branch=branch,
            read_head=self._read_head,
            on_conflict=on_conflict,
            branch_id=self._port.new_id(),
            after=self._after,
        )


def _recorded(entry: PendingMessage) -> PendingMessage:
    if entry.record is None:
        return entry
    draft = draft_of(entry.fragment)
    codec = StoredCodec(draft.data, draft.form, with_record(draft.metadata, entry.record))
    return msgspec.structs.replace(entry, fragment=msgspec.structs.replace(entry.fragment, codec=codec))


_NOTHING_WRITTEN: Final = (
    AccessDeniedError,
    AlreadyExistsError,
    ConflictError,
    InvalidValueError,
    LogFullError,
    NotFoundError,
    WrongChatError,
)
"""After any other error the save may have happened."""


class Saving(PendingMessages):
    """The part of a context engine that writes messages."""

    async def save(self, *, on_conflict: OnConflict = "rebase") -> SaveResult:
        """
        Store the messages that were set: one commit, all or nothing.

        Messages never change. One whose id is stored with other content is an edit: it gets a new id, and the whole save
        goes to one new branch, which begins at the parent of the earliest edited message and becomes the engine's. Stored
        messages that were not edited are not copied; the old branch keeps its head. Equal messages are skipped. After
        `regenerate` the save goes to such a branch too, which begins at the question.

        After a failure everything is as before, and the messages still wait. Where the outcome is unknown
        (`LogUnavailableError`), the next call first makes sure that this save happened once.

        Args:
            on_conflict: If others added to the branch since this engine last read it (resolve, save, rewind, refresh):
                `rebase` chains onto what they added, `fork` makes a branch where this engine stood, `raise` refuses, edits
                too. With the other two, edits make a branch at what they edit, wherever the head is.

        Returns:
            The new head, the branch, and the ids of the messages as they are stored. With nothing pending, the head as it is.

        Raises:
            OwnerMismatchError: The chat belongs to another user.
            AmbiguousEditError: The edited messages do not lie on one chain; save them one by one.
            HeadConflictError: The branch moved and `on_conflict` is `raise`, or it moved five times in a row.
            WrongChatError: The id of a message is used in another chat.
            PayloadTooLargeError: A message exceeds the size limit of an event.
            ResolverError: The codec of a message raised.
            UnknownLazyTypeError, MissingCodecError, InvalidValueError: A message cannot be stored as it is.
        """
        # Also when there is nothing to save, and before the chat is opened.
        if on_conflict not in get_args(OnConflict):
            msg = f"on_conflict must be one of {', '.join(get_args(OnConflict))}, not {on_conflict!r}"
            raise InvalidValueError(msg)
        branch = await self._ready()
        # Make sure that a save whose outcome is unknown happened; once, thanks to its command id.
        settled = None if self._unsettled is None else await self._carry_out(self._unsettled)
        if not self._pending:
            if settled is not None:
                return settled
            now = await self._port.get_branch(self._chat_id, branch)
            self._adopt(now)
            return SaveResult(head_message_id=now.head_message_id, branch=branch, message_ids=[], id_map={})
        entries = tuple(self._pending)
        save = self._save_of(await self._ready_to_save(), self._branch or branch, on_conflict=on_conflict)
        saved = await self._carry_out(Attempt(save, self._port.new_id(), entries))
        if settled is None:
            return saved
        return SaveResult(
            head_message_id=saved.head_message_id,
            branch=saved.branch,
            message_ids=[*settled.message_ids, *saved.message_ids],
            id_map={**settled.id_map, **saved.id_map},
        )

    async def continue_turn(self, content: str | Mapping[str, Any] | Fragment) -> str:
        """
        Save the user's input with all that is pending, and return an id for the coming answer: `assistant(answer, id=...)`.

        So the input is stored before the model is asked, and the id is known while the answer is still streaming. Nothing is
        stored for the answer before it is saved itself. Saving another one under the same id is an edit. When it fails, the
        input is pending: go on with `save`, not with the same call, which would add it again.

        Args:
            content: Text, a UIMessage or a message fragment. One of the assistant, which continues its turn, needs an
                id; the id under which it is stored is returned.

        Raises:
            InvalidValueError: The message is of the assistant and has no id, or it is of neither user nor assistant.
        """
        if isinstance(content, str):
            content = {"role": USER, "parts": [{"type": "text", "text": content}]}
        if is_ui_message(content):
            message = cast("Mapping[str, Any]", content)
            own: str | None = message.get("id")
            if own is None and message["role"] != USER:
                msg = "a message of the assistant that continues a turn needs an id, that of the answer it continues"
                raise InvalidValueError(msg)
            fragment = from_ui_message(message, self._port.new_id() if own is None else own)
        else:
            (fragment,) = as_fragments([content])
        if not is_message_fragment(fragment) or fragment.name not in {USER, ASSISTANT} or fragment.id is None:
            msg = f"a turn continues with a message of the user, or of the assistant with its id, not {fragment.name!r}"
            raise InvalidValueError(msg)
        self.set(fragment)
        result = await self.save()
        if fragment.name == USER:
            return self._port.new_id()
        return result.id_map.get(fragment.id, fragment.id)

    async def _carry_out(self, attempt: Attempt) -> SaveResult:
        # Before it is sent: whatever interrupts this, the next call repeats it under the same command id.
        self._unsettled = attempt
        try:
            result = await self._port.save(self._chat_id, attempt.save, command_id=attempt.command_id)
        except _NOTHING_WRITTEN:
            self._unsettled = None
            raise
        self._unsettled = None
        if result.branch != attempt.save.branch:  # not when all was stored already, and nothing was written
            self._after = UNSET
        self._branch, self._read_head = result.branch, result.head_message_id
        self._drop(attempt.pending)
        return result
