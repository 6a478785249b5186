"""
The main test: whatever is done to a ledger, by whom and in whatever order, it agrees with a few dictionaries.

`CHATLEDGER_SOAK=1` runs it for longer. A failure prints the steps; `@reproduce_failure` repeats them.
"""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.faults.deaths import kill, server_pid
from tests.model.ledger_model import Draft, Model, answer_of
from tests.support.ledger_world import ANYWHERE, Outcome, Worker, check_chat, check_lists, perform, snapshot
from tests.support.soak import IS_SOAK

import chatledger
from chatledger import Ledger
from chatledger.domain.legal_hold import HoldKind, LegalHold

CHATS, MESSAGES, BRANCHES, CHECKPOINTS = 4, 24, 5, 3


@dataclass
class Call:
    """One call: how to make it, what the model says to it, and how to look at the answer."""

    method: str
    args: list[Any]
    kwargs: dict[str, Any]
    model: Callable[[], Any]
    view: Callable[[Any], Any] = lambda answer: answer
    chat_id: str = ""

    def __post_init__(self) -> None:
        self.chat_id = self.chat_id or self.args[0]


@dataclass
class Command:
    """A call that was carried out under an id, its answer, and the birth of the branch that this names."""

    call: Call
    command_id: str
    answer: Any
    branch: int | None


class World:
    """The ledgers of one test run: the server starts once, examples use new chats."""

    here: Ledger
    beside: Ledger | None = None
    worker: Worker | None = None
    path: Path | None = None

    @classmethod
    def reopen(cls) -> None:
        assert cls.path is not None
        cls.here.close()
        cls.here = chatledger.open(cls.path, durability="fast", erase="soon")


numbers = st.integers(0, 2**16)
datas = st.sampled_from(["one", "two", None, {"parts": [{"type": "text", "text": "x"}]}, [1, 2.5, True]])
titles = st.sampled_from([None, "", "a title"])
metadatas = st.sampled_from([None, {}, {"a": 1}, {"a": True, "b": [None]}])
users = st.integers(0, 1)
chats = st.integers(0, CHATS - 1)
fresh = st.tuples(st.booleans(), st.integers(0, MESSAGES - 1), datas)


