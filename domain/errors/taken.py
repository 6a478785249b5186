"""Names and ids that are taken."""

from .base import AlreadyExistsError


class ChatExistsError(AlreadyExistsError):
    """A chat with that id exists already. Nothing was written."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(f"chat {chat_id!r} exists already; upsert_chat returns the existing one")
        self.chat_id = chat_id


class BranchExistsError(AlreadyExistsError):
    """The chat has a branch of that name already. Nothing was written."""

    def __init__(self, chat_id: str, branch: str) -> None:
        super().__init__(
            f"chat {chat_id!r} has a branch {branch!r} already; choose another name, or let fork choose one"
        )
        self.chat_id, self.branch = chat_id, branch


class MessageConflictError(AlreadyExistsError):
    """The message id exists with other content, or in another chat. Nothing was written; messages never change."""

    def __init__(self, message_id: str, *, chat_id: str, other_chat: bool = False) -> None:
        why = "is used in another chat" if other_chat else "exists with other content or another parent"
        super().__init__(f"message id {message_id!r} {why}; chat {chat_id!r} was not changed, use a new id")
        self.message_id, self.chat_id, self.other_chat = message_id, chat_id, other_chat


class CheckpointExistsError(AlreadyExistsError):
    """The id of a checkpoint stands for another content or parent. Nothing was written; checkpoints never change."""

    def __init__(self, thread_id: str, namespace: str, checkpoint_id: str) -> None:
        super().__init__(
            f"checkpoint {checkpoint_id!r} of thread {thread_id!r} (namespace {namespace!r}) is stored with other content or "
            "another parent, and was not changed; give what is new an id of its own"
        )
        self.thread_id, self.namespace, self.checkpoint_id = thread_id, namespace, checkpoint_id


class RunConflictError(AlreadyExistsError):
    """The run id, or that of a regeneration, stands for something else in the chat. Nothing was written."""

    def __init__(self, chat_id: str, run_id: str, *, why: str) -> None:
        super().__init__(f"{run_id!r} of chat {chat_id!r} {why}")
        self.chat_id, self.run_id = chat_id, run_id
