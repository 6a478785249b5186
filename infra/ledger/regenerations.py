"""Regenerations: which runs are to be repeated after an edit, and how far that is."""

from collections.abc import Collection
from functools import partial
from typing import Any, Literal

from chatledger.domain.chat.decide_runs import decide_carry_on
from chatledger.domain.chat.events import MessagesAnnotated, RegenerationApproved, RegenerationBegun, RunRecorded
from chatledger.domain.chat.memory import lineage_of
from chatledger.domain.chat.regeneration import (
    decide_approve,
    decide_begin_regeneration,
    decide_mark_stale,
    decide_repeat_run,
    plan_regeneration,
    regeneration_of,
    require_step,
)
from chatledger.domain.chat.runs import MAX_CASCADE, MessageRun, Regeneration, RegenerationPlan
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import check_choice, check_id, sought_id
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS, THREADS

from ..store.commands import ChatsToRead
from .drafts import new_id
from .messages import place_in
from .port import LedgerPart, StorePort


class RegenerationMethods(LedgerPart):
    """The part of a ledger that is about repeating runs after an edit."""

    def plan_regeneration(self, chat_id: str, message_id: str, max_cascade: int = MAX_CASCADE) -> RegenerationPlan:
        """
        Return the runs that an edit of a message makes stale, in the order to repeat them. Nothing is started or written.

        A run is stale when its trigger or one of its references is the message, or what a stale run produced; or when its agent
        went on from what it remembered of a stale run, by the checkpoints of its thread. A view of an earlier moment shows no
        threads, so there memory counts for nothing.

        Args:
            chat_id: The chat.
            message_id: The message as it was before the edit.
            max_cascade: So many runs in all may be repeated without approval; 0 for none.

        Raises:
            ChatNotFoundError, MessageNotFoundError: The chat or the message is not there.
            WrongChatError: The message belongs to another chat.
            InvalidValueError: `max_cascade` is negative.

        Source: the LMDB index at `position`. Costs O(runs of the chat).
        """
        sought = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(sought)) as snapshot:
            chat = snapshot.chat(sought)
            place_in(chat, chat_id, message_id)
            runs = chat.runs()
            lineage = {} if snapshot.is_past else self._lineage(chat)
        return plan_regeneration(chat_id, message_id, runs, max_cascade=max_cascade, lineage=lineage)

    def mark_stale(self, plan: RegenerationPlan) -> list[str]:
        """
        Annotate what the planned runs produced as stale and not yet replaced: one commit.

        Returns:
            The ids of the stale messages, also of those that were so before.

        Raises:
            ChatNotFoundError, MessageNotFoundError: The chat or a message is not there.
        """
        chat_id = _check_plan(plan).chat_id
        self._store.execute(CHATS, chat_id, lambda state, _now: decide_mark_stale(state, plan), kind=MessagesAnnotated)
        return list(plan.stale_message_ids)

    def begin_regeneration(
        self,
        plan: RegenerationPlan,
        *,
        new_message_id: str,
        regeneration_id: str | None = None,
        branch: str | None = None,
    ) -> Regeneration:
        """
        Write a plan down, to carry it out step by step, mark its messages stale, and begin to build the branch: one commit.

        Then, until `Regeneration.is_done`: `repeat_run` for each step in `ready`, execute it, and `complete_run`. Wherever
        that is interrupted, `get_regeneration` tells how to go on.

        What followed the edited message on the branch seen last that has it is carried over to the branch of the new one, as
        copies: now what comes before the first stale answer, and with each `complete_run` what follows the new answer.
        `Message.copied_from` names the original. Nothing is carried over when the new message comes after the edited one on
        the same chain.

        Args:
            plan: As `plan_regeneration` made it; its automatic runs are approved.
            new_message_id: The message that takes the place of the edited one.
            regeneration_id: Any id; a new one when None. Beginning it again changes nothing.
            branch: The branch to build, which contains the new message. When None the one that ends with it, else a new one.

        Raises:
            ChatNotFoundError, BranchNotFoundError, MessageNotFoundError: The chat, the branch or a message is not there.
            WrongChatError: A message belongs to another chat.
            InvalidValueError: The branch does not contain the new message.
            PlanOutdatedError: Runs of the chat changed since it was planned.
            RunConflictError: A regeneration after another edit has this id.
        """
        chat_id = _check_plan(plan).chat_id
        wanted, branch_id = new_id() if regeneration_id is None else regeneration_id, new_id()
        written = self._store.execute(
            CHATS,
            chat_id,
            lambda state, now: decide_begin_regeneration(
                state,
                plan,
                regeneration_id=wanted,
                new_message_id=new_message_id,
                branch=branch,
                branch_id=branch_id,
                now=now,
                lineage=self._lineage(state),
            ),
            kind=(MessagesAnnotated, RegenerationBegun),
        )
        # A command that is repeated under its id answers for the regeneration that it began, which may have another id.
        begun = (event.body.regeneration_id for event in written if isinstance(event.body, RegenerationBegun))
        regeneration_id = next(begun, wanted)
        carry_on(self._store, chat_id, regeneration_id)
        return self._require_regeneration(chat_id, regeneration_id)

    def approve_regeneration(
        self, chat_id: str, regeneration_id: str, run_ids: Collection[str] | None = None
    ) -> Regeneration:
        """
        Allow runs beyond `max_cascade` to be repeated, all when None.

        Raises:
            ChatNotFoundError, RegenerationNotFoundError, RunNotFoundError: The chat, the regeneration or a run of it is not
                there.
        """
        check_id(chat_id, "chat_id")
        self._store.execute(
            CHATS,
            chat_id,
            lambda state, _now: decide_approve(state, regeneration_id, run_ids),
            kind=RegenerationApproved,
        )
        return self._require_regeneration(chat_id, regeneration_id)

    def repeat_run(
        self,
        chat_id: str,
        regeneration_id: str,
        repeats: str,
        *,
        run_id: str | None = None,
        status: Literal["pending", "running"] = "running",
        metadata: dict[str, Any] | None = None,
    ) -> MessageRun:
        """
        Record the run that repeats another one: same thread, same assistant, triggered by what is new.

        The old record stays. Executing it is yours, from where the branch stands: `chatledger.langgraph.config_of_message`, for
        an agent that remembers; then `complete_run`.

        Args:
            chat_id: The chat.
            regeneration_id: The regeneration.
            repeats: The run id of the old run.
            run_id: Your id of the new run; a new one when None.
            status: `running` or `pending`.
            metadata: A JSON object of yours, for the new run.

        Returns:
            The new run. When there is one already that did not fail, that one: repeating the call changes nothing.

        Raises:
            ChatNotFoundError, RegenerationNotFoundError, RunNotFoundError: The chat, the regeneration or a run of it is not
                there.
            RunStatusError: It awaits approval, or waits for others.
            RunConflictError: It is being repeated under another id, or the id is taken.
        """
        check_id(chat_id, "chat_id")
        check_choice(status, ("pending", "running"), "the status of a run to execute")
        record_id, wanted = new_id(), new_id() if run_id is None else run_id
        self._store.execute(
            CHATS,
            chat_id,
            lambda state, now: decide_repeat_run(
                state,
                regeneration_id,
                repeats,
                record_id=record_id,
                run_id=wanted,
                is_new_id=run_id is None,
                status=status,
                now=now,
                metadata=metadata,
            ),
            kind=RunRecorded,
        )
        with self._store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
            run = require_step(snapshot.chat(chat_id), regeneration_id, repeats).run
        assert run is not None, "the step has a run now"
        return run

    def get_regeneration(self, chat_id: str, regeneration_id: str) -> Regeneration | None:
        """
        A regeneration with its steps: which are done, which are next; None when there is no such.

        Source: the LMDB index at `position`.
        """
        regeneration_id = sought_id(regeneration_id, "regeneration_id")
        with self._chat(chat_id) as chat:
            record = chat.regeneration(regeneration_id)
            return None if record is None else regeneration_of(chat, record)

    def regenerations(self, chat_id: str) -> list[Regeneration]:
        """The regenerations of a chat by the time when they began, ties by id; none when there is no such chat."""
        with self._chat(chat_id) as chat:
            rows = chat.run_rows
            branches = chat.branches()
            records = [] if rows is None else rows.regenerations()
            return [regeneration_of(chat, record, branches=branches) for record in records]

    def _lineage(self, chat: IndexedChat) -> dict[str, str]:
        # Which checkpoint came from which never changes, so it is no harm that threads are read a moment after the chat.
        with self._store.snapshot(ChatsToRead(chat.chat_id, is_written=True)) as snapshot:
            return lineage_of(chat, chat.runs(), partial(snapshot.stream, THREADS))

    def _require_regeneration(self, chat_id: str, regeneration_id: str) -> Regeneration:
        regeneration = self.get_regeneration(chat_id, regeneration_id)
        assert regeneration is not None, "a regeneration stays as long as its chat"
        return regeneration


def carry_on(store: StorePort, chat_id: str, regeneration_id: str | None) -> None:
    """Carry over what was too much for one commit, or was left by a call that was interrupted; mostly nothing."""
    while regeneration_id is not None:
        # Mostly there is nothing to carry over, which a look at the index tells without a command.
        with store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
            if not decide_carry_on(snapshot.chat(chat_id), regeneration_id):
                return
        store.execute(CHATS, chat_id, lambda state, _now: decide_carry_on(state, regeneration_id))


def _check_plan(plan: RegenerationPlan) -> RegenerationPlan:
    if not isinstance(plan, RegenerationPlan):
        msg = f"expected a plan of plan_regeneration, not {type(plan).__name__}"
        raise InvalidValueError(msg)
    check_id(plan.chat_id, "chat_id")
    return plan
