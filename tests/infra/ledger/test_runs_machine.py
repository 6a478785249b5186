"""Runs, annotations and regenerations in any order: the index, its rebuild, the fold and every moment say the same."""

import functools
from typing import Any, cast

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.access_world import Call, Shared, outcome
from tests.support.soak import IS_SOAK, examples

from chatledger import Ledger, LedgerView, NewMessage
from chatledger.domain.chat.regeneration import regeneration_of
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.errors import ChatNotFoundError

CHATS = ["c1", "c2"]
MESSAGES = [f"m{n}" for n in range(4)]
RUNS = [f"r{n}" for n in range(4)]
REGENERATIONS = ["g1", "g2"]
USERS = ["ada", "bob"]

chats = st.sampled_from(["c1", "c1", "c1", "c2"])
messages = st.sampled_from(MESSAGES)
runs = st.sampled_from(RUNS)
threads = st.sampled_from(["t1", "t2"])
regenerations = st.sampled_from(REGENERATIONS)
users = st.sampled_from(USERS)
pairs = st.sampled_from([*((user, user) for user in USERS for _ in range(3)), ("ada", "bob"), ("bob", "ada")])
"""The actor and the owner of the chat: mostly the same."""


def answers(reader: Ledger | LedgerView, chat: str) -> list[Any]:
    """Everything there is to ask about a chat's runs and annotations."""
    asked = [
        lambda: reader.get_annotations(chat),
        lambda: reader.runs(chat),
        lambda: [reader.runs(chat, thread_id=thread, status="running") for thread in ("t1", "t2")],
        lambda: [reader.runs(chat, trigger_message_id=one) for one in MESSAGES],
        lambda: [reader.runs(chat, message_id=one) for one in MESSAGES],
        lambda: [reader.get_run(chat, run_id) for run_id in RUNS],
        lambda: reader.regenerations(chat),
        lambda: [reader.get_regeneration(chat, one) for one in REGENERATIONS],
        lambda: reader.get_messages(chat),
        *(lambda one=one: reader.plan_regeneration(chat, one, 1) for one in MESSAGES),
        *(lambda one=one: reader.get_context(chat, one, 2) for one in MESSAGES),
    ]
    runs = reader.runs(chat)
    assert reader.runs(chat, is_ended=False) == [run for run in runs if not run.is_ended]
    assert reader.runs(chat, is_ended=True) == [run for run in runs if run.is_ended]
    return [outcome(cast("Ledger", reader), lambda _, ask=ask: ask()) for ask in asked]  # type: ignore[misc]  # a default of a lambda


def _create(chat: str, user: str, ledger: Ledger) -> Any:
    return ledger.create_chat(chat, user)


