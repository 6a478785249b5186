"""Events as a writer makes them: decided on the replayed chat, encoded, numbered, and replayed."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET
from tests.support.salts import salts

from chatledger.domain.chat.decide_branches import (
    decide_activate,
    decide_create_branch,
    decide_delete_branch,
    decide_delete_checkpoint,
    decide_fork,
    decide_move_head,
    decide_rename_branch,
    decide_set_checkpoint,
    decide_show,
)
from chatledger.domain.chat.decide_chats import decide_create_chat, decide_delete_chat, decide_update_chat
from chatledger.domain.chat.decide_messages import decide_add_messages, decide_append
from chatledger.domain.chat.events import Body, Recorded
from chatledger.domain.chat.members import ROLES, decide_remove_member, decide_set_member
from chatledger.domain.chat.merging import PlannedMerge, decide_merge, merged_up_to
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.chat.runs import MessageRun, RegenerationRecord
from chatledger.domain.chat.state import stream_head
from chatledger.domain.log.codec import EncodedEvent, Envelope, encode_events
from chatledger.domain.values import ANY, NewMessage

CHAT = "chat-1"


class Neighboured(ReplayedChat):
    """A chat that knows which message ids other chats use."""

    def __init__(self, chat_id: str, elsewhere: Sequence[str] = ()) -> None:
        super().__init__(chat_id)
        self.elsewhere = elsewhere

    def is_elsewhere(self, message_id: str) -> bool:
        """Whether another chat has a message of this id."""
        return message_id in self.elsewhere

    # An index cannot look for what has no id, so nothing may ask it to.

    def has_message(self, message_id: str) -> bool:
        """Whether the chat has that message."""
        assert isinstance(message_id, str)
        return super().has_message(message_id)

    def run(self, run_id: str) -> MessageRun | None:
        """The run of that id."""
        assert isinstance(run_id, str)
        return super().run(run_id)

    def regeneration(self, regeneration_id: str) -> RegenerationRecord | None:
        """The regeneration of that id."""
        assert isinstance(regeneration_id, str)
        return super().regeneration(regeneration_id)


def user(message_id: str, data: Any = "hello", **rest: Any) -> NewMessage:
    """A draft with an id."""
    return NewMessage("user", data, id=message_id, **rest)


def neighboured(*elsewhere: str) -> "Story":
    """A story whose chat knows that other chats use these message ids."""
    story = Story()
    story.chats[CHAT] = Neighboured(CHAT, elsewhere)
    return story


Command = tuple[str, int, int, int]
"""The kind of a command, and three numbers that choose the operands among those that exist."""

KINDS = (
    *("append",) * 6,
    *("add",) * 3,
    *("fork", "branch", "activate", "move", "merge") * 2,
    *("checkpoint", "drop", "update", "delete"),
    *("rename", "unbranch", "show", "join", "leave"),
)
small = st.integers(0, 7)
commands = st.lists(st.tuples(st.sampled_from(KINDS), small, small, small), max_size=30)


class Story:
    """A log in memory: what was written, and every chat as it stands."""

    def __init__(self) -> None:
        self.events: list[Recorded] = []
        self.encoded: list[EncodedEvent] = []
        self.chats: dict[str, ReplayedChat] = {}
        self.time = 1_700_000_000_000
        self._ids = 0

    def new_id(self, kind: str = "m") -> str:
        """An id that no other thing of the story has."""
        self._ids += 1
        return f"{kind}{self._ids}"

    def chat(self, chat_id: str = CHAT) -> ReplayedChat:
        """The chat as it stands."""
        return self.chats.setdefault(chat_id, Neighboured(chat_id))

    def encode(self, bodies: Sequence[Body], chat_id: str = CHAT, *, command_id: str | None = None) -> list[Recorded]:
        """The events that would be written next."""
        head = stream_head(self.chat(chat_id))
        encoded = encode_events(
            bodies,
            stream_id=chat_id,
            version=head.version,
            previous_hash=head.hash,
            occurred_at=self.time,
            event_ids=[self.new_id("e") for _ in bodies],
            salts=salts(1000 * len(self.events)),
            envelope=Envelope(actor="ada", command_id=command_id),
        )
        self.encoded.extend(encoded)
        return [
            Recorded(position, event.event, event.hash) for position, event in enumerate(encoded, len(self.events) + 1)
        ]

    def write(self, bodies: Sequence[Body], chat_id: str = CHAT, *, command_id: str | None = None) -> list[Recorded]:
        """Put events on the log and fold them."""
        recorded = self.encode(bodies, chat_id, command_id=command_id)
        for event in recorded:
            self.chat(chat_id).apply(event)
            self.events.append(event)
        self.time += 1
        return recorded

    def create(self, chat_id: str = CHAT, *, user_id: str = "ada", **rest: Any) -> list[Recorded]:
        """A new chat."""
        known: dict[str, Any] = {"title": None, "metadata": None, **rest}
        body = decide_create_chat(self.chat(chat_id), user_id=user_id, branch_id=self.new_id("b"), **known)
        return self.write(body, chat_id)

    def append(self, *drafts: NewMessage, chat_id: str = CHAT, branch: str | None = None) -> list[Recorded]:
        """Messages at the head of a branch."""
        chat = self.chat(chat_id)
        return self.write(decide_append(chat, self.time, drafts=drafts, branch=branch, expected_head=UNSET), chat_id)

    def add(self, *drafts: NewMessage, chat_id: str = CHAT) -> list[Recorded]:
        """Messages with explicit parents."""
        return self.write(decide_add_messages(self.chat(chat_id), drafts, now=self.time), chat_id)

    def chain(self, *message_ids: str, chat_id: str = CHAT) -> "Story":
        """A chat with these messages on `main`, one event for each."""
        self.create(chat_id)
        for message_id in message_ids:
            self.append(user(message_id), chat_id=chat_id)
        return self

    def delete(self, chat_id: str = CHAT) -> list[Recorded]:
        """The tombstone of a chat."""
        return self.write(decide_delete_chat(self.chat(chat_id), user_id=None), chat_id)

    def obey(self, command: Command, chat_id: str = CHAT) -> list[Recorded]:
        """Carry out a command, on operands that make it valid; creates the chat when there is none."""
        kind, a, b, c = command
        chat = self.chat(chat_id)
        if chat.record is None:
            return self.create(chat_id, user_id=f"user{a % 3}", title=f"t{b}", metadata={"n": c, "flag": bool(c % 2)})
        bodies = self._decide(chat, kind, a, b, c)
        return self.write(bodies, chat_id, command_id=f"command {len(self.events)}" if c % 2 else None)

    def _decide(self, chat: ReplayedChat, kind: str, a: int, b: int, c: int) -> list[Body]:
        messages, branches = chat.messages, chat.branches
        branch = branches[a % len(branches)].name
        target = messages[(a * 8 + b) % len(messages)].id if messages else None
        if kind == "append":
            drafts = [user(self.new_id(), "x" * (b * 2000 if c == 7 else b)) for _ in range(1 + c % 3)]
            return decide_append(chat, self.time, drafts=drafts, branch=branch, expected_head=UNSET)
        if kind == "add":
            first = user(self.new_id(), {"a": [b, None, True]}, parent_id=None if c == 0 else target)
            second = user(self.new_id(), None, parent_id=first.id)
            return decide_add_messages(chat, [first, second][: 1 + c % 2], now=self.time)
        if kind == "branch":
            head, name = None if c == 0 else target, self.new_id("branch")
            return self._new_branch(chat, name, head, activate=b % 2 == 0)
        if kind == "fork" and target is not None:
            new_id = self.new_id("b")
            activate = c % 2 == 0
            return decide_fork(chat, target, activate=activate, branch_id=new_id, created_at=self.time, base=branch)
        if kind == "merge":
            source = branches[b % len(branches)].head_message_id
            if source is None:
                return []
            merge = PlannedMerge(
                id=self.new_id("merge"),
                source_head=source,
                into=branch,
                how="rebase" if c % 2 else "summary",
                summary=user(self.new_id(), "so it was"),
                summed_up_behind=merged_up_to(chat, source, branches[a % len(branches)].head_message_id),
            )
            return decide_merge(chat, self.time, merge)
        if kind == "activate":
            return decide_activate(chat, branch)
        if kind == "move":
            return decide_move_head(chat, branch, None if c == 0 else target, expected=ANY)
        if kind == "checkpoint" and target is not None:
            new_id = self.new_id("cp")
            return decide_set_checkpoint(chat, f"cp{c % 3}", target, checkpoint_id=new_id, created_at=self.time)
        if kind == "drop":
            return decide_delete_checkpoint(chat, f"cp{c % 3}")
        if kind == "rename":
            return decide_rename_branch(chat, branch, self.new_id("renamed") if c else branch)
        if kind == "unbranch" and len(branches) > 1:
            return decide_delete_branch(chat, branch)
        if kind == "show" and target is not None:
            return decide_show(chat, target, branch_id=self.new_id("b"), created_at=self.time)
        if kind == "join" and chat.role_of(member := f"user{a % 4}") != "owner":
            return decide_set_member(chat, member, ROLES[b % 2])
        if kind == "leave":
            return decide_remove_member(chat, f"user{a % 4}")
        if kind == "update":
            return decide_update_chat(chat, title=f"t{a}", metadata={"n": b} if c else None)
        if kind == "delete" and c >= 4:
            return decide_delete_chat(chat, user_id=None)
        return []

    def _new_branch(self, chat: ReplayedChat, name: str, head: str | None, *, activate: bool) -> list[Body]:
        new_id = self.new_id("b")
        return decide_create_branch(chat, name, head, activate=activate, branch_id=new_id, created_at=self.time)


def tell(script: Sequence[Command], chat_ids: Sequence[str] = (CHAT,)) -> Story:
    """The story of a script; each command goes to the next of the chats."""
    story = Story()
    for number, command in enumerate(script):
        story.obey(command, chat_ids[(number + command[1]) % len(chat_ids)])
    return story
