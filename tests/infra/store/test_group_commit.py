"""Commands of many threads and tasks that are carried out together: what each of them gets, and what is on the log."""

# pyright: reportPrivateUsage=false
# White-box checks, as for ruff.

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contracts.store_world import together
from tests.support.ledger_world import check_chat, check_lists, ids, internals, length, text, texts
from tests.support.soak import examples

import chatledger
from chatledger import ChatledgerError, HeadConflictError, Ledger, LedgerClosedError, LogUnavailableError, user
from chatledger.errors import ChatExistsError, ChatNotFoundError
from chatledger.infra.log.nats.blocking_connection import BlockingConnection, ConnectionBrokenError
from chatledger.infra.log.nats.event_log import JetStreamAppends
from chatledger.infra.log.port import Appends, LostRaceError
from chatledger.projections.log import kinds

CHATS = 6


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger with some chats, which are in order at the end."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        for number in range(CHATS):
            ledger.create_chat(f"c{number}", "u")
        yield ledger
        for number in range(CHATS):
            check_chat(ledger, f"c{number}")


@contextmanager
def held(ledger: Ledger) -> Generator[Callable[[int], None]]:
    """Nobody can write inside, so that all queue up; gives what waits until so many do."""
    commits = internals(ledger)._commits
    is_mine = False
    while not is_mine:
        with commits._changed:
            is_mine = not commits._somebody_writes
            commits._somebody_writes = True

    def wait(count: int) -> None:
        while len(commits._queue) < count:
            threading.Event().wait(0.001)

    try:
        yield wait
    finally:
        commits._hand_over()


