"""A ledger as a few dictionaries: what every method answers, refuses and writes, in the plainest words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.ledger_world import ANYWHERE

from chatledger import ChatledgerError, HeadConflictError, InvalidValueError
from chatledger.errors import (
    BranchExistsError,
    BranchNotFoundError,
    ChatExistsError,
    ChatNotFoundError,
    HeldError,
    LastBranchError,
    MessageConflictError,
    MessageNotFoundError,
    OwnerMismatchError,
    ParentNotFoundError,
    SelfParentError,
    WrongChatError,
)


class RefusedError(Exception):
    """An error that a model raises: the name of the ledger's error."""


def refuse(error: type[ChatledgerError]) -> RefusedError:
    return RefusedError(error.__name__)


@dataclass
class Node:
    parent: str | None
    data: Any
    is_redacted: bool = False
    event: int = 0
    merged: str | None = None

    def is_repeated_by(self, other: "Node") -> bool:
        """Whether another one would be no conflict: what was redacted is compared with nothing."""
        return self.parent == other.parent and (self.is_redacted or self.data == other.data)


@dataclass
class ModelChat:
    """`births` tells by its name which branch it is, whatever it was called before."""

    user: str
    title: str | None
    metadata: dict[str, Any] | None
    messages: dict[str, Node] = field(default_factory=dict[str, Node])
    branches: dict[str, str | None] = field(default_factory=lambda: {"main": None})
    births: dict[str, int] = field(default_factory=lambda: {"main": 0})
    active: str = "main"
    seen: list[str] = field(default_factory=lambda: ["main"])
    names: list[str] = field(default_factory=lambda: ["main"])
    checkpoints: dict[str, str] = field(default_factory=dict[str, str])
    events: int = 1

    def activate(self, name: str) -> None:
        """Make a branch the active one; `seen` has those that ever were, the last one last."""
        self.active = name
        self.seen = [*(one for one in self.seen if one != name), name]

    def by_seen(self, created: dict[str, int]) -> list[str]:
        """The branches, the one seen last first; `created` says when each was made."""
        unseen = sorted(set(self.branches) - set(self.seen), key=lambda name: (-created[name], name))
        return [*reversed(self.seen), *unseen]

    def chain(self, head: str | None) -> list[str]:
        found: list[str] = []
        while head is not None:
            found.append(head)
            head = self.messages[head].parent
        return found[::-1]

    def before(self, head: str | None) -> set[str]:
        """A message and all before it, with what was merged."""
        if head is None:
            return set()
        chain = self.chain(head)
        return set(chain).union(*(self.before(self.messages[message].merged) for message in chain))


Draft = dict[str, Any]
"""A message as it is sent: `name`, `data`, `id`, and sometimes `parent_id`."""


