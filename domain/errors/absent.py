"""What is not there."""

from .base import ChatledgerError, NotFoundError


class ChatNotFoundError(NotFoundError):
    """The chat does not exist, or is not yours to see."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(f"no chat {chat_id!r}; create it with create_chat or upsert_chat")
        self.chat_id = chat_id


class MessageNotFoundError(NotFoundError):
    """The message does not exist, or is not yours to see."""

    def __init__(self, message_id: str, *, chat_id: str | None = None) -> None:
        where = "" if chat_id is None else f" in chat {chat_id!r}"
        super().__init__(f"no message {message_id!r}{where}")
        self.message_id, self.chat_id = message_id, chat_id


class ParentNotFoundError(MessageNotFoundError):
    """The parent is stored neither in this chat nor earlier in the same call. Nothing was written."""

    def __init__(self, message_id: str, *, parent_id: str, chat_id: str) -> None:
        super().__init__(parent_id, chat_id=chat_id)
        self.args = (
            (
                f"message {message_id!r} names the parent {parent_id!r}, which is not in chat {chat_id!r}; "
                "parents come before their children"
            ),
        )
        self.message_id, self.parent_id = message_id, parent_id


class BranchNotFoundError(NotFoundError):
    """The chat has no branch of that name."""

    def __init__(self, chat_id: str, branch: str) -> None:
        super().__init__(f"chat {chat_id!r} has no branch {branch!r}; list_branches shows what it has")
        self.chat_id, self.branch = chat_id, branch


class CheckpointNotFoundError(NotFoundError):
    """The chat has no checkpoint of that name."""

    def __init__(self, chat_id: str, checkpoint: str) -> None:
        super().__init__(f"chat {chat_id!r} has no checkpoint {checkpoint!r}; list_checkpoints shows what it has")
        self.chat_id, self.checkpoint = chat_id, checkpoint


class RunNotFoundError(NotFoundError):
    """The chat has no such run."""

    def __init__(self, chat_id: str, run_id: str) -> None:
        super().__init__(f"chat {chat_id!r} has no run {run_id!r}; record it first")
        self.chat_id, self.run_id = chat_id, run_id


class RegenerationNotFoundError(NotFoundError):
    """The chat has no such regeneration."""

    def __init__(self, chat_id: str, regeneration_id: str) -> None:
        super().__init__(f"chat {chat_id!r} has no regeneration {regeneration_id!r}; begin_regeneration makes one")
        self.chat_id, self.regeneration_id = chat_id, regeneration_id


class ModelNotFoundError(NotFoundError):
    """There are no prices and limits of that model."""

    def __init__(self, model_id: str) -> None:
        super().__init__(f"no model {model_id!r}; give its prices and limits in the table of models")
        self.model_id = model_id


class WrongChatError(ChatledgerError):
    """The message belongs to another chat. Nothing was written."""

    def __init__(self, message_id: str, *, chat_id: str) -> None:
        super().__init__(f"message {message_id!r} does not belong to chat {chat_id!r}")
        self.message_id, self.chat_id = message_id, chat_id


class EmptyChatError(ChatledgerError):
    """The branch has no stored message yet."""

    def __init__(self, chat_id: str, branch: str) -> None:
        super().__init__(f"branch {branch!r} of chat {chat_id!r} has no stored message yet; append one first")
        self.chat_id, self.branch = chat_id, branch
