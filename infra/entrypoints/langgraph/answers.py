"""A chat and the thread of an agent together: the answer that is seen is a message, and its run knows the checkpoint."""

from langchain_core.runnables import RunnableConfig

from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.context.fragments import Fragment
from chatledger.domain.errors import InvalidValueError, NotFoundError
from chatledger.domain.values import NewMessage
from chatledger.domain.versioned.keys import assistant_of

from ...ledger.drafts import assistant
from ...ledger.threads import Threads
from .saver import LedgerSaver


def record_answer(
    saver: LedgerSaver,
    chat_id: str,
    run_id: str,
    answer: NewMessage | Fragment | str,
    *,
    thread_id: str | None = None,
    trigger_message_id: str | None = None,
    branch: str | None = None,
) -> MessageRun:
    """
    An agent's visible answer becomes a message of the chat, with the run that made it and the checkpoint after it: one commit.

    Args:
        saver: A saver that is bound to the assistant. The checkpoint is the newest that the assistant has on the thread.
        chat_id: The chat.
        run_id: Your id of the run. It may be recorded already; then it ends with this answer.
        answer: The message, or its text. Give it an id if you may repeat the call.
        thread_id: The thread that the agent ran on; the one with the id of the chat when None.
        trigger_message_id: The message that set the run off; for a run that is not recorded yet.
        branch: Where the answer goes; the active branch when None.

    Raises:
        InvalidValueError: The saver is bound to no assistant.
        NotFoundError: The assistant has no checkpoint on that thread, or there is no such chat.
    """
    thread_id = chat_id if thread_id is None else thread_id
    assistant_id = None if saver.namespace is None else assistant_of(saver.namespace)
    if assistant_id is None:
        msg = "the saver is bound to no assistant, so whose answer it is cannot be told; use saver.for_assistant(...)"
        raise InvalidValueError(msg)
    state = saver.get_thread_state(thread_id)
    if state is None:
        msg = f"assistant {assistant_id!r} has no checkpoint on thread {thread_id!r}; run it first"
        raise NotFoundError(msg)
    checkpoint_id = state.checkpoint["checkpoint_id"]
    message = assistant(answer) if isinstance(answer, str) else answer
    if saver.ledger.get_run(chat_id, run_id) is not None:
        return saver.ledger.complete_run(chat_id, run_id, answer=message, branch=branch, checkpoint_id=checkpoint_id)
    return saver.ledger.record_run(
        chat_id,
        run_id,
        thread_id=thread_id,
        assistant_id=assistant_id,
        trigger_message_id=trigger_message_id,
        answer=message,
        branch=branch,
        checkpoint_id=checkpoint_id,
    )


def config_of_answer(saver: LedgerSaver, chat_id: str, message_id: str) -> RunnableConfig | None:
    """Return the config of the checkpoint after an answer, to go on or fork from it; None when no run made the message."""
    runs = [run for run in saver.ledger.runs(chat_id, message_id=message_id) if run.checkpoint_id is not None]
    if not runs:
        return None
    run = runs[-1]
    return {"configurable": {"thread_id": run.thread_id, "checkpoint_ns": "", "checkpoint_id": run.checkpoint_id}}


def config_of_message(
    saver: LedgerSaver, chat_id: str, message_id: str, *, thread_id: str | None = None
) -> RunnableConfig:
    """
    Return the config for a run that a message sets off: its agent begins with what it remembers on the branch of the message.

    That is what its last run on the chain before the message left. On a branch where the agent never ran it begins anew, and the
    lines of other branches stay as they are.

    Args:
        saver: A saver that is bound to the assistant.
        chat_id: The chat.
        message_id: The message, such as the trigger of a run that is repeated.
        thread_id: The thread that the agent runs on; the one with the id of the chat when None.

    Raises:
        InvalidValueError: The saver is bound to no assistant.
        ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or the message is not there.
    """
    if saver.namespace is None:
        msg = (
            "the saver is bound to no assistant, so whose memory is meant cannot be told; use saver.for_assistant(...)"
        )
        raise InvalidValueError(msg)
    thread_id = chat_id if thread_id is None else thread_id
    threads = Threads(saver.ledger)
    checkpoint_id = threads.beginning_of(thread_id, saver.namespace, chat_id=chat_id, message_id=message_id)
    named = {} if checkpoint_id is None else {"checkpoint_ns": "", "checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": thread_id, **named}}
