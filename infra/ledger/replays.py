"""Replays: the questions of a chat answered again, by another model or prompt, on a branch of their own; and answers side by side."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from chatledger.domain.chat.interchange import draft_of
from chatledger.domain.chat.runs import MessageRun, copy_id
from chatledger.domain.chat.turns import Exchange, calls_in, exchanges_of
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import check_id
from chatledger.domain.values import Message
from chatledger.domain.wire import Value

from .branches import BranchMethods
from .drafts import Messages
from .messages import MessageMethods
from .runs import RunMethods


class ReplayAnswer(msgspec.Struct, frozen=True):
    """
    The answer of a runner that has more to tell than messages.

    Args:
        messages: One message or several, in order, as `Ledger.append` takes them.
        metadata: A JSON object that is kept with the run, such as `{"model": "m", "usage": {"output_tokens": 7}, "cost": 0.0002}`.
    """

    messages: Messages
    metadata: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class Replay(Value, frozen=True, kw_only=True):
    """
    A finished replay.

    Args:
        branch: The branch with the new answers.
        runs: The run of each turn, in order, with what the runner told of it; how long each took is from `created_at` to `updated_at`.
    """

    branch: str
    runs: list[MessageRun]


class ComparedAnswer(Value, frozen=True, kw_only=True):
    """
    The answer of one branch in a turn.

    Args:
        messages: The messages that answered.
        tools: The tools that they call, in order.
        run: The run that wrote the last of them; None where none was recorded.
    """

    messages: list[Message]
    tools: list[str]
    run: MessageRun | None = None


class ComparedTurn(Value, frozen=True, kw_only=True):
    """
    A turn on several branches.

    Args:
        number: Which one, from 1.
        said: What the user said, on the first branch that has the turn.
        answers: The answer of each branch that has the turn, by its name.
    """

    number: int
    said: str
    answers: dict[str, ComparedAnswer]


class ReplayMethods(MessageMethods, BranchMethods, RunMethods):
    """The part of a ledger that answers again, and compares."""

    def replay(
        self,
        chat_id: str,
        runner: Callable[[Exchange], Messages | ReplayAnswer],
        *,
        name: str,
        branch: str | None = None,
        turns: int | None = None,
    ) -> Replay:
        """
        Answer the questions of a chat again, one after the other, on a branch of their own; the original stays as it is.

        The branch leaves the original at its first question. Each further question follows the new answers, as a copy. Every answer
        is a run of the assistant `name` on the thread `name`, with its time. Interrupted, or after an error of the runner, which ends the run with
        `error`, the next call with the same name goes on at the turn that was not answered.

        Args:
            chat_id: The chat.
            runner: Answers a turn. `turn.messages` is what a model gets; `turn.tool_result(name, arguments)` is what a tool
                gave in the original, so that none is called again.
            name: The name of the new branch, such as that of the model.
            branch: The branch to replay; the active one when None.
            turns: At most so many of its turns.

        Raises:
            ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.
            InvalidValueError: Nobody asked anything on the branch, the branch `name` is there and is no replay of it, or the runner
                returned no message.
            HeadConflictError: Somebody else wrote to the branch `name` meanwhile.
        """
        check_id(name, "name")
        original = exchanges_of(self.get_messages(chat_id, branch=branch))[:turns]
        if not original:
            msg = f"chat {chat_id!r} has no message of a user on that branch, so there is nothing to answer again"
            raise InvalidValueError(msg)
        begin = original[0].messages[-1].id
        runs = {run.trigger_message_id: run for run in self.runs(chat_id, thread_id=name)}
        existing = next((each for each in self.list_branches(chat_id) if each.name == name), None)
        if existing is None:
            self.create_branch(chat_id, name, begin)
        elif begin not in runs and existing.head_message_id != begin:
            raise _no_replay(chat_id, name)
        ended: list[MessageRun] = []
        for recorded in original:
            chain = self.get_messages(chat_id, branch=name)
            replayed = exchanges_of(chain)
            if recorded.number == 1:
                questions = recorded.said
            else:
                questions = [replace(each, id=copy_id(name, each.id), copied_from=each.id) for each in recorded.said]
            done = replayed[recorded.number - 1] if recorded.number <= len(replayed) else None
            if done is not None and [each.id for each in done.said] != [each.id for each in questions]:
                raise _no_replay(chat_id, name)
            trigger = questions[-1].id
            run = runs.get(trigger)
            if done is not None and run is not None and run.status == "completed":
                ended.append(run)
                continue
            if done is None:
                drafts = [replace(draft_of(each), parent_id=None, reply_to=None) for each in questions]
                chain += self.append(chat_id, drafts, branch=name, expected_head=chain[-1].id)
            elif chain[-1].id != trigger:  # of an attempt that was interrupted
                self.move_head(chat_id, name, trigger, expected=chain[-1].id)
                chain = done.messages
            ended.append(self._answer_again(chat_id, runner, replace(recorded, messages=chain), name, trigger, run))
        return Replay(branch=name, runs=ended)

    def _answer_again(
        self,
        chat_id: str,
        runner: Callable[[Exchange], Messages | ReplayAnswer],
        turn: Exchange,
        name: str,
        trigger: str,
        earlier: MessageRun | None,
    ) -> MessageRun:
        """Have a turn answered, as a run."""
        if earlier is not None and not earlier.is_ended:
            run_id = earlier.run_id
        else:
            attempt = len([run for run in self.runs(chat_id, thread_id=name) if run.trigger_message_id == trigger])
            run_id = f"{name}/{turn.number}" + (f"-{attempt + 1}" if attempt else "")
            self.record_run(chat_id, run_id, thread_id=name, assistant_id=name, trigger_message_id=trigger)
        try:
            answer = runner(turn)
            if not isinstance(answer, ReplayAnswer):
                answer = ReplayAnswer(answer)
            stored = self.append(chat_id, answer.messages, branch=name, expected_head=trigger)
            if not stored:
                msg = f"the runner returned no message for turn {turn.number}"
                raise InvalidValueError(msg)  # noqa: TRY301 - which ends the run as any other error of the runner
        except Exception as error:
            self.fail_run(chat_id, run_id, metadata={"error": f"{type(error).__name__}: {error}"[:1_000]})
            raise
        return self.complete_run(chat_id, run_id, message_id=stored[-1].id, metadata=answer.metadata)

    def compare(self, chat_id: str, branches: Sequence[str]) -> list[ComparedTurn]:
        """
        The answers of several branches of a chat side by side, turn by turn.

        Raises:
            ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.

        Source: the LMDB index at `position`. Costs reading the branches.
        """
        runs = {run.message_id: run for run in self.runs(chat_id) if run.message_id is not None}
        turns: list[ComparedTurn] = []
        for name in branches:
            for turn in exchanges_of(self.get_messages(chat_id, branch=name)):
                if turn.number > len(turns):
                    question = "\n".join(message.text for message in turn.said)
                    turns.append(ComparedTurn(number=turn.number, said=question, answers={}))
                run = runs.get(turn.answered[-1].id) if turn.answered else None
                turns[turn.number - 1].answers[name] = ComparedAnswer(
                    messages=turn.answered, tools=calls_in(turn.answered), run=run
                )
        return turns

    def bisect(
        self, chat_id: str, predicate: Callable[[list[Message]], bool], *, branch: str | None = None
    ) -> Message | None:
        """
        Find the message at which something turned false: the first with which `predicate` is false of the conversation so far.

        It is asked about log2 of the messages, and must stay false once it is.

        Args:
            chat_id: The chat.
            predicate: Says of the beginning of a chain, root first, whether all is well.
            branch: Its name; the active branch when None.

        Returns:
            The message; None where it is true of the whole chain.

        Raises:
            ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.
        """
        chain = self.get_messages(chat_id, branch=branch)
        place = bisect_left(range(1, len(chain) + 1), True, key=lambda size: not predicate(chain[:size]))  # noqa: FBT003
        return chain[place] if place < len(chain) else None


def _no_replay(chat_id: str, name: str) -> InvalidValueError:
    return InvalidValueError(f"branch {name!r} of chat {chat_id!r} is no replay of this one: choose another name")
