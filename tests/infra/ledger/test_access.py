"""`for_user`: what belongs to others is indistinguishable from what does not exist."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.access_world import Call, Shared, outcome
from tests.support.soak import examples

import chatledger
from chatledger import AccessDeniedError, Ledger, LedgerView, NewMessage
from chatledger.domain.chat.save import Save
from chatledger.domain.values import MemberRole
from chatledger.errors import ChatExistsError

DUE = 10**15
USERS = ["ada", "bob", ""]
CHATS = ["c1", "c2", "c3"]
MESSAGES = ["m1", "m2", "m3", "m4", "m5"]
BRANCHES = ["main", "main-v2", "side"]

users = st.sampled_from(USERS)
chats = st.sampled_from(CHATS)
messages = st.sampled_from(MESSAGES)
parents = st.none() | messages
branches = st.sampled_from(BRANCHES)
texts = st.sampled_from(["a leek", "a riga", "leek leek riga"])
commands = st.none() | st.sampled_from(["k1", "k2"])


def text(content: str, message_id: str, parent_id: str | None = None) -> NewMessage:
    return NewMessage("user", content, id=message_id, parent_id=parent_id)


def acting(command: str | None, call: Call) -> Call:
    def run(ledger: Ledger) -> Any:
        with ledger.context(command_id=command):
            return call(ledger)

    return run


QUESTIONS: list[Call] = [
    lambda ledger: ledger.list_chats(),
    lambda ledger: ledger.list_chats(order="created", ascending=True),
    lambda ledger: ledger.count_chats(),
    lambda ledger: ledger.due_chats(now=DUE),
    lambda ledger: ledger.due_chats(now=DUE, limit=1),
    lambda ledger: ledger.history(),
    lambda ledger: ledger.feed(0, follow=False),
    lambda ledger: ledger.search("leek OR riga", limit=None),
    *(lambda ledger, user=user: ledger.list_chats(user_id=user) for user in USERS),
    *(lambda ledger, user=user: ledger.search("leek", user_id=user) for user in USERS),
    *(lambda ledger, user=user: ledger.history(user_id=user) for user in USERS),
    *(lambda ledger, user=user: ledger.feed(0, user_id=user, follow=False) for user in USERS),
]
"""About all chats."""

OF_CHAT: list[Callable[[Ledger, str], Any]] = [
    Ledger.get_chat,
    Ledger.get_messages,
    Ledger.get_page,
    Ledger.get_active_branch,
    Ledger.list_branches,
    Ledger.list_checkpoints,
    Ledger.members,
    Ledger.graph,
    Ledger.export_chat,
    Ledger.owner_of,
    Ledger.history,
    lambda ledger, chat: ledger.feed(0, chat_id=chat, follow=False),
    lambda ledger, chat: ledger.list_chats(after=chat),
    lambda ledger, chat: ledger.search("leek", chat_id=chat),
    lambda ledger, chat: ledger.search("leek", chat_id=chat, branch="side"),
    lambda ledger, chat: ledger.get_branch(chat, "main"),
    lambda ledger, chat: ledger.get_checkpoint(chat, "main"),
    lambda ledger, chat: ledger.get_messages(chat, before="m1"),
    lambda ledger, chat: ledger.preview_save(chat, a_save("m1")),
    Ledger.get_rows,
    Ledger.list_branch_points,
    Ledger.get_row_strip,
    lambda ledger, chat: ledger.get_rows(chat, around="m1"),
    lambda ledger, chat: ledger.list_bundled_lines(chat, 0),
    lambda ledger, chat: ledger.get_row_numbers(chat, ["m1", "m2"]),
    lambda ledger, chat: ledger.get_row_line(chat, "m1"),
]

OF_MESSAGE: list[Callable[[Ledger, str], Any]] = [
    Ledger.get_message,
    Ledger.get_chain,
    Ledger.has_children,
    Ledger.children,
    Ledger.siblings,
    Ledger.versions,
    Ledger.branches_of,
    lambda ledger, message: ledger.common_ancestor("m1", message),
    lambda ledger, message: ledger.merge_base("m1", message),
    lambda ledger, message: ledger.diff(message, "m2"),
]


QUESTIONS_THEN: list[Callable[[LedgerView], Any]] = [
    lambda view: view.list_chats(),
    lambda view: view.list_chats(order="created", ascending=True),
    lambda view: view.count_chats(),
    lambda view: view.list_chats(user_id="bob"),
    lambda view: view.history(),
    lambda view: view.search("leek OR riga", limit=None),
    *(lambda view, chat=chat: view.get_chat(chat) for chat in CHATS),
    *(lambda view, chat=chat: view.history(chat) for chat in CHATS),
    *(lambda view, chat=chat: view.export_chat(chat) for chat in CHATS),
    *(lambda view, chat=chat: view.list_chats(after=chat) for chat in CHATS),
    *(lambda view, message=message: view.get_chain(message) for message in MESSAGES),
    *(lambda view, message=message: view.diff("m1", message) for message in MESSAGES),
]
"""About an earlier moment."""


def a_save(message_id: str, content: str = "a leek", branch: str = "main") -> Save:
    return Save(drafts=(text(content, message_id),), spare_ids=("spare",), branch=branch, branch_id="new branch")


class AccessMachine(RuleBasedStateMachine):
    """A user of a shared ledger gets the answers and the errors that they would get if they were alone."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = Shared(USERS)
        self.turn = 0

    def teardown(self) -> None:
        for who in USERS:
            for ask in QUESTIONS:
                self.shared.both(who, ask)
            for chat in CHATS:
                for ask_chat in OF_CHAT:
                    self.shared.both(who, lambda ledger, ask=ask_chat, chat=chat: ask(ledger, chat))  # type: ignore[misc]
            for message in MESSAGES:
                for ask_message in OF_MESSAGE:
                    self.shared.both(who, lambda ledger, ask=ask_message, message=message: ask(ledger, message))  # type: ignore[misc]
        self.shared.close()

    @rule(who=users, chat=chats, command=commands)
    def create(self, who: str, chat: str, command: str | None) -> None:
        self.shared.make(who, chat, acting(command, lambda ledger: ledger.create_chat(chat, who, title=f"of {who}")))

    @rule(who=users, chat=chats, due=st.none() | st.sampled_from([DUE, DUE - 1, DUE + 1]))
    def limit(self, who: str, chat: str, due: int | None) -> None:
        self.shared.both(who, lambda ledger: ledger.update_chat(chat, expires_at=due))

    @rule(who=users)
    def sweep(self, who: str) -> None:
        def swept(ledger: Ledger) -> list[str]:
            with ledger.context(actor="cron"):  # else the sweeper is the actor, whoever the ledger is of
                return ledger.sweep(now=DUE, limit=1).chats

        self.shared.both(who, swept)

    @rule(who=users, chat=chats)
    def upsert(self, who: str, chat: str) -> None:
        self.shared.make(who, chat, lambda ledger: ledger.upsert_chat(chat, who, metadata={"of": who}))

    @rule(who=users, other=users, chat=chats)
    def create_for_another(self, who: str, other: str, chat: str) -> None:
        if who != other:
            has_it = self.shared.alone[who].get_chat(chat) is not None
            expected = ChatExistsError if has_it else AccessDeniedError
            self.shared.refused(who, lambda ledger: ledger.create_chat(chat, other), expected)

    @rule(who=users, chat=chats, command=commands, title=texts)
    def update(self, who: str, chat: str, command: str | None, title: str) -> None:
        self.shared.both(who, acting(command, lambda ledger: ledger.update_chat(chat, title=title)))

    @rule(who=users, chat=chats, owner=st.none() | users)
    def delete(self, who: str, chat: str, owner: str | None) -> None:
        self.shared.both(who, lambda ledger: ledger.delete_chat(chat, user_id=owner))

    @rule(who=users, chat=chats, ids=st.lists(messages, max_size=3), content=texts, command=commands)
    def append(self, who: str, chat: str, ids: list[str], content: str, command: str | None) -> None:
        drafts = [text(content, message_id) for message_id in ids]
        self.shared.add(who, ids, acting(command, lambda ledger: ledger.append(chat, drafts)))

    @rule(who=users, chat=chats, message=messages, parent=parents, content=texts)
    def add(self, who: str, chat: str, message: str, parent: str | None, content: str) -> None:
        draft = text(content, message, parent)
        self.shared.add(who, [message], lambda ledger: ledger.add_messages(chat, [draft]))

    @rule(who=users, chat=chats, message=messages, content=texts, branch=branches)
    def save(self, who: str, chat: str, message: str, content: str, branch: str) -> None:
        spare = f"spare {self.turn} {who}"
        self.turn += 1
        draft = Save(drafts=(text(content, message),), spare_ids=(spare,), branch=branch, branch_id=spare)
        self.shared.add(who, [message], lambda ledger: ledger.save(chat, draft))

    @rule(who=users, chat=chats, name=branches, message=parents, activate=st.booleans())
    def branch(self, who: str, chat: str, name: str, message: str | None, *, activate: bool) -> None:
        self.shared.both(who, lambda ledger: ledger.create_branch(chat, name, message, activate=activate))

    @rule(who=users, chat=chats, message=messages)
    def fork(self, who: str, chat: str, message: str) -> None:
        self.shared.both(who, lambda ledger: ledger.fork(chat, message))

    @rule(who=users, chat=chats, name=branches, message=parents)
    def move(self, who: str, chat: str, name: str, message: str | None) -> None:
        self.shared.both(who, lambda ledger: ledger.move_head(chat, name, message, expected=chatledger.ANY))
        self.shared.both(who, lambda ledger: ledger.set_active_branch(chat, name))

    @rule(who=users, chat=chats, name=branches, other=branches, message=messages)
    def rename_delete_and_show(self, who: str, chat: str, name: str, other: str, message: str) -> None:
        self.shared.both(who, lambda ledger: ledger.rename_branch(chat, name, other))
        self.shared.both(who, lambda ledger: ledger.delete_branch(chat, name))
        self.shared.both(who, lambda ledger: ledger.show(message))

    @rule(who=users, chat=chats, name=branches, message=messages)
    def checkpoint(self, who: str, chat: str, name: str, message: str) -> None:
        self.shared.both(who, lambda ledger: ledger.set_checkpoint(chat, name, message))
        self.shared.both(who, lambda ledger: ledger.delete_checkpoint(chat, "main"))

    @rule(
        who=users,
        chat=chats,
        guest=st.sampled_from(["guest", "other guest"]),
        role=st.sampled_from(["reader", "writer"]),
    )
    def let_in(self, who: str, chat: str, guest: str, role: MemberRole) -> None:
        """Members who have nothing of their own here; what they see is compared in `test_members`."""
        self.shared.both(who, lambda ledger: ledger.set_member(chat, guest, role))
        self.shared.both(who, lambda ledger: ledger.remove_member(chat, "guest"))

    @rule(who=users, chat=chats)
    def import_again(self, who: str, chat: str) -> None:
        exported = outcome(self.shared.views[who], lambda ledger: ledger.export_chat(chat))
        if exported[0] == "ok":
            self.shared.both(who, lambda ledger: ledger.import_chat(exported[1]))

    @rule(who=users, ask=st.sampled_from(QUESTIONS))
    def ask(self, who: str, ask: Call) -> None:
        self.shared.both(who, ask)

    @rule(who=users, chat=chats, ask=st.sampled_from(OF_CHAT))
    def ask_chat(self, who: str, chat: str, ask: Callable[[Ledger, str], Any]) -> None:
        self.shared.both(who, lambda ledger: ask(ledger, chat))

    @rule(who=users, message=messages, ask=st.sampled_from(OF_MESSAGE))
    def ask_message(self, who: str, message: str, ask: Callable[[Ledger, str], Any]) -> None:
        self.shared.both(who, lambda ledger: ask(ledger, message))

    @precondition(lambda self: self.shared.moments)
    @rule(who=users, moment=st.integers(0, 1000), ask=st.sampled_from(QUESTIONS_THEN))
    def ask_then(self, who: str, moment: int, ask: Callable[[LedgerView], Any]) -> None:
        self.shared.both_then(who, moment, ask)

    @invariant()
    def everybody_has_their_chats(self) -> None:
        whole = {chat.id for chat in self.shared.whole.list_chats()}
        mine = [{chat.id for chat in view.list_chats()} for view in self.shared.views.values()]

        assert sum(map(len, mine)) == len(whole)
        assert set().union(*mine) == whole


TestAccess = AccessMachine.TestCase
TestAccess.settings = settings(
    max_examples=examples(15), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
