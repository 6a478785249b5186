"""Runs: what triggered an assistant, and what it produced."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from chatledger.domain.chat.decide_runs import (
    RunAnswer,
    RunDraft,
    decide_complete_run,
    decide_fail_run,
    decide_record_run,
    decide_start_run,
    decide_suspend_run,
    decide_update_run,
)
from chatledger.domain.chat.events import MessagesAppended, RunChanged, RunRecorded
from chatledger.domain.chat.runs import PYTHON, RUN_STATUSES, MessageRun, RunStatus
from chatledger.domain.context.estimate import Tokenizer, rough_tokens
from chatledger.domain.context.fitting import Fit, LastMessages, Limit
from chatledger.domain.limits import check_choice, check_count, check_flag, check_id, check_ids, sought_id
from chatledger.domain.values import Message
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.chat.runs import MESSAGE, THREAD, TRIGGER
from chatledger.projections.log.kinds import CHATS

from ..store.commands import ChatsToRead, Decide, EventKind
from ..store.redactor import Redactor
from .drafts import MessageLike, as_draft, new_id
from .messages import place_in
from .port import LedgerPart
from .regenerations import carry_on
from .saves import read_for_model
from .tokenizers import as_tokenizer


class RunMethods(LedgerPart):
    """The part of a ledger that is about runs of assistants."""

    def record_run(
        self,
        chat_id: str,
        run_id: str,
        *,
        thread_id: str,
        assistant_id: str,
        trigger_message_id: str | None = None,
        references: Sequence[str] = (),
        runtime: str = PYTHON,
        status: RunStatus | None = None,
        message_id: str | None = None,
        answer: MessageLike | None = None,
        branch: str | None = None,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> MessageRun:
        """
        Record that an assistant runs, or ran. Recording it again with the same arguments changes nothing.

        Args:
            chat_id: The chat.
            run_id: Your id of the run, unique in the chat.
            thread_id: The agent thread on which it runs.
            assistant_id: Whose run it is.
            trigger_message_id: The message that set it off.
            references: Further messages that the trigger refers to. An edit of any of them makes the run stale.
            runtime: What executes it.
            status: `pending`, `running` or `completed`. By default `running`, or `completed` with an answer.
            message_id: The stored message that it produced.
            answer: Instead, that message itself: it is appended in the same commit, see `complete_run`.
            branch: Where the answer goes; the active branch when None.
            checkpoint_id: The checkpoint of its thread to fork or replay from.
            metadata: A JSON object of yours. Those of a run that is recorded already stay as they are.

        Returns:
            The run as it is recorded now.

        Raises:
            ChatNotFoundError, MessageNotFoundError: The chat or a message is not there.
            WrongChatError: A message belongs to another chat.
            RunConflictError: The run is recorded with other values.
            InvalidValueError: A value breaks a rule.
        """
        new = RunDraft(
            id=new_id(),
            run_id=run_id,
            thread_id=thread_id,
            assistant_id=assistant_id,
            trigger_message_id=trigger_message_id,
            references=check_ids(references, "references"),
            runtime=runtime,
            status=status,
            message_id=message_id,
            checkpoint_id=checkpoint_id,
            metadata=metadata,
        )
        run_answer = _answer(answer, branch, self._store.redactor)
        return self._change(
            chat_id,
            run_id,
            lambda state, now: decide_record_run(state, new, answer=run_answer, now=now),
            kind=(MessagesAppended, RunRecorded),
        )

    def start_run(self, chat_id: str, run_id: str) -> MessageRun:
        """
        Begin a pending run, or go on with a run whose question was answered; a run that is running stays as it is.

        Raises:
            ChatNotFoundError, RunNotFoundError: The chat or the run is not there.
            RunStatusError: It has ended.
        """
        return self._change(chat_id, run_id, lambda state, _now: decide_start_run(state, run_id), kind=RunChanged)

    def suspend_run(
        self, chat_id: str, run_id: str, *, checkpoint_id: str | None = None, metadata: dict[str, Any] | None = None
    ) -> MessageRun:
        """
        A running run has asked something, and waits for the answer: its status is `waiting` until `start_run`, or its end.

        Repeating it with the same values changes nothing.

        Args:
            chat_id: The chat.
            run_id: The run.
            checkpoint_id: The checkpoint of its thread at which it waits.
            metadata: Merged into those of the run, key by key; such as what it asked.

        Raises:
            ChatNotFoundError, RunNotFoundError: The chat or the run is not there.
            RunStatusError: It is pending, or has ended.
        """
        return self._change(
            chat_id,
            run_id,
            lambda state, _now: decide_suspend_run(state, run_id, checkpoint_id=checkpoint_id, metadata=metadata),
            kind=RunChanged,
        )

    def update_run(self, chat_id: str, run_id: str, metadata: dict[str, Any]) -> MessageRun:
        """
        Merge metadata into those of a run, key by key, also of one that has ended.

        Raises:
            ChatNotFoundError, RunNotFoundError: The chat or the run is not there.
            InvalidValueError: They are no JSON object, or too large.
        """
        return self._change(
            chat_id, run_id, lambda state, _now: decide_update_run(state, run_id, metadata), kind=RunChanged
        )

    def complete_run(
        self,
        chat_id: str,
        run_id: str,
        *,
        message_id: str | None = None,
        answer: MessageLike | None = None,
        branch: str | None = None,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> MessageRun:
        """
        A run has ended with an answer: one commit. Repeating it with the same values changes nothing.

        Args:
            chat_id: The chat.
            run_id: The run, which has not ended.
            message_id: The stored message that it produced; None where it has none to show.
            answer: Instead, that message itself. It is appended to the head of `branch` as by `append`; where it does not say
                otherwise it replies to the trigger, and comes from the assistant. Give it an id if you may repeat the call.
            branch: Where the answer goes. When None the branch that its regeneration builds, if it is a step of one, else the
                active branch.
            checkpoint_id: The checkpoint of its thread after the answer.
            metadata: Merged into those of the run, key by key.

        Returns:
            The run. If it repeats another one, what that produced is now replaced by this answer, and on the branch that is
            built copies of the messages follow that followed the old one. An answer that stood on another branch than the
            one that was carried over becomes a version below its trigger, and no branch moves.

        Raises:
            ChatNotFoundError, RunNotFoundError, BranchNotFoundError, MessageNotFoundError: Something is not there.
            WrongChatError: The message belongs to another chat.
            RunStatusError: The run ended before, in another way.
            InvalidValueError: A value breaks a rule.
        """
        run_answer = _answer(answer, branch, self._store.redactor)
        run = self._change(
            chat_id,
            run_id,
            lambda state, now: decide_complete_run(
                state,
                run_id,
                message_id=message_id,
                answer=run_answer,
                checkpoint_id=checkpoint_id,
                metadata=metadata,
                now=now,
            ),
            kind=(MessagesAppended, RunChanged),
        )
        carry_on(self._store, chat_id, run.regeneration_id)
        return run

    def fail_run(
        self, chat_id: str, run_id: str, *, checkpoint_id: str | None = None, metadata: dict[str, Any] | None = None
    ) -> MessageRun:
        """
        A run has ended without an answer: its status is `error` from now on.

        Args:
            chat_id: The chat.
            run_id: The run, which has not ended.
            checkpoint_id: The last checkpoint of its thread.
            metadata: Merged into those of the run, key by key; such as what went wrong.

        Raises:
            ChatNotFoundError, RunNotFoundError: The chat or the run is not there.
            RunStatusError: It has ended before.
        """
        return self._change(
            chat_id,
            run_id,
            lambda state, _now: decide_fail_run(state, run_id, checkpoint_id=checkpoint_id, metadata=metadata),
            kind=RunChanged,
        )

    def get_run(self, chat_id: str, run_id: str) -> MessageRun | None:
        """The run of that id, or None."""
        run_id = sought_id(run_id, "run_id")
        return self._of_chat(chat_id, lambda chat: chat.run(run_id))

    def runs(
        self,
        chat_id: str,
        *,
        thread_id: str | None = None,
        assistant_id: str | None = None,
        trigger_message_id: str | None = None,
        message_id: str | None = None,
        status: RunStatus | None = None,
        is_ended: bool | None = None,
    ) -> list[MessageRun]:
        """
        The runs of a chat in the order in which they were recorded; none when there is no such chat. Filters combine.

        Args:
            chat_id: The chat.
            thread_id: Only those on this agent thread.
            assistant_id: Only those of this assistant.
            trigger_message_id: Only those that this message set off.
            message_id: Only those that produced this message.
            status: Only those that are `pending`, `running`, `waiting`, `completed` or `error`.
            is_ended: Only those that have ended (True), or have not (False), such as those that wait.

        Source: the LMDB index at `position`; looked up by message, trigger or thread where one is given, or among those that
        have not ended.
        """
        filters = {
            "message_id": message_id,
            "trigger_message_id": trigger_message_id,
            "thread_id": thread_id,
            "assistant_id": assistant_id,
        }
        wanted = {name: sought_id(value, name) for name, value in filters.items() if value is not None}
        if status is not None:
            check_choice(status, RUN_STATUSES, "status")
        if is_ended is not None:
            check_flag(is_ended, "is_ended")
        with self._chat(chat_id) as chat:
            listed = _listed(chat, wanted, is_ended=is_ended)
        return [
            run
            for run in listed
            if status in {None, run.status}
            and is_ended in {None, run.is_ended}
            and all(getattr(run, name) == value for name, value in wanted.items())
        ]

    def get_context(
        self,
        chat_id: str,
        message_id: str,
        last_n: int | None = None,
        *,
        max_tokens: int | None = None,
        counter: Tokenizer | str = rough_tokens,
    ) -> list[Message]:
        """
        Return the chain up to a message, as context for a run that it triggers: root first, that message last.

        Each message says who it comes from (`sender_id`, `agent_id`), so that answers of other agents can be passed in their
        role. Hidden messages are left out, and in place of a replaced one stands its replacement, unless that is on the
        chain; the trigger is given as it is. See docs/reference/annotations.md.

        Args:
            chat_id: The chat.
            message_id: The trigger.
            last_n: At most this many, the last ones. All when None.
            max_tokens: At most this many tokens, in whole turns, as of `ContextEngine.resolve`; `last_n`, if given, is in whole
                turns then, too. What is left out shows in the `parent_id` of the first message.
            counter: Counts the tokens of a text: a function, or the name of an encoding. By default an estimate.

        Raises:
            ChatNotFoundError, MessageNotFoundError: The chat or the message is not there.
            WrongChatError: The message belongs to another chat.
            ContextTooLargeError: The turn of the trigger alone exceeds `max_tokens`.
            InvalidValueError: A limit is no count, or there is no such encoding.

        Source: the LMDB index at `position`. Costs O(result) where nothing is left out.
        """
        if last_n is not None:
            check_count(last_n, "last_n")
        fit: Limit | None = None if last_n is None else LastMessages(last_n)
        if max_tokens is not None:
            # Messages of a window that was too short are counted again in the next one.
            fit = Fit(last_n=last_n, max_tokens=max_tokens, counter=cache(as_tokenizer(counter)))
        with self._chat(chat_id) as chat:
            place = place_in(chat, chat_id, message_id)
            return read_for_model(chat, place, fit=fit, always=message_id).for_model

    def _change(self, chat_id: str, run_id: str, decide: Decide, *, kind: EventKind) -> MessageRun:
        check_id(chat_id, "chat_id")
        written = self._store.execute(CHATS, chat_id, decide, kind=kind)
        # A command that is repeated under its id answers for the run that it was about, whichever is named now.
        for recorded in written:
            if isinstance(recorded.body, RunRecorded | RunChanged):
                run_id = recorded.body.run.run_id if isinstance(recorded.body, RunRecorded) else recorded.body.run_id
                break
        with self._store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
            run = snapshot.chat(chat_id).run(run_id)
        assert run is not None, "a run stays as long as its chat"
        return run


def _answer(message: MessageLike | None, branch: str | None, redactor: Redactor | None) -> RunAnswer | None:
    if message is None:
        return None
    draft = as_draft(message)
    return RunAnswer(draft=draft if redactor is None else redactor.message(draft), branch=branch)


def _listed(chat: IndexedChat, wanted: dict[str, str], *, is_ended: bool | None) -> list[MessageRun]:
    """The runs of the shortest list that is likely to have what is wanted."""
    rows = chat.run_rows
    if rows is None:
        return []
    if is_ended is False:
        return rows.unended()
    for name, listing in (("message_id", MESSAGE), ("trigger_message_id", TRIGGER), ("thread_id", THREAD)):
        if name in wanted:
            return rows.listed(listing, wanted[name])
    return rows.runs()