class RunsMachine(RuleBasedStateMachine):
    """
    Two users on one ledger, each beside a ledger of their own.

    What belongs to the other is not there (NS-40): same answers and errors in both.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shared = Shared(USERS)
        for user in USERS:
            for chat in CHATS:
                self.act(user, functools.partial(_create, f"{user} {chat}", user))
            for message in MESSAGES[:3]:
                self.append(user, CHATS[0], message)
            for run, trigger in (("r0", "m0"), ("r1", "m1")):
                self.record((user, user), CHATS[0], run, "t1", trigger, [], None)
            self.complete((user, user), CHATS[0], "r0", "m1")

    def teardown(self) -> None:
        self.shared.whole.rebuild()
        self.agree()
        self.shared.whole.verify()
        self.shared.close()

    def act(self, user: str, call: Call) -> None:
        self.shared.both(user, call)

    @rule(user=users, chat=chats, message=messages)
    def append(self, user: str, chat: str, message: str) -> None:
        draft = NewMessage("user", message, id=f"{user} {message}")
        self.act(user, lambda ledger: ledger.append(f"{user} {chat}", [draft]))

    @rule(pair=pairs, chat=chats, message=messages, other=messages, stale=st.booleans(), hidden=st.booleans())
    def annotate(
        self, pair: tuple[str, str], chat: str, message: str, other: str, *, stale: bool, hidden: bool
    ) -> None:
        user, owner = pair
        self.act(
            user,
            lambda ledger: ledger.annotate(
                f"{owner} {chat}",
                f"{owner} {message}",
                stale=stale,
                hidden=hidden,
                replaced_by=f"{owner} {other}" if stale else None,
            ),
        )

    @rule(
        pair=pairs, chat=chats, run=runs, thread=threads, trigger=messages,
        references=st.lists(messages, max_size=1), status=st.sampled_from([None, "pending"]),
    )  # fmt: skip
    def record(
        self, pair: tuple[str, str], chat: str, run: str, thread: str, trigger: str, references: list[str], status: Any
    ) -> None:
        user, owner = pair
        self.act(
            user,
            lambda ledger: ledger.record_run(
                f"{owner} {chat}",
                run,
                thread_id=thread,
                assistant_id="a",
                trigger_message_id=f"{owner} {trigger}",
                references=[f"{owner} {reference}" for reference in references],
                status=status,
            ),
        )

    @rule(user=users, chat=chats, run=runs, message=messages)
    def answer(self, user: str, chat: str, run: str, message: str) -> None:
        draft = NewMessage("assistant", message, id=f"{user} {message}")
        self.act(user, lambda ledger: ledger.complete_run(f"{user} {chat}", run, answer=draft))

    @rule(pair=pairs, chat=chats, run=runs, message=messages)
    def complete(self, pair: tuple[str, str], chat: str, run: str, message: str) -> None:
        user, owner = pair
        self.act(user, lambda ledger: ledger.complete_run(f"{owner} {chat}", run, message_id=f"{owner} {message}"))

    @rule(
        pair=pairs,
        chat=chats,
        run=runs,
        method=st.sampled_from([Ledger.fail_run, Ledger.start_run, Ledger.suspend_run]),
    )
    def change(self, pair: tuple[str, str], chat: str, run: str, method: Any) -> None:
        user, owner = pair
        self.act(user, lambda ledger: method(ledger, f"{owner} {chat}", run))

    @rule(pair=pairs, chat=chats, run=runs, metadata=st.dictionaries(st.sampled_from("ab"), st.integers(0, 2)))
    def note(self, pair: tuple[str, str], chat: str, run: str, metadata: dict[str, int]) -> None:
        user, owner = pair
        self.act(user, lambda ledger: ledger.update_run(f"{owner} {chat}", run, metadata))

    @rule(
        pair=pairs,
        chat=chats,
        message=st.sampled_from(["m0", "m0", "m1", "m2"]),
        new=messages,
        regeneration=regenerations,
        bound=st.integers(0, 2),
    )
    def begin(self, pair: tuple[str, str], chat: str, message: str, new: str, regeneration: str, bound: int) -> None:
        user, owner = pair

        def call(ledger: Ledger) -> Any:
            plan = ledger.plan_regeneration(f"{owner} {chat}", f"{owner} {message}", bound)
            return ledger.begin_regeneration(plan, new_message_id=f"{owner} {new}", regeneration_id=regeneration)

        self.act(user, call)

    @rule(pair=pairs, chat=chats, regeneration=regenerations)
    def approve(self, pair: tuple[str, str], chat: str, regeneration: str) -> None:
        user, owner = pair
        self.act(user, lambda ledger: ledger.approve_regeneration(f"{owner} {chat}", regeneration))

    @rule(pair=pairs, chat=chats, regeneration=regenerations, repeats=runs, run=st.none() | runs)
    def repeat(self, pair: tuple[str, str], chat: str, regeneration: str, repeats: str, run: str | None) -> None:
        user, owner = pair
        self.act(user, lambda ledger: ledger.repeat_run(f"{owner} {chat}", regeneration, repeats, run_id=run))

    @rule(pair=pairs, regeneration=regenerations, message=messages)
    def carry_on(self, pair: tuple[str, str], regeneration: str, message: str) -> None:
        """Repeat the first run that is ready, to its end."""
        user, owner = pair
        draft = NewMessage("assistant", message, id=f"{user} {regeneration} {message}")

        def call(ledger: Ledger) -> Any:
            found = ledger.get_regeneration(f"{owner} c1", regeneration)
            if found is None or not found.ready:
                return found
            run = ledger.repeat_run(f"{owner} c1", regeneration, found.ready[0].repeats.run_id)
            return ledger.complete_run(f"{owner} c1", run.run_id, answer=draft)

        self.act(user, call)

    @rule(user=users, chat=chats, is_meant=st.integers(0, 4))
    def delete(self, user: str, chat: str, is_meant: int) -> None:
        if is_meant:
            return
        self.act(user, lambda ledger: ledger.delete_chat(f"{user} {chat}"))
        self.act(user, lambda ledger: ledger.create_chat(f"{user} {chat}", user))

    @rule(pair=pairs, chat=chats, moment=st.integers(0, 30))
    def look_back(self, pair: tuple[str, str], chat: str, moment: int) -> None:
        user, owner = pair
        self.shared.both_then(user, moment, lambda view: answers(view, f"{owner} {chat}"))

    @invariant()
    def agree(self) -> None:
        for user in USERS:
            for chat in (f"{owner} {chat}" for owner in USERS for chat in CHATS):
                seen = answers(self.shared.views[user], chat)
                assert seen == answers(self.shared.alone[user], chat)
                if chat.startswith(user):
                    assert seen == answers(self.shared.whole, chat)
                    self.check_fold(chat)

    def check_fold(self, chat: str) -> None:
        whole = self.shared.whole
        replayed = ReplayedChat(chat, whole.history(chat))
        messages = {message.id: message for message in replayed.messages}
        said = {message_id: one.annotation for message_id, one in messages.items() if one.annotation is not None}
        assert said == whole.get_annotations(chat)
        assert replayed.runs() == whole.runs(chat)
        assert [messages[message.id] for message in whole.get_messages(chat)] == whole.get_messages(chat)
        for regeneration_id in REGENERATIONS:
            record = replayed.regeneration(regeneration_id)
            expected = None if record is None else regeneration_of(replayed, record)
            assert expected == whole.get_regeneration(chat, regeneration_id)


TestRunsMachine = RunsMachine.TestCase
TestRunsMachine.settings = settings(
    max_examples=examples(12),
    stateful_step_count=40 if IS_SOAK else 20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_users_see_only_their_own_runs(ledger: Ledger) -> None:
    """NS-40: neither reading nor writing, and the errors are those of what does not exist."""
    ledger.create_chat("c", "ada")
    ledger.append("c", [NewMessage("user", "hello", id="m1")])
    ledger.record_run("c", "r", thread_id="t", assistant_id="a", trigger_message_id="m1")
    bob, ada = ledger.for_user("bob"), ledger.for_user("ada")
    writes: list[Call] = [
        lambda of: of.record_run("c", "r2", thread_id="t", assistant_id="a"),
        lambda of: of.complete_run("c", "r"),
        lambda of: of.fail_run("c", "r"),
        lambda of: of.suspend_run("c", "r"),
        lambda of: of.update_run("c", "r", {"a": 1}),
        lambda of: of.annotate("c", "m1", hidden=True),
        lambda of: of.plan_regeneration("c", "m1"),
        lambda of: of.mark_stale(ledger.plan_regeneration("c", "m1")),
        lambda of: of.begin_regeneration(ledger.plan_regeneration("c", "m1"), new_message_id="m1"),
        lambda of: of.fork_chat("c", "m1"),
        lambda of: of.get_context("c", "m1"),
    ]

    assert ([], None, {}, []) == (
        bob.runs("c"),
        bob.get_run("c", "r"),
        bob.get_annotations("c"),
        bob.regenerations("c"),
    )
    assert [] == list(bob.feed(0, topics={"run_recorded"}, follow=False))
    assert 1 == len(list(ada.feed(0, topics={"run_recorded"}, follow=False)))
    for write in writes:
        assert (ChatNotFoundError, "no chat 'c'") == (
            outcome(bob, write)[0], outcome(bob, write)[1][:11],
        )  # fmt: skip
    assert "running" == ledger.runs("c")[0].status
