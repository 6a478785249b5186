"""Saving: what was set becomes part of the conversation."""

from collections.abc import Mapping
from typing import Any, Final, cast, get_args

from ..context.drafts import as_fragments
from ..context.fragment import Fragment, is_message_fragment
from ..context.ui_message import ASSISTANT, USER, from_ui_message, is_ui_message
from ..errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ConflictError,
    InvalidValueError,
    LogFullError,
    NotFoundError,
    WrongChatError,
)
from ..saving import OnConflict, SaveResult
from .base import Attempt
from .pending import PendingMessages

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
        messages that were not edited are not copied; the old branch keeps its head. Equal messages are skipped.

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
            UnknownLazyTypeError, MissingCodecError, InvalidValueError: A message cannot be stored as it is.
        """
        _check_on_conflict(on_conflict)
        branch = await self._ready()
        settled = await self._settle()
        if not self._pending:
            if settled is not None:
                return settled
            now = await self._port.get_branch(self._chat_id, branch)
            self._adopt(now)
            return SaveResult(head_message_id=now.head_message_id, branch=branch, message_ids=[], id_map={})
        entries = tuple(self._pending)
        save = self._save_of(await self._ready_to_save(), self._branch or branch, on_conflict=on_conflict)
        saved = await self._carry_out(Attempt(save, self._port.new_id(), entries))
        return saved if settled is None else _joined(settled, saved)

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
        given = self._turn_of(content)
        self.set(given)
        result = await self.save()
        if given.name == USER:
            return self._port.new_id()
        return result.id_map.get(cast("str", given.id), cast("str", given.id))

    def _turn_of(self, content: Any) -> Fragment:
        if isinstance(content, str):
            content = {"role": USER, "parts": [{"type": "text", "text": content}]}
        if is_ui_message(content):
            given = cast("Mapping[str, Any]", content)
            own: str | None = given.get("id")
            if own is None and given["role"] != USER:
                msg = "a message of the assistant that continues a turn needs an id, that of the answer it continues"
                raise InvalidValueError(msg)
            fragment = from_ui_message(given, self._port.new_id() if own is None else own)
        else:
            (fragment,) = as_fragments([content])
        if not is_message_fragment(fragment) or fragment.name not in {USER, ASSISTANT} or fragment.id is None:
            msg = f"a turn continues with a message of the user, or of the assistant with its id, not {fragment.name!r}"
            raise InvalidValueError(msg)
        return fragment

    async def _settle(self) -> SaveResult | None:
        """Make sure that the last attempt, if its outcome is unknown, happened; once, thanks to its command id."""
        return None if self._unsettled is None else await self._carry_out(self._unsettled)

    async def _carry_out(self, attempt: Attempt) -> SaveResult:
        self._unsettled = attempt
        try:
            result = await self._port.save(self._chat_id, attempt.save, command_id=attempt.command_id)
        except _NOTHING_WRITTEN:
            self._unsettled = None
            raise
        self._unsettled = None
        self._branch, self._read_head = result.branch, result.head_message_id
        self._drop(attempt.pending)
        return result


def _check_on_conflict(on_conflict: str) -> None:
    """Refuse an unknown way out also when there is nothing to save, before the chat is opened."""
    if on_conflict not in get_args(OnConflict):
        msg = f"on_conflict must be one of {', '.join(get_args(OnConflict))}, not {on_conflict!r}"
        raise InvalidValueError(msg)


def _joined(first: SaveResult, second: SaveResult) -> SaveResult:
    return SaveResult(
        head_message_id=second.head_message_id,
        branch=second.branch,
        message_ids=[*first.message_ids, *second.message_ids],
        id_map={**first.id_map, **second.id_map},
    )
