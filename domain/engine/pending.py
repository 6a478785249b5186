"""From the messages that were set to the messages that are saved."""

from collections.abc import Sequence
from itertools import count
from typing import Any, Final

import msgspec

from ..context.drafts import ATTRIBUTION, draft_of, fragment_of
from ..context.folding import fold_reminders
from ..context.fragment import Fragment, Lazy, stored_form
from ..context.reminder_context import ReminderContext
from ..context.reminders import is_reminder
from ..context.summary import ChainSummary, is_real_user_message, summarise, with_unsaved
from ..context.ui_message import ASSISTANT, LAST_ASSISTANT, USER, StoredCodec, message_fragment, ui_message
from ..context.usage import usage_of
from ..errors import InvalidValueError, UnknownLazyTypeError
from ..renderers.xml import XmlRenderer
from ..saving import OnConflict, Save
from ..values import Message
from .base import EngineBase, Pending

_PAGE: Final = 50


class PendingMessages(EngineBase):
    """Lazy fragments resolved, messages of one id merged, reminders folded in."""

    async def _resolved(self) -> list[Pending]:
        """The pending messages with lazy ones resolved, and the last one of each id at the place of the first."""
        entries = [await self._resolve_lazy(entry) for entry in self._pending]
        if self._unsettled is not None:
            # The spare ids of a save whose outcome is unknown may be stored already.
            entries = [msgspec.structs.replace(entry, spare_id=self._port.new_id()) for entry in entries]
        places: dict[str | None, int] = {}
        kept: list[Pending] = []
        for entry in entries:
            place = places.setdefault(entry.fragment.id, len(kept))
            if place < len(kept):
                kept[place] = entry
            else:
                kept.append(entry)
        return kept

    async def _resolve_lazy(self, entry: Pending) -> Pending:
        lazy = entry.fragment.lazy
        if lazy is None:
            return entry
        if lazy.type != LAST_ASSISTANT:
            raise UnknownLazyTypeError(lazy.type)
        found = self._pending_assistant_before(entry) or await self._last_stored_assistant()
        metadata = {} if found is None else {key: found.metadata[key] for key in ATTRIBUTION if key in found.metadata}
        message_id = None if found is None else found.id
        return msgspec.structs.replace(entry, fragment=_assistant(lazy, message_id or entry.spare_id, metadata))

    async def _ready_to_save(self) -> list[Pending]:
        """The pending messages as a save stores them: resolved, merged, with reminders folded in."""
        entries = await self._resolved()
        reminders = [fragment for fragment in self._context if is_reminder(fragment)]
        if not (reminders and any(entry.fragment.name == USER for entry in entries)):
            return entries
        branch = await self._ready()
        preview = await self._port.preview_save(self._chat_id, self._save_of(entries, branch, on_conflict="rebase"))
        stored, new = preview.messages[: -preview.saved], preview.messages[-preview.saved :]
        if not preview.saved:
            return entries
        last = max(
            (at for at, message in enumerate(new) if is_real_user_message(message.name, message.data)), default=None
        )
        if last is None:
            return entries
        chain = summarise((message.name, message.data, message.created_at) for message in stored)
        chain = with_unsaved(chain, ((message.name, message.data) for message in new[:last]))
        return [
            await self._with_reminders(entry, reminders, chain) if _becomes(entry, new[last]) else entry
            for entry in entries
        ]

    async def _with_reminders(self, entry: Pending, reminders: list[Fragment], chain: ChainSummary) -> Pending:
        chat = await self._port.get_chat(self._chat_id)
        message = fold_reminders(
            stored_form(entry.fragment),
            reminders,
            ReminderContext(now_ms=self._port.clock_ms(), chain=chain, usage=usage_of(chat)),
            render=lambda fragment: XmlRenderer().render([fragment]),
            new_ids=(f"{entry.spare_id}-{number}" for number in count(1)),
            on_error=self._port.report,
        )
        return msgspec.structs.replace(
            entry, fragment=msgspec.structs.replace(entry.fragment, codec=StoredCodec(message))
        )

    def _pending_assistant_before(self, lazy: Pending) -> Fragment | None:
        """The last pending answer when the correction was set; one that came later is not what it corrects."""
        found = None
        for entry in self._pending:
            if entry is lazy:
                break
            if entry.fragment.name == ASSISTANT and entry.fragment.lazy is None:
                found = entry.fragment
        return found

    async def _last_stored_assistant(self) -> Fragment | None:
        branch = await self._ready()
        before: str | None = None
        while page := await self._port.get_messages(self._chat_id, branch, limit=_PAGE, before=before):
            for message in reversed(page):
                if message.name == ASSISTANT:
                    return fragment_of(message)
            before = page[0].id
        return None

    def _save_of(self, entries: Sequence[Pending], branch: str, *, on_conflict: OnConflict) -> Save:
        return Save(
            drafts=tuple(draft_of(entry.fragment) for entry in entries),
            spare_ids=tuple(entry.spare_id for entry in entries),
            branch=branch,
            read_head=self._read_head,
            on_conflict=on_conflict,
            branch_id=self._port.new_id(),
        )


def _assistant(lazy: Lazy, message_id: str, metadata: dict[str, Any]) -> Fragment:
    if not isinstance(lazy.content, str):
        msg = f"the content of a lazy {lazy.type!r} fragment must be text, not {type(lazy.content).__name__}"
        raise InvalidValueError(msg)
    data = ui_message(ASSISTANT, lazy.content, message_id)
    return message_fragment(ASSISTANT, StoredCodec(data), message_id, metadata=metadata)


def _becomes(entry: Pending, message: Message) -> bool:
    """Whether this is the message that the entry is saved as, under its own id or its spare one."""
    return message.id in {entry.fragment.id, entry.spare_id}
