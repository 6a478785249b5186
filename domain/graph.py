"""The graph of a chat, from its messages and pointers."""

from collections.abc import Iterable

from .text import preview
from .values import Branch, Checkpoint, Graph, GraphBranch, GraphCheckpoint, GraphNode, Message


def make_graph(
    chat_id: str, messages: Iterable[Message], branches: Iterable[Branch], checkpoints: Iterable[Checkpoint]
) -> Graph:
    """The graph of these messages, which come in log order: nodes by `created_at`, ties as they come."""
    return Graph(
        chat_id=chat_id,
        nodes=[
            GraphNode(
                id=message.id,
                parent_id=message.parent_id,
                role=message.name,
                content=preview(message.data),
                created_at=message.created_at,
            )
            for message in sorted(messages, key=lambda message: message.created_at)
        ],
        branches=[
            GraphBranch(name=branch.name, head_message_id=branch.head_message_id, is_active=branch.is_active)
            for branch in branches
        ],
        checkpoints=[
            GraphCheckpoint(name=checkpoint.name, message_id=checkpoint.message_id) for checkpoint in checkpoints
        ],
    )
