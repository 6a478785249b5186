"""
Memory: the state that an agent begins with at a message of a branch, and the runs whose memory goes on from others'.

The runs on a branch know their checkpoints, and the checkpoints of a thread their parents.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ..versioned.keys import ASSISTANT, root_of
from ..versioned.record import BEGINNING, VersionedState, ancestors
from .runs import MessageRun
from .state import ChatState


def beginning_of(chat: ChatState, thread: VersionedState, namespace: str, message_id: str) -> str | None:
    """
    Return the checkpoint at which a run begins that a message sets off: what the last run on its chain left in the namespace.

    What came after that and is of no other branch, such as an update of the state, counts with it. None stands for the newest
    checkpoint: that is not named, so that another process which goes on from it at the same time is noticed. Where no run
    left anything on the chain, it is `BEGINNING`.

    Costs O(runs of the chat) where the newest is that of another branch, and looks back along the chain to the last run.
    """
    # Not simply the newest: that may be of another branch, which said what this one has not heard.
    newest = thread.newest(namespace)
    if newest is None:
        return None

    def is_stored(run: MessageRun) -> bool:
        record = None if run.checkpoint_id is None else thread.version(namespace, run.checkpoint_id)
        # Of a pruned checkpoint that others stand on, only the skeleton is left: no state to begin with.
        return run.thread_id == thread.key and record is not None and record.skeleton is None

    last = next((run.checkpoint_id for run in _on_chain(chat, message_id) if is_stored(run)), None)
    if newest.id == last:
        return None
    left = _by_checkpoint(run for run in chat.runs() if run.thread_id == thread.key and _is_of_message(run))
    for record in (newest, *ancestors(newest, partial(thread.version, namespace))):
        if record.id == last:
            return None
        maker = None if record.run_id is None else chat.run(record.run_id)
        makers = left.get(record.id) or ([] if maker is None or not _is_of_message(maker) else [maker])
        if makers and not any(_is_on_chain(chat, run, message_id) for run in makers):
            return last or BEGINNING
    return last


def lineage_of(
    chat: ChatState, runs: Sequence[MessageRun], thread_of: Callable[[str], VersionedState]
) -> dict[str, str]:
    """
    Return by the id of each run that of the run whose memory it went on from; nothing for those that began anew.

    It is the run that left the nearest checkpoint before. Where that was pruned, it is taken to be the last one of the same
    assistant on the chain of the trigger. Costs O(checkpoints of the threads).
    """
    by_thread: defaultdict[str, list[MessageRun]] = defaultdict(list)
    for run in runs:
        by_thread[run.thread_id].append(run)
    lineage: dict[str, str] = {}
    for thread_id, own in by_thread.items():
        thread, left = thread_of(thread_id), _by_checkpoint(own)
        roots = [name for name in thread.lines() if root_of(name) in {"", name}]
        for run in own if roots else ():
            before = _before(chat, run, thread, roots, left)
            if before is not None:
                lineage[run.run_id] = before.run_id
    return lineage


def _before(
    chat: ChatState, run: MessageRun, thread: VersionedState, roots: Sequence[str], left: Mapping[str, list[MessageRun]]
) -> MessageRun | None:
    """Return the run whose memory another one went on from."""
    if run.checkpoint_id is None:
        return None
    anchor = run.trigger_message_id or run.message_id
    own_root = ASSISTANT + run.assistant_id
    for namespace in (own_root, *roots):
        record = thread.version(namespace, run.checkpoint_id)
        if record is None:
            continue
        oldest = record
        for oldest in ancestors(record, partial(thread.version, namespace)):
            makers = left.get(oldest.id)
            if makers:
                # A run that was carried over to another branch left the same checkpoint as its original.
                of_branch = (maker for maker in makers if anchor is not None and _is_on_chain(chat, maker, anchor))
                return next(of_branch, makers[0])
        if oldest.parent is None:
            return None
        break
    if own_root not in roots or anchor is None:
        return None
    earlier = (before for before in _on_chain(chat, anchor) if before.thread_id == thread.key)
    return next(
        (
            before
            for before in earlier
            if before.run_id != run.run_id and before.assistant_id == run.assistant_id and before.checkpoint_id
        ),
        None,
    )


def _by_checkpoint(runs: Iterable[MessageRun]) -> dict[str, list[MessageRun]]:
    left: defaultdict[str, list[MessageRun]] = defaultdict(list)
    for run in runs:
        if run.checkpoint_id is not None:
            left[run.checkpoint_id].append(run)
    return dict(left)


def _is_of_message(run: MessageRun) -> bool:
    """Whether it belongs to a branch; a run that only continues a thread belongs to all."""
    return run.trigger_message_id is not None or run.message_id is not None


def _on_chain(chat: ChatState, message_id: str) -> Iterator[MessageRun]:
    """Yield the runs on the chain of a message, those of the messages nearest to it first; see `_is_on_chain`."""
    at: str | None = message_id
    while at is not None:
        yield from reversed(chat.runs(message_id=at))
        for run in reversed(chat.runs(trigger_message_id=at)):
            if run.message_id != at and _is_on_chain(chat, run, message_id):
                yield run
        message = chat.message(at)
        at = None if message is None else message.parent_id


def _is_on_chain(chat: ChatState, run: MessageRun, message_id: str) -> bool:
    """
    Whether what a run heard and said is on the chain of a message: its answer, or without one its trigger.

    An answer counts too that came after the message, which was sent meanwhile. A run that the message itself set off does not:
    it is about to be answered anew.
    """
    answer, trigger = run.message_id, run.trigger_message_id
    if answer is not None and chat.is_ancestor(answer, message_id):
        return True
    if trigger is None or trigger == message_id or not chat.is_ancestor(trigger, message_id):
        return False
    return answer is None or chat.is_ancestor(message_id, answer)