def at_once(ledger: Ledger, *calls: Callable[[], Any]) -> list[Any]:
    """The results or errors of calls in threads of their own, which are carried out together."""
    found: list[Any] = [None] * len(calls)

    def work(number: int) -> None:
        try:
            found[number] = calls[number]()
        except ChatledgerError as error:
            found[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    with held(ledger) as wait:
        for count, thread in enumerate(threads, 1):
            thread.start()
            wait(count)
    for thread in threads:
        thread.join()
    return found


def test_each_gets_what_it_wrote(ledger: Ledger) -> None:
    """What is written together is on the log in one piece, commit by commit, in the order of the queue."""
    before = ledger.get_position()
    found = at_once(ledger, *(lambda n=n: ledger.append(f"c{n}", [text(f"t{n}")]) for n in range(CHATS)))

    assert [[f"t{n}"] for n in range(CHATS)] == [[message.text for message in messages] for messages in found]
    assert [f"c{n}" for n in range(CHATS)] == [event.chat_id for event in ledger.history(after=before)]
    for number in range(CHATS):
        assert ledger.get_messages(f"c{number}") == found[number]


def test_the_last_event_is_noted(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that were written together it is the one furthest on the log: by it one knows a log that lost its end."""
    noted: list[int] = []
    monkeypatch.setattr(internals(ledger)._commits, "_note", lambda position, _hash: noted.append(position))
    at_once(ledger, *(lambda n=n: ledger.append(f"c{n}", [text(f"t{n}")]) for n in range(CHATS)))

    assert [ledger.get_position()] == noted


def test_on_one_chat_nobody_overtakes(ledger: Ledger) -> None:
    """Those on one chat are carried out one after the other, and each sees what the one before wrote."""
    found = at_once(ledger, *(lambda n=n: ledger.append("c0", [text(f"t{n}")]) for n in range(5)))

    assert [f"t{n}" for n in range(5)] == texts(ledger, "c0")
    assert ids(ledger.get_messages("c0")) == [message.id for messages in found for message in messages]


def test_each_gets_its_own_error(ledger: Ledger) -> None:
    """Refusals of some, whatever their reason, do not touch the others."""
    before = length(ledger)
    found = at_once(
        ledger,
        lambda: ledger.append("none", [text("a")]),
        lambda: ledger.append("c1", [text("b")], expected_head="elsewhere"),
        lambda: ledger.append("c2", [text("c")]),
        lambda: ledger.append("c3", [text("d" * 2_000_000, id="large")]),
        lambda: ledger.create_chat("c4", "u"),
        lambda: ledger.append("c5", []),
    )

    assert [ChatNotFoundError, HeadConflictError] == [type(one) for one in found[:2]]
    assert [["c"], ["d" * 2_000_000]] == [[message.text for message in messages] for messages in found[2:4]]
    assert isinstance(found[4], ChatExistsError)
    assert found[5] == []
    assert length(ledger) == before + 2


def test_a_decision_that_fails_does_so_for_its_caller(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no error of ours is raised where it belongs, and the thread that writes goes on."""
    store = internals(ledger)
    raised: list[BaseException] = []

    def fail() -> None:
        def decide(*_: Any) -> list[Any]:
            raise ZeroDivisionError

        try:
            store.execute(kinds.CHATS, "c0", decide, kind=None)
        except ZeroDivisionError as error:
            raised.append(error)

    at_once(ledger, fail, lambda: ledger.append("c1", [text("a")]))
    at_once(ledger, lambda: ledger.append("c2", [text("b")]))

    assert len(raised) == 1
    assert [["a"], ["b"]] == [texts(ledger, "c1"), texts(ledger, "c2")]


def test_a_lost_race_is_run_again(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was overtaken by another process decides again; the others are not delayed by it."""
    finish = JetStreamAppends.finish
    lost: list[str] = []

    def losing(self: Any) -> list[Any]:
        outcomes = finish(self)
        for at, (chat_id, _, _) in enumerate(self._commits):
            if chat_id == "c1" and not lost:
                lost.append(chat_id)
                outcomes[at] = LostRaceError()
        return outcomes

    monkeypatch.setattr(JetStreamAppends, "finish", losing)
    at_once(ledger, *(lambda n=n: ledger.append(f"c{n}", [text(f"t{n}", id=f"m{n}")]) for n in range(CHATS)))

    assert lost == ["c1"]
    assert [[f"t{n}"] for n in range(CHATS)] == [texts(ledger, f"c{n}") for n in range(CHATS)]


@pytest.mark.parametrize("after", range(4))
def test_lost_acknowledgements(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The connection breaks while answers are awaited: what the server stored is found, and everything is there once."""
    answer, seen = BlockingConnection.answer, [0]

    def breaking(self: BlockingConnection, token: int, ends_at: float) -> Any:
        seen[0] += 1
        if seen[0] == after + 1:
            raise ConnectionBrokenError
        return answer(self, token, ends_at)

    before = length(ledger)
    monkeypatch.setattr(BlockingConnection, "answer", breaking)
    found = at_once(ledger, *(lambda n=n: ledger.append(f"c{n}", [text(f"t{n}")]) for n in range(CHATS)))

    assert [[f"t{n}"] for n in range(CHATS)] == [[message.text for message in messages] for messages in found]
    assert length(ledger) == before + CHATS


def no_connection(endpoint: object) -> None:
    """Acquire no blocking connection."""
    del endpoint


def test_without_a_blocking_connection(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no second connection to be had, the commits go the other way, side by side."""
    monkeypatch.setattr(internals(ledger).log._client.pool, "acquire", no_connection)
    found = at_once(ledger, *(lambda n=n: ledger.append(f"c{n}", [text(f"t{n}")]) for n in range(CHATS)))

    assert [[f"t{n}"] for n in range(CHATS)] == [[message.text for message in messages] for messages in found]


def test_a_race_lost_without_a_blocking_connection(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server refuses there is decided on again, too."""
    monkeypatch.setattr(internals(ledger).log._client.pool, "acquire", no_connection)
    add, stale = JetStreamAppends.add, ["c1"]

    def late(self: JetStreamAppends, chat_id: str, events: Any, expected_position: int) -> None:
        add(self, chat_id, events, 0 if stale and stale[0] == chat_id and stale.pop() else expected_position)

    monkeypatch.setattr(JetStreamAppends, "add", late)
    found = at_once(ledger, *(lambda n=n: ledger.append(f"c{n}", [text(f"t{n}")]) for n in range(CHATS)))

    assert stale == []
    assert [[f"t{n}"] for n in range(CHATS)] == [[message.text for message in messages] for messages in found]


def test_a_log_that_does_not_answer(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are told so when one has waited in vain; nobody waits as long for each."""
    asked: list[str] = []

    def fail(chat_id: str, *_: Any, **__: Any) -> list[int]:
        asked.append(chat_id)
        msg = "no answer"
        raise LogUnavailableError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(internals(ledger).log, "append", fail)
        patch.setattr(internals(ledger).log, "begin_appends", lambda: Appends(internals(ledger).log))
        found = at_once(ledger, *(lambda n=n: ledger.append(f"c{n}", [text(f"t{n}")]) for n in range(CHATS)))

    assert [LogUnavailableError] * CHATS == [type(one) for one in found]
    assert asked == ["c0"]


def test_nobody_waits_for_large_data(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one uploads what takes its time, alone or out of a group, others write."""
    append, go_on = internals(ledger).log.append, threading.Event()

    def slow(chat_id: str, events: Any, **options: Any) -> list[int]:
        if events[0].large:
            assert go_on.wait(30)
        positions: list[int] = append(chat_id, events, **options)
        return positions

    monkeypatch.setattr(internals(ledger).log, "append", slow)
    large = [threading.Thread(target=ledger.append, args=(f"c{n}", [text("x" * 500_000)])) for n in range(2)]
    with held(ledger) as wait:
        large[0].start()
        wait(1)
    large[1].start()
    ledger.append("c2", [text("small")])
    go_on.set()
    for thread in large:
        thread.join()

    assert [1, 1, 1] == [len(texts(ledger, f"c{n}")) for n in range(3)]


def test_what_can_not_be_applied_together(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then each is applied by itself, and hears of errors that concern itself only."""

    def refuse(_: Any) -> None:
        msg = "not together"
        raise chatledger.CorruptStateError(msg)

    monkeypatch.setattr(internals(ledger).projector, "take_all", refuse)
    found = at_once(ledger, *(lambda n=n: ledger.append(f"c{n}", [text(f"t{n}")]) for n in range(CHATS)))

    assert [[f"t{n}"] for n in range(CHATS)] == [[message.text for message in messages] for messages in found]


def test_a_thread_that_dies_leaves_nobody_waiting(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the thread that writes ends in an unforeseen way, those whose outcome is unknown are told so."""

    def die(_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(internals(ledger).projector, "take_all", die)
        found = at_once(ledger, *(lambda n=n: ledger.append(f"c{n}", [text(f"t{n}")]) for n in range(3)))
    at_once(ledger, lambda: ledger.append("c4", [text("later")]))
    ledger.sync()

    assert [LogUnavailableError] * 3 == [type(one) for one in found]
    assert [["t0"], ["later"]] == [texts(ledger, "c0"), texts(ledger, "c4")]


def test_closing_while_others_wait(tmp_path: Path) -> None:
    """Those that wait are refused, and nobody hangs."""
    ledger = chatledger.open(tmp_path / "data", durability="fast")
    ledger.create_chat("c", "u")
    commits = internals(ledger)._commits
    found: list[BaseException] = []

    def work() -> None:
        try:
            ledger.append("c", [text("a")])
        except LedgerClosedError as error:
            found.append(error)

    with held(ledger) as wait:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for count, thread in enumerate(threads, 1):
            thread.start()
            wait(count)
        commits.close()
        for thread in threads:
            thread.join()
    ledger.close()

    assert len(found) == 3


COMMANDS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["append", "fork", "title", "delete"])), min_size=1, max_size=12
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with chatledger.open(tmp_path_factory.mktemp("data"), durability="fast") as ledger:
        yield ledger


@pytest.mark.soak
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(COMMANDS)
def test_together_is_as_one_after_the_other(shared: Ledger, commands: list[tuple[int, str]]) -> None:
    """Whatever queues up, each chat ends as if its commands had come one by one, and so does each answer."""
    answers: list[list[Any]] = []
    for prefix, run in (("alone", _one_by_one), ("group", at_once)):
        for number in range(3):
            if shared.get_chat(f"{prefix}{number}") is not None:
                shared.delete_chat(f"{prefix}{number}")
            shared.create_chat(f"{prefix}{number}", "u")
            shared.append(f"{prefix}{number}", [text("root")])
        calls = [
            (lambda n=n, kind=kind, at=at, prefix=prefix: _perform(shared, f"{prefix}{n}", kind, at))
            for at, (n, kind) in enumerate(commands)
        ]
        answers.append([_outcome(one) for one in run(shared, *calls)])
        answers.append([_shown(shared, f"{prefix}{number}") for number in range(3)])

    assert answers[:2] == answers[2:]


def _one_by_one(ledger: Ledger, *calls: Callable[[], Any]) -> list[Any]:
    del ledger
    found: list[Any] = []
    for call in calls:
        try:
            found.append(call())
        except ChatledgerError as error:
            found.append(error)
    return found


def _perform(ledger: Ledger, chat: str, kind: str, at: int) -> Any:
    if kind == "append":
        return [message.text for message in ledger.append(chat, [text(f"t{at}")])]
    if kind == "title":
        ledger.update_chat(chat, title=f"t{at}")  # answers with the chat as it is then
        return None
    if kind == "delete":
        return ledger.delete_checkpoint(chat, "none")
    return ledger.create_branch(chat, f"b{at}", None).name


def _outcome(one: Any) -> Any:
    return type(one) if isinstance(one, ChatledgerError) else one


def _shown(ledger: Ledger, chat: str) -> Any:
    found = ledger.get_chat(chat)
    assert found is not None
    return texts(ledger, chat, "main"), found.title, sorted(branch.name for branch in ledger.list_branches(chat))


@pytest.mark.soak
def test_many_threads_on_many_chats(ledger: Ledger) -> None:
    """Nothing is lost and nothing is mixed up when they come as they like."""

    def work(number: int) -> None:
        for turn in range(20):
            (message,) = ledger.append(f"c{number % CHATS}", [text(f"{number} {turn}")])
            assert ledger.get_message(message.id) == message

    together(24, work)

    for number in range(24):
        mine = [one for one in texts(ledger, f"c{number % CHATS}") if one.split()[0] == str(number)]
        assert mine == [f"{number} {turn}" for turn in range(20)]
    check_lists(ledger, "u", {f"c{number}" for number in range(CHATS)})


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine function as users do."""
    anyio.run(main, backend="asyncio")


def test_tasks_get_what_threads_get(tmp_path: Path) -> None:
    """Appends of tasks, at once: answers, errors, repetitions, and what the context says."""

    async def main() -> None:
        async with chatledger.open_async(tmp_path / "data", durability="fast") as ledger:
            for number in range(8):
                await ledger.create_chat(f"c{number}", "u")

            async def write(number: int) -> list[str]:
                with ledger.context(actor=f"a{number}"):
                    message = user(f"t{number}")
                    (stored,) = await ledger.append(f"c{number}", [message])
                    assert await ledger.append(f"c{number}", [message]) == [stored]  # nothing more is written
                    with pytest.raises(HeadConflictError):
                        await ledger.append(f"c{number}", [user("no")], expected_head=None)
                    with pytest.raises(ChatNotFoundError):
                        await ledger.append("none", [user("no")])
                    return [stored.id]

            found = await asyncio.gather(*(write(number) for number in range(8)))

            for number in range(8):
                assert found[number] == [message.id for message in await ledger.get_messages(f"c{number}")]
                events = [event async for event in ledger.history(f"c{number}")]
                assert [None, f"a{number}"] == [event.actor for event in events]

    run(main)


def test_a_task_that_is_cancelled_knows_what_it_wrote(tmp_path: Path) -> None:
    """It is waited for: afterwards the message is there."""

    async def main() -> None:
        async with chatledger.open_async(tmp_path / "data", durability="fast") as ledger:
            await ledger.create_chat("c", "u")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ledger.append, "c", [user("a")])
                await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()

            assert ["a"] == [message.text for message in await ledger.get_messages("c")]

    run(main)


def test_tasks_whose_acknowledgements_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the log is theirs, and says that the outcome is unknown; a repetition finds out."""

    async def main() -> None:
        async with chatledger.open_async(tmp_path / "data", durability="fast") as ledger:
            await ledger.create_chat("c", "u")
            message = user("a")

            finish = JetStreamAppends.finish

            def lose(self: JetStreamAppends) -> list[Any]:
                return [LogUnavailableError("no answer") for _ in finish(self)]

            with monkeypatch.context() as patch:
                patch.setattr(JetStreamAppends, "finish", lose)
                with pytest.raises(LogUnavailableError):
                    await ledger.append("c", [message])
            await ledger.append("c", [message])

            assert ["a"] == [message.text for message in await ledger.get_messages("c")]

    run(main)