class LedgerMachine(RuleBasedStateMachine):
    """The ledger agrees with the model after each step, and keeps every promise of the design."""

    is_memory: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.name = uuid.uuid4().hex
        self.model = Model()
        self.last: Call | None = None
        self.commands: dict[str, list[Command]] = {}
        self.checkpoint_ids: dict[tuple[str, str], str] = {}
        self.counter = 0

    # What steps are made of

    def chat_id(self, number: int) -> str:
        return f"chat {number} {self.name}"

    def message_id(self, number: int) -> str:
        return f"m{number}.{self.name}"

    def user(self, number: int) -> str:
        return f"user {number} {self.name}"

    def branch_name(self, number: int) -> str:
        return ["main", "main-v2", "draft", "draft-v2", "main-v3"][number % BRANCHES]

    def new_message_id(self) -> str:
        self.counter += 1
        return f"n{self.counter}.{self.name}"

    def pick(self, chat_id: str, number: int) -> str:
        """A message, mostly of that chat."""
        chat = self.model.chats.get(chat_id)
        known = [] if chat is None else list(chat.messages)
        if number % 8 == 0 or not known:
            return self.message_id(number % MESSAGES)
        return known[number % len(known)]

    def pick_branch(self, chat_id: str, number: int) -> str:
        chat = self.model.chats.get(chat_id)
        if number % 8 == 0 or chat is None:
            return self.branch_name(number)
        return list(chat.branches)[number % len(chat.branches)]

    def head(self, chat_id: str, branch: str | None) -> str | None:
        chat = self.model.chats.get(chat_id)
        return None if chat is None else chat.branches.get(chat.active if branch is None else branch)

    def do(self, call: Call, writer: int, *, is_repeated: bool = False) -> None:
        """Make a call, of every other writer under an id, and compare its outcome with the model's."""
        self.last = call
        chat_id = call.chat_id
        before = self.model.events(chat_id), self.model.tombstones.get(chat_id, 0)
        kwargs = dict(call.kwargs)
        command_id = uuid.uuid4().hex if writer % 2 and not is_repeated else None
        if command_id is not None:
            kwargs["command_id"] = command_id
        outcome = self.send(writer, call.method, call.args, kwargs)
        expected, refusal = answer_of(call.model)
        if refusal is not None:
            assert outcome[:2] == ["error", refusal], outcome
            return
        assert outcome[0] == "ok", outcome
        answer = call.view(outcome[1])
        if call.method == "set_checkpoint":
            self.check_checkpoint_id(outcome[1])
        assert answer == expected
        if before != (self.model.events(chat_id), self.model.tombstones.get(chat_id, 0)):
            self.note(call, command_id, answer)

    def note(self, call: Call, command_id: str | None, answer: Any) -> None:
        chat_id = call.chat_id
        if call.method in {"delete_chat", "create_chat", "upsert_chat"}:
            self.commands[chat_id] = []
            self.checkpoint_ids = {key: value for key, value in self.checkpoint_ids.items() if key[0] != chat_id}
        if command_id is not None:
            branch = self.model.chats[chat_id].births[answer] if call.method in _OF_A_BRANCH else None
            self.commands.setdefault(chat_id, []).append(Command(call, command_id, answer, branch))

    def send(self, writer: int, method: str, args: list[Any], kwargs: dict[str, Any]) -> Outcome:
        if World.worker is not None and writer % 3 == 2:
            return World.worker.call(method, *args, **kwargs)
        ledger = World.beside if World.beside is not None and writer % 3 == 1 else World.here
        # Through JSON and back, as to another process: what is sent is never what is stored.
        sent, named = json.loads(json.dumps([args, kwargs]))
        return cast("Outcome", json.loads(json.dumps(perform(ledger, method, sent, named))))

    # Chats

    @initialize(roots=st.lists(st.integers(0, 3), min_size=2, max_size=3))
    def begin(self, roots: list[int]) -> None:
        """Most calls meet a chat that exists and has messages; the last one is mostly unknown."""
        for chat, count in enumerate(roots):
            self.create_chat(chat=chat, user=chat % 2, title=None, metadata=None, writer=0, upsert=False)
            drafts = [(True, 0, "root")] * (count + 1)
            self.append(chat=chat, drafts=drafts, branch=None, expected="right", parent="none", number=1, writer=chat)

    @rule(
        chat=chats,
        user=users,
        title=titles,
        metadata=metadatas,
        writer=numbers,
        upsert=st.booleans(),
    )
    def create_chat(
        self,
        chat: int,
        user: int,
        title: str | None,
        metadata: dict[str, Any] | None,
        writer: int,
        upsert: bool,  # noqa: FBT001 - drawn by name
    ) -> None:
        chat_id, user_id = self.chat_id(chat), self.user(user)
        model = self.model.upsert if upsert else self.model.create
        call = Call(
            "upsert_chat" if upsert else "create_chat",
            [chat_id, user_id],
            {"title": title, "metadata": metadata},
            lambda: model(chat_id, user_id, title, metadata),
            itemgetter("id"),
        )
        self.do(call, writer)

    @rule(
        chat=chats,
        title=st.none() | titles.map(lambda t: (t,)),
        metadata=st.none() | metadatas.map(lambda m: (m,)),
        writer=numbers,
    )
    def update_chat(
        self, chat: int, title: tuple[str | None] | None, metadata: tuple[dict[str, Any] | None] | None, writer: int
    ) -> None:
        chat_id = self.chat_id(chat)
        changes: dict[str, Any] = {}
        if title is not None:
            changes["title"] = title[0]
        if metadata is not None:
            changes["metadata"] = metadata[0]
        given = {"replace_metadata" if name == "metadata" else name: value for name, value in changes.items()}
        call = Call("update_chat", [chat_id], given, lambda: self.model.update(chat_id, changes), itemgetter("id"))
        self.do(call, writer)

    @rule(chat=chats, user=st.none() | users, writer=numbers, is_meant=st.integers(0, 5))
    def delete_chat(self, chat: int, user: int | None, writer: int, is_meant: int) -> None:
        chat_id = self.chat_id(chat)
        if is_meant:
            return  # chats that are always deleted stay small
        user_id = None if user is None else self.user(user)
        call = Call(
            "delete_chat",
            [chat_id],
            {"user_id": user_id},
            lambda: self.model.delete(chat_id, user_id),
        )
        self.do(call, writer)

    def target(self, chat: int, user: int | None) -> list[str]:
        return ["chat", self.chat_id(chat)] if user is None else ["user", self.user(user)]

    @rule(chat=chats, user=st.none() | users, writer=numbers)
    def hold(self, chat: int, user: int | None, writer: int) -> None:
        target = self.target(chat, user)
        call = Call(
            "hold",
            target,
            {},
            lambda: self.model.hold(*target),
            lambda answer: [answer["kind"], answer["id"]],
            self.chat_id(chat),
        )
        self.do(call, 2 * writer)  # under no id: what is put twice is put once

    @rule(chat=chats, user=st.none() | users, writer=numbers)
    def release(self, chat: int, user: int | None, writer: int) -> None:
        target = self.target(chat, user)
        call = Call("release", target, {}, lambda: self.model.release(*target), chat_id=self.chat_id(chat))
        self.do(call, 2 * writer)

    # Messages

    @rule(
        chat=chats,
        drafts=st.lists(fresh, max_size=4),
        branch=st.none() | numbers,
        expected=st.sampled_from(["none", "right", "other", "empty"]),
        parent=st.sampled_from(["none", "none", "right", "other"]),
        number=numbers,
        writer=numbers,
    )
    def append(
        self,
        chat: int,
        drafts: list[tuple[bool, int, Any]],
        branch: int | None,
        expected: str,
        parent: str,
        number: int,
        writer: int,
    ) -> None:
        chat_id = self.chat_id(chat)
        name = None if branch is None else self.pick_branch(chat_id, branch)
        messages = self.drafts(drafts)
        if messages and parent != "none":
            messages[0]["parent_id"] = self.head(chat_id, name) if parent == "right" else self.pick(chat_id, number)
        heads: dict[str, str | None] = {
            "right": self.head(chat_id, name),
            "other": self.pick(chat_id, number),
            "empty": None,
        }
        kwargs: dict[str, Any] = {"branch": name}
        given: tuple[str | None] | None = None
        if expected in heads:
            kwargs["expected_head"] = heads[expected]
            given = (heads[expected],)
        call = Call(
            "append",
            [chat_id, messages],
            kwargs,
            lambda: self.model.append(chat_id, messages, name, given),
            _ids_view,
        )
        self.do(call, writer)

    def drafts(self, drawn: list[tuple[bool, int, Any]]) -> list[Draft]:
        return [
            {"name": "user", "data": data, "id": self.new_message_id() if is_new else self.message_id(number)}
            for is_new, number, data in drawn
        ]

    @rule(chat=chats, drafts=st.lists(st.tuples(fresh, numbers), max_size=5), writer=numbers)
    def add_messages(self, chat: int, drafts: list[tuple[tuple[bool, int, Any], int]], writer: int) -> None:
        chat_id = self.chat_id(chat)
        messages = self.drafts([draft for draft, _ in drafts])
        for index, (message, (_, number)) in enumerate(zip(messages, drafts, strict=True)):
            if number % 16 == 15:
                message["parent_id"] = message["id"]
            elif number % 4 == 1 and index:
                message["parent_id"] = messages[number % index]["id"]
            elif number % 4:
                message["parent_id"] = self.pick(chat_id, number // 4)
        call = Call(
            "add_messages",
            [chat_id, messages],
            {},
            lambda: self.model.add(chat_id, messages),
            _ids_view,
        )
        self.do(call, writer)

    # Branches and checkpoints

    @rule(chat=chats, name=numbers, head=st.none() | numbers, activate=st.booleans(), writer=numbers)
    def create_branch(self, chat: int, name: int, head: int | None, activate: bool, writer: int) -> None:  # noqa: FBT001 - drawn by name
        chat_id, branch = self.chat_id(chat), self.branch_name(name)
        message_id = None if head is None else self.pick(chat_id, head)
        call = Call(
            "create_branch",
            [chat_id, branch, message_id],
            {"activate": activate},
            lambda: self.model.create_branch(chat_id, branch, message_id, activate=activate),
            _branch_view,
        )
        self.do(call, writer)

    @rule(chat=chats, message=numbers, activate=st.booleans(), writer=numbers)
    def fork(self, chat: int, message: int, activate: bool, writer: int) -> None:  # noqa: FBT001 - drawn by name
        chat_id = self.chat_id(chat)
        message_id = self.pick(chat_id, message)
        call = Call(
            "fork",
            [chat_id, message_id],
            {"activate": activate},
            lambda: self.model.fork(chat_id, message_id, activate=activate),
            _branch_view,
        )
        self.do(call, writer)

    @rule(chat=chats, branch=numbers, into=numbers, summary=fresh, writer=numbers)
    def merge(self, chat: int, branch: int, into: int, summary: tuple[bool, int, Any], writer: int) -> None:
        chat_id = self.chat_id(chat)
        source, target = self.pick_branch(chat_id, branch), self.pick_branch(chat_id, into)
        is_new, number, data = summary
        draft = {"name": "user", "data": data, "id": self.new_message_id() if is_new else self.message_id(number)}
        call = Call(
            "merge",
            [chat_id, source, target, [draft]],
            {},
            lambda: self.model.merge(chat_id, source, target, draft),
            itemgetter("outcome"),
        )
        self.do(call, writer)

    @rule(chat=chats, branch=numbers, writer=numbers)
    def set_active_branch(self, chat: int, branch: int, writer: int) -> None:
        chat_id = self.chat_id(chat)
        name = self.pick_branch(chat_id, branch)
        call = Call(
            "set_active_branch",
            [chat_id, name],
            {},
            lambda: self.model.activate(chat_id, name),
            itemgetter("name"),
        )
        self.do(call, writer)

    @rule(chat=chats, branch=numbers, name=numbers, writer=numbers)
    def rename_branch(self, chat: int, branch: int, name: int, writer: int) -> None:
        chat_id = self.chat_id(chat)
        old, new = self.pick_branch(chat_id, branch), self.branch_name(name)
        call = Call(
            "rename_branch",
            [chat_id, old, new],
            {},
            lambda: self.model.rename_branch(chat_id, old, new),
            itemgetter("name"),
        )
        self.do(call, writer)

    @rule(chat=chats, branch=numbers, writer=numbers)
    def delete_branch(self, chat: int, branch: int, writer: int) -> None:
        chat_id = self.chat_id(chat)
        name = self.pick_branch(chat_id, branch)
        call = Call(
            "delete_branch",
            [chat_id, name],
            {},
            lambda: self.model.delete_branch(chat_id, name, self.created(chat_id)),
        )
        self.do(call, writer)

    @rule(chat=chats, message=numbers, writer=numbers)
    def show(self, chat: int, message: int, writer: int) -> None:
        chat_id = self.chat_id(chat)
        message_id = self.pick(chat_id, message)
        owner = next((one for one, other in self.model.chats.items() if message_id in other.messages), chat_id)
        call = Call(
            "show",
            [message_id],
            {},
            lambda: self.model.show(message_id, self.created(owner)),
            itemgetter("name"),
            chat_id=owner,
        )
        self.do(call, writer)

    @rule(chat=chats, message=numbers, keep=st.sampled_from([None, "gone", "gone too"]), writer=numbers)
    def redact(self, chat: int, message: int, keep: str | None, writer: int) -> None:
        """The message stays in its place, and says that it is redacted; a hold refuses it."""
        message_id = self.pick(self.chat_id(chat), message)
        owner = next((name for name, other in self.model.chats.items() if message_id in other.messages), "none")
        call = Call(
            "redact",
            [message_id],
            {"keep": keep},
            lambda: self.model.redact(message_id, keep),
            itemgetter("message_ids"),
            chat_id=owner,
        )
        self.do(call, 2 * writer)  # under no id: what is redacted twice is redacted once

    def created(self, chat_id: str) -> dict[str, int]:
        """When the branches were made, which only the ledger knows."""
        World.here.sync()
        return {branch.name: branch.created_at for branch in World.here.list_branches(chat_id)}

    @rule(
        chat=chats,
        branch=numbers,
        message=st.none() | numbers,
        expected=st.sampled_from(["right", "any", "other", "empty"]),
        raises=st.booleans(),
        number=numbers,
        writer=numbers,
    )
    def move_head(
        self,
        chat: int,
        branch: int,
        message: int | None,
        expected: str,
        raises: bool,  # noqa: FBT001 - drawn by name
        number: int,
        writer: int,
    ) -> None:
        chat_id = self.chat_id(chat)
        name = self.pick_branch(chat_id, branch)
        message_id = None if message is None else self.pick(chat_id, message)
        head = {
            "right": self.head(chat_id, name),
            "any": ANYWHERE,
            "other": self.pick(chat_id, number),
            "empty": None,
        }[expected]
        call = Call(
            "move_head",
            [chat_id, name, message_id],
            {"expected": head, "on_conflict": "raise" if raises else "return"},
            lambda: self.model.move(chat_id, name, message_id, head, raises=raises),
        )
        self.do(call, writer)

    @rule(chat=chats, name=st.integers(0, CHECKPOINTS - 1), message=numbers, writer=numbers)
    def set_checkpoint(self, chat: int, name: int, message: int, writer: int) -> None:
        chat_id, checkpoint = self.chat_id(chat), f"checkpoint {name}"
        message_id = self.pick(chat_id, message)
        call = Call(
            "set_checkpoint",
            [chat_id, checkpoint, message_id],
            {},
            lambda: self.model.set_checkpoint(chat_id, checkpoint, message_id),
            lambda answer: [answer["name"], answer["message_id"]],
        )
        self.do(call, writer)

    def check_checkpoint_id(self, answer: dict[str, Any]) -> None:
        """Setting again keeps the id. A repeated command answers as it did, also when the checkpoint is a new one now."""
        key = answer["chat_id"], answer["name"]
        assert self.checkpoint_ids.setdefault(key, answer["id"]) == answer["id"]

    @rule(chat=chats, name=st.integers(0, CHECKPOINTS - 1), writer=numbers)
    def delete_checkpoint(self, chat: int, name: int, writer: int) -> None:
        chat_id, checkpoint = self.chat_id(chat), f"checkpoint {name}"
        call = Call(
            "delete_checkpoint",
            [chat_id, checkpoint],
            {},
            lambda: self.model.delete_checkpoint(chat_id, checkpoint),
        )
        self.do(call, writer)
        if checkpoint not in getattr(self.model.chats.get(chat_id), "checkpoints", {}):
            self.checkpoint_ids.pop((chat_id, checkpoint), None)

    # Repetition

    @precondition(lambda self: self.last is not None)
    @rule(writer=numbers)
    def repeat(self, writer: int) -> None:
        """The last call once more, without a command id: the model decides what that means."""
        assert self.last is not None
        self.do(self.last, writer, is_repeated=True)

    @precondition(lambda self: any(self.commands.values()))
    @rule(number=numbers, writer=numbers)
    def repeat_command(self, number: int, writer: int) -> None:
        """A command that was carried out, under its id: it has the answer of then, but for newer names of branches."""
        known = [command for commands in self.commands.values() for command in commands]
        command = known[number % len(known)]
        call = command.call
        outcome = self.send(writer, call.method, call.args, {**call.kwargs, "command_id": command.command_id})

        assert outcome[0] == "ok", outcome
        births = {} if command.branch is None else self.model.chats[call.chat_id].births
        renamed = next((name for name, birth in births.items() if birth == command.branch), command.answer)
        assert call.view(outcome[1]) == renamed

    @rule(chat=chats, which=st.integers(0, 7), writer=numbers)
    def bad_call(self, chat: int, which: int, writer: int) -> None:
        """A call that cannot be right, whatever the state, is refused and changes nothing."""
        chat_id = self.chat_id(chat)
        method, *args = _BAD_CALLS[which % len(_BAD_CALLS)]
        outcome = self.send(writer, str(method), [chat_id if one == "$chat" else one for one in args], {})

        assert outcome[0] == "error", outcome
        assert outcome[1] in {"InvalidValueError", "ChatNotFoundError", "MessageNotFoundError"}

    # The outside

    @rule(user=users, erases=st.sampled_from(["content", "content", "all"]), chance=st.integers(0, 2))
    def sweep(self, user: int, erases: Literal["all", "content"], chance: int) -> None:
        """A rule of retention takes the chats of a user, or what they say; a hold keeps its chats as they are."""
        if chance:
            return
        World.here.sync()
        World.here.set_retention(self.name, keep_days=1, user_id=self.user(user), erases=erases)
        swept = World.here.sweep(now=_LATE)
        World.here.remove_retention(self.name)
        gone = self.model.sweep(self.user(user), is_content=erases == "content")
        assert sorted(swept.chats) == sorted(gone)
        self.commands |= {chat_id: [] for chat_id in gone}
        self.checkpoint_ids = {key: value for key, value in self.checkpoint_ids.items() if key[0] not in gone}

    @rule()
    def rebuild(self) -> None:
        """An index built anew gives the same answers."""
        known = [self.chat_id(number) for number in range(CHATS)]
        World.here.sync()
        before = snapshot(World.here, known)
        World.here.rebuild()

        assert snapshot(World.here, known) == before

    @precondition(lambda self: not self.is_memory)
    @rule(chance=st.integers(0, 2))
    def reopen(self, chance: int) -> None:
        if not chance:
            World.reopen()

    @precondition(lambda self: not self.is_memory)
    @rule(chance=st.integers(0, 3))
    def kill_server(self, chance: int) -> None:
        """The server dies at once; whoever needs it next starts another one."""
        if not chance and World.path is not None:
            kill(server_pid(World.path))

    # Promises

    @invariant()
    def promises_hold(self) -> None:
        World.here.sync()
        self.agrees(World.here)

    def agrees(self, ledger: Ledger) -> None:
        holds = [hold for hold in ledger.holds() if self.name in hold.id]
        assert {(hold.kind, hold.id) for hold in holds} == self.model.holds
        for number in range(CHATS):
            chat_id = self.chat_id(number)
            check_chat(ledger, chat_id)
            model = self.model.chats.get(chat_id)
            assert sum(1 for _ in ledger.history(chat_id)) == self.model.events(chat_id)
            chat = ledger.get_chat(chat_id)
            if model is None:
                assert chat is None
                assert ledger.list_branches(chat_id) == []
                continue
            assert chat is not None
            assert (chat.user_id, chat.title, chat.metadata) == (model.user, model.title, model.metadata)
            assert (chat.message_count, chat.branch_count) == (len(model.messages), len(model.branches))
            held: list[LegalHold | None] = [
                hold
                for hold in holds
                for kind in self.model.held(chat_id)[:1]
                if hold.kind == kind and hold.id in {chat_id, chat.user_id}
            ]
            assert [chat.hold] == (held or [None])
            branches = {branch.name: branch for branch in ledger.list_branches(chat_id)}
            assert {name: branch.head_message_id for name, branch in branches.items()} == model.branches
            assert [name for name, branch in branches.items() if branch.is_active] == [model.active]
            for name, head in model.branches.items():
                chain = ledger.get_messages(chat_id, branch=name)
                assert [message.id for message in chain] == model.chain(head)
            assert {node.id for node in ledger.graph(chat_id).nodes} == set(model.messages)
            for message_id, node in model.messages.items():
                message = ledger.get_message(message_id)
                assert message is not None
                assert (message.parent_id, message.data) == (node.parent, node.data)
                assert message.merged_from == (() if node.merged is None else (node.merged,))
                assert (message.redacted is not None) == node.is_redacted
            assert {one.name: one.message_id for one in ledger.list_checkpoints(chat_id)} == model.checkpoints
        for number in range(2):
            user = self.user(number)
            check_lists(ledger, user, {chat_id for chat_id, chat in self.model.chats.items() if chat.user == user})

    def teardown(self) -> None:
        """Other indexes, another process and an index built from the log say the same in the end."""
        if World.beside is not None:
            World.beside.sync()
            self.agrees(World.beside)
        if World.worker is not None:
            World.worker.answer("sync")
            for chat_id in self.model.chats:
                World.worker.answer("check", chat_id)
        for kind, held_id in self.model.holds:
            World.here.release(cast("HoldKind", kind), held_id)
        for number in range(CHATS):
            World.here.delete_chat(self.chat_id(number))


def _ids_view(answer: list[dict[str, Any]]) -> list[str]:
    return [message["id"] for message in answer]


def _branch_view(answer: dict[str, Any]) -> list[Any]:
    return [answer["name"], answer["head_message_id"], answer["message_count"], answer["is_active"]]


_LATE = 2**42
_OF_A_BRANCH = {"set_active_branch", "rename_branch", "show"}
"""They answer with the branch as it is now, or as they left it where it was deleted since."""
_BAD_CALLS: list[list[Any]] = [
    ["append", "$chat", [{"name": "", "data": "x", "id": "bad"}]],
    ["append", "$chat", [{"name": "user", "data": "x", "id": ""}]],
    ["append", "$chat", [{"name": "user", "data": "x", "id": "bad", "form": ""}]],
    ["append", "", [{"name": "user", "data": "x"}]],
    ["create_branch", "$chat", "", None],
    ["fork", "$chat", "no such message"],
    ["set_checkpoint", "$chat", "c" * 2049, "no such message"],
    ["get_messages", "no such chat"],
]


def run(machine: type[LedgerMachine], *, examples: int, soaked: int, steps: int) -> None:
    """Run so many examples, or so many `soaked` ones where there is time."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=soaked if IS_SOAK else examples,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )


@pytest.fixture
def jetstream(tmp_path: Path) -> Iterator[None]:
    World.path = tmp_path / "data"
    with contextlib.ExitStack() as stack:
        World.here = chatledger.open(World.path, durability="fast", erase="soon")
        stack.callback(_close)
        World.beside = stack.enter_context(
            chatledger.open(World.path, index=tmp_path / "beside", durability="fast", erase="soon")
        )
        World.worker = stack.enter_context(Worker(World.path, durability="fast", erase="soon").ready())
        stack.callback(_leave)
        yield


def _close() -> None:
    World.here.close()  # maybe another one than at first


def _leave() -> None:
    World.beside, World.worker, World.path = None, None, None


@pytest.mark.soak
@pytest.mark.timeout(3600 if IS_SOAK else 300)
def test_ledger_on_jetstream_agrees_with_the_model(jetstream: None) -> None:
    """Three writers (two indexes, two processes), a server that dies, reopening and rebuilding: all promises hold."""
    run(LedgerMachine, examples=4, soaked=300, steps=40)


class MemoryMachine(LedgerMachine):
    """The same in memory."""

    is_memory = True


@pytest.mark.soak
@pytest.mark.timeout(3600 if IS_SOAK else 180)
def test_ledger_in_memory_agrees_with_the_model() -> None:
    """A ledger in memory behaves as the one on JetStream does."""
    with chatledger.open("memory:", erase="soon") as World.here:
        run(MemoryMachine, examples=12, soaked=1200, steps=40)
