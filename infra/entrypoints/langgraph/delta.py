"""Delta channels: the writes on the way to a checkpoint, and the value that they start from."""

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory

from chatledger.domain.thread.record import ancestors
from chatledger.projections.thread.reader import IndexedThread, load_contents

from .reader import Reader


def delta_history(
    thread: IndexedThread, namespace: str, checkpoint_id: str | None, channels: Sequence[str], reader: Reader
) -> Mapping[str, DeltaChannelHistory]:
    """
    Of each channel its writes at the ancestors of a checkpoint, oldest first, up to the nearest ancestor with a value of it.

    That value is the seed, and that ancestor's own writes come after it; None is no seed, as the channel is empty there. Only
    ancestors count: forks share the namespace.
    """
    target = thread.latest(namespace) if checkpoint_id is None else thread.checkpoint(namespace, checkpoint_id)
    line = () if target is None else ancestors(target, lambda some_id: thread.checkpoint(namespace, some_id))
    backwards: dict[str, list[tuple[str, str, bytes]]] = {channel: [] for channel in channels}
    seeds: dict[str, bytes] = {}
    remaining = set(channels)
    for at in line:
        for write in reversed(thread.writes(namespace, at.checkpoint_id)):
            if write.channel in remaining:
                backwards[write.channel].append((write.task_id, write.channel, write.digest))
        for channel in [channel for channel in remaining if channel in at.channels]:
            seeds[channel] = at.channels[channel]
            remaining.discard(channel)
        if not remaining:
            break
    roots = [*seeds.values(), *(digest for writes in backwards.values() for _, _, digest in writes)]
    pieces = load_contents(thread, roots, reader.is_known, {})
    history: dict[str, DeltaChannelHistory] = {}
    for channel in channels:
        writes: list[tuple[str, str, Any]] = [
            (task_id, name, reader.decode(digest, pieces)) for task_id, name, digest in reversed(backwards[channel])
        ]
        entry: DeltaChannelHistory = {"writes": writes}
        seed: Any = reader.decode(seeds[channel], pieces) if channel in seeds else None
        if seed is not None:
            entry["seed"] = seed
        history[channel] = entry
    return history
