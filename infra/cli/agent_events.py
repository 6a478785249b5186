"""An event of a thread of agents in words: what it did, and nothing of the content."""

from chatledger.domain.agents.events import (
    AgentCheckpointPut,
    AgentCheckpointsDeleted,
    AgentContentPut,
    AgentThreadCopied,
    AgentThreadDeleted,
    AgentWritesPut,
)
from chatledger.domain.events import Body

from .output import count

AGENT_STYLES = {
    "agent_content_put": "cyan",
    "agent_checkpoint_put": "cyan",
    "agent_writes_put": "cyan",
    "agent_checkpoints_deleted": "red",
    "agent_thread_copied": "green",
    "agent_thread_deleted": "bold red",
}


def describe_agent_event(body: Body) -> str:
    """What an event of a thread did, in a few words; empty for other events."""
    match body:
        case AgentContentPut(pieces=pieces):
            return count(len(pieces), "piece")
        case AgentCheckpointPut() as put:
            below = "" if put.parent_id is None else f" after {put.parent_id}"
            return f"{put.checkpoint_id}{below}{_within(put.namespace)}, {count(len(put.pieces), 'new piece')}"
        case AgentWritesPut() as put:
            channels = ", ".join(dict.fromkeys(slot.channel for slot in put.writes))
            return f"{channels} at {put.checkpoint_id}{_within(put.namespace)}"
        case AgentCheckpointsDeleted() as deleted:
            parts = [f"namespace {name!r}" for name in deleted.namespaces]
            parts += [count(len(deleted.checkpoints), "checkpoint")] if deleted.checkpoints else []
            parts += [f"{count(len(deleted.skeletons), 'checkpoint')} reduced"] if deleted.skeletons else []
            return f"{', '.join(parts)} ({deleted.reason})"
        case AgentThreadCopied(source_thread_id=source, within=within):
            return f"from {source}" + ("" if within is None else _within(within))
        case AgentThreadDeleted() as deleted:
            return f"{count(deleted.checkpoint_count, 'checkpoint')} erased, {count(deleted.event_count, 'event')}"
        case _:
            return ""


def _within(namespace: str) -> str:
    return f" in {namespace}" if namespace else ""