class Model:
    """A ledger as a few dictionaries. Answers and refusals are what the documentation of the methods says."""

    def __init__(self) -> None:
        self.chats: dict[str, ModelChat] = {}
        self.tombstones: dict[str, int] = {}
        self.holds: set[tuple[str, str]] = set()

    def chat(self, chat_id: str) -> ModelChat:
        if chat_id not in self.chats:
            raise refuse(ChatNotFoundError)
        return self.chats[chat_id]

    def branch(self, chat_id: str, name: str | None) -> tuple[ModelChat, str]:
        chat = self.chat(chat_id)
        name = chat.active if name is None else name
        if name not in chat.branches:
            raise refuse(BranchNotFoundError)
        return chat, name

    def is_elsewhere(self, chat_id: str, message_id: str) -> bool:
        return any(message_id in chat.messages for other, chat in self.chats.items() if other != chat_id)

    def target(self, chat_id: str, message_id: str | None) -> None:
        if message_id is None or message_id in self.chats[chat_id].messages:
            return
        raise refuse(WrongChatError if self.is_elsewhere(chat_id, message_id) else MessageNotFoundError)

    def events(self, chat_id: str) -> int:
        chat = self.chats.get(chat_id)
        return self.tombstones.get(chat_id, 0) + (0 if chat is None else chat.events)

    def create(self, chat_id: str, user: str, title: str | None, metadata: dict[str, Any] | None) -> str:
        if chat_id in self.chats:
            raise refuse(ChatExistsError)
        self.chats[chat_id] = ModelChat(user, title, metadata)
        self.chats[chat_id].events += bool(self.held(chat_id))  # the mark that it begins with
        return chat_id

    def upsert(self, chat_id: str, user: str, title: str | None, metadata: dict[str, Any] | None) -> str:
        if chat_id not in self.chats:
            self.create(chat_id, user, title, metadata)
        if self.chats[chat_id].user != user:
            raise refuse(OwnerMismatchError)
        return chat_id

    def update(self, chat_id: str, changes: dict[str, Any]) -> str:
        chat = self.chat(chat_id)
        if any(getattr(chat, name) != value for name, value in changes.items()):
            for name, value in changes.items():
                setattr(chat, name, value)
            chat.events += 1
        return chat_id

    def delete(self, chat_id: str, user: str | None) -> bool:
        chat = self.chats.get(chat_id)
        if chat is None or (user is not None and user != chat.user):
            return False
        if self.held(chat_id):
            raise refuse(HeldError)
        del self.chats[chat_id]
        self.tombstones[chat_id] = self.tombstones.get(chat_id, 0) + 1
        return True

    def held(self, chat_id: str) -> list[str]:
        """The kinds of the holds on a chat, that on itself first."""
        targets = (("chat", chat_id), ("user", self.chats[chat_id].user))
        return [target[0] for target in targets if target in self.holds]

    def hold(self, kind: str, held_id: str) -> list[str]:
        if kind == "chat":
            self.chat(held_id)
        if (kind, held_id) not in self.holds:
            self.holds.add((kind, held_id))
            self._mark(kind, held_id)
        return [kind, held_id]

    def release(self, kind: str, held_id: str) -> bool:
        if (kind, held_id) not in self.holds:
            return False
        self.holds.remove((kind, held_id))
        self._mark(kind, held_id)
        return True

    def _mark(self, kind: str, held_id: str) -> None:
        for chat_id, chat in self.chats.items():
            chat.events += held_id == (chat_id if kind == "chat" else chat.user)

    def append(
        self, chat_id: str, drafts: Sequence[Draft], branch: str | None, expected: tuple[str | None] | None
    ) -> list[str]:
        chat, name = self.branch(chat_id, branch)
        wanted = [draft["id"] for draft in drafts]
        head = chat.branches[name]
        if not drafts or self._stands(chat, drafts, head):
            return wanted
        if expected is not None and expected[0] != head:
            raise refuse(HeadConflictError)
        added: dict[str, Node] = {}
        for draft in drafts:
            message_id, named = draft["id"], draft.get("parent_id")
            if named == message_id:
                raise refuse(SelfParentError)
            if message_id in added or message_id in chat.messages or self.is_elsewhere(chat_id, message_id):
                raise refuse(MessageConflictError)
            if named is not None and named != head:
                if added:
                    raise refuse(InvalidValueError)
                if named not in chat.messages:
                    raise refuse(WrongChatError if self.is_elsewhere(chat_id, named) else ParentNotFoundError)
                raise refuse(HeadConflictError)
            added[message_id] = Node(head, draft["data"], event=chat.events)
            head = message_id
        chat.messages.update(added)
        chat.branches[name] = head
        chat.events += 1
        return wanted

    @staticmethod
    def _stands(chat: ModelChat, drafts: Sequence[Draft], head: str | None) -> bool:
        chain = chat.chain(head)
        wanted = [draft["id"] for draft in drafts]
        if wanted[0] not in chain:
            return False
        start = chain.index(wanted[0])
        return chain[start : start + len(wanted)] == wanted and all(
            chat.messages[draft["id"]].is_repeated_by(Node(chat.messages[draft["id"]].parent, draft["data"]))
            and draft.get("parent_id") in {None, chat.messages[draft["id"]].parent}
            for draft in drafts
        )

    def add(self, chat_id: str, drafts: Sequence[Draft]) -> list[str]:
        chat = self.chat(chat_id)
        added: dict[str, Node] = {}
        for draft in drafts:
            message_id, node = draft["id"], Node(draft.get("parent_id"), draft["data"], event=chat.events)
            if node.parent == message_id:
                raise refuse(SelfParentError)
            known = added.get(message_id) or chat.messages.get(message_id)
            if known is not None:
                if not known.is_repeated_by(node):
                    raise refuse(MessageConflictError)
                continue
            if self.is_elsewhere(chat_id, message_id):
                raise refuse(MessageConflictError)
            if node.parent is not None and node.parent not in added and node.parent not in chat.messages:
                raise refuse(ParentNotFoundError)
            added[message_id] = node
        if added:
            chat.messages.update(added)
            chat.events += 1
        return [draft["id"] for draft in drafts]

    def redact(self, message_id: str, keep: str | None) -> list[str]:
        chat_id = next((chat_id for chat_id, chat in self.chats.items() if message_id in chat.messages), None)
        if chat_id is None:
            raise refuse(MessageNotFoundError)
        if self.held(chat_id):
            raise refuse(HeldError)
        chat = self.chats[chat_id]
        node = chat.messages[message_id]
        if (node.is_redacted and node.data is None) or (keep is not None and node.data == keep):
            return []
        chat.messages[message_id] = Node(node.parent, keep, is_redacted=True, event=node.event)
        chat.events += 1
        return [message_id]

    def sweep(self, user: str, *, is_content: bool) -> list[str]:
        """Delete the chats of a user, or what they say; those that are held stay. The chats that went."""
        chat_ids = [chat_id for chat_id, chat in self.chats.items() if chat.user == user and not self.held(chat_id)]
        if not is_content:
            return [chat_id for chat_id in chat_ids if self.delete(chat_id, user)]
        for chat in map(self.chats.__getitem__, chat_ids):
            full = {one: node for one, node in chat.messages.items() if not (node.is_redacted and node.data is None)}
            chat.messages |= {
                one: Node(node.parent, None, is_redacted=True, event=node.event) for one, node in full.items()
            }
            chat.events += len({node.event for node in full.values()})
        return []

    def create_branch(self, chat_id: str, name: str, head: str | None, *, activate: bool) -> list[Any]:
        chat = self.chat(chat_id)
        self.target(chat_id, head)
        if name in chat.branches:
            raise refuse(BranchExistsError)
        chat.branches[name] = head
        chat.births[name] = len(chat.names)
        chat.names.append(name)
        if activate:
            chat.activate(name)
        chat.events += 1
        return [name, head, len(chat.chain(head)), activate]

    def fork(self, chat_id: str, message_id: str, *, activate: bool) -> list[Any]:
        chat = self.chat(chat_id)
        self.target(chat_id, message_id)
        base = chat.active
        stem, _, endings = base.partition("-v")
        if endings.count("-v"):  # `stem-v2-v2`; no other names have such endings here
            base = stem
        number = 1 + sum(name == base or name.startswith(f"{base}-v") for name in chat.names)
        while f"{base}-v{number}" in chat.branches:
            number += 1
        return self.create_branch(chat_id, f"{base}-v{number}", message_id, activate=activate)

    def merge(self, chat_id: str, source: str, into: str, draft: Draft) -> str:
        if source == into:
            raise refuse(InvalidValueError)
        chat, source = self.branch(chat_id, source)
        self.branch(chat_id, into)
        tip, head, message_id = chat.branches[source], chat.branches[into], draft["id"]
        if tip is None:
            raise refuse(InvalidValueError)
        if tip in chat.before(head):
            return "already_merged"
        if message_id in chat.messages or self.is_elsewhere(chat_id, message_id):
            raise refuse(MessageConflictError)
        chat.messages[message_id] = Node(head, draft["data"], event=chat.events, merged=tip)
        chat.branches[into] = message_id
        chat.events += 1
        return "merged"

    def activate(self, chat_id: str, name: str) -> str:
        chat, name = self.branch(chat_id, name)
        if chat.active != name:
            chat.activate(name)
            chat.events += 1
        return name

    def rename_branch(self, chat_id: str, name: str, new_name: str) -> str:
        chat, name = self.branch(chat_id, name)
        if name == new_name:
            return name
        if new_name in chat.branches:
            raise refuse(BranchExistsError)
        chat.branches[new_name] = chat.branches.pop(name)
        chat.births[new_name] = chat.births.pop(name)
        chat.names.append(new_name)
        chat.seen = [new_name if one == name else one for one in chat.seen]
        chat.active = new_name if chat.active == name else chat.active
        chat.events += 1
        return new_name

    def delete_branch(self, chat_id: str, name: str, created: dict[str, int]) -> bool:
        chat = self.chats.get(chat_id)
        if chat is None or name not in chat.branches:
            return False
        if len(chat.branches) == 1:
            raise refuse(LastBranchError)
        if chat.active == name:
            chat.activate(next(one for one in chat.by_seen(created) if one != name))
            chat.events += 1
        del chat.branches[name], chat.births[name]
        chat.seen = [one for one in chat.seen if one != name]
        chat.events += 1
        return True

    def show(self, message_id: str, created: dict[str, int]) -> str:
        chat_id = next((chat_id for chat_id, chat in self.chats.items() if message_id in chat.messages), None)
        if chat_id is None:
            raise refuse(MessageNotFoundError)
        chat = self.chats[chat_id]
        for name in chat.by_seen(created):
            if message_id in chat.chain(chat.branches[name]):
                return self.activate(chat_id, name)
        leaf: str | None = message_id
        while leaf is not None:
            message_id = leaf
            below = [other for other, node in chat.messages.items() if node.parent == leaf]
            leaf = below[-1] if below else None
        return str(self.fork(chat_id, message_id, activate=True)[0])

    def move(self, chat_id: str, name: str, message_id: str | None, expected: str | None, *, raises: bool) -> bool:
        chat, name = self.branch(chat_id, name)
        self.target(chat_id, message_id)
        if expected not in {ANYWHERE, chat.branches[name]}:
            if raises:
                raise refuse(HeadConflictError)
            return False
        if chat.branches[name] != message_id:
            chat.branches[name] = message_id
            chat.events += 1
        return True

    def set_checkpoint(self, chat_id: str, name: str, message_id: str) -> list[str]:
        chat = self.chat(chat_id)
        self.target(chat_id, message_id)
        chat.checkpoints[name] = message_id
        chat.events += 1
        return [name, message_id]

    def delete_checkpoint(self, chat_id: str, name: str) -> bool:
        chat = self.chats.get(chat_id)
        if chat is None or name not in chat.checkpoints:
            return False
        del chat.checkpoints[name]
        chat.events += 1
        return True


def answer_of(model: Callable[[], Any]) -> tuple[Any, str | None]:
    """The model's answer, or the name of its refusal."""
    try:
        return model(), None
    except RefusedError as refusal:
        return None, str(refusal)
