"""Many chats imported at once: each has the outcome that it has alone, and the log the events that it would have."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.store_world import together
from tests.support.ledger_world import check_chat, internals, length
from tests.support.soak import examples

import chatledger
from chatledger import ChatledgerError, InvalidValueError, Ledger, LogUnavailableError
from chatledger.errors import AccessDeniedError
from chatledger.importers import (
    ChatImport,
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportResult,
    import_chats,
    write_chats,
)
from chatledger.infra.log.nats import event_log
from chatledger.infra.log.nats.append import append_messages
from chatledger.infra.log.nats.subjects import token
from chatledger.infra.log.port import LostRaceError


def chat(chat_id: str, *texts: str, owner: str = "u", first: str | None = None) -> ImportedChat:
    """A chat of these messages, one after the other, on `main`."""
    ids = [f"{first or chat_id}-{number}" for number in range(len(texts))]
    messages = tuple(
        ImportedMessage(id=one, parent_id=parent, name="user", data=text, created_at=1)
        for one, parent, text in zip(ids, [None, *ids], texts, strict=False)
    )
    return ImportedChat(
        id=chat_id,
        user_id=owner,
        title=None,
        metadata=None,
        created_at=1,
        messages=messages,
        branches=(ImportedBranch(name="main", head_message_id=ids[-1] if ids else None, is_active=True),),
    )


def alone(ledger: Ledger, chats: Sequence[ImportedChat]) -> list[ImportResult | ChatledgerError]:
    """The outcomes of imports one after the other."""
    found: list[ImportResult | ChatledgerError] = []
    for one in chats:
        try:
            found.append(ledger.import_chat(one))
        except ChatledgerError as error:
            found.append(error)
    return found


def told(outcomes: Sequence[ImportResult | ChatledgerError]) -> list[Any]:
    """Outcomes that can be compared."""
    return [str(one) if isinstance(one, ChatledgerError) else one for one in outcomes]


def events(ledger: Ledger) -> list[Any]:
    """Everything on the log but what differs from one time to the next."""
    return [
        (one.position, one.chat_id, type(one.body), one.event.originator_version, one.event.rest)
        for one in ledger.history()
    ]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with chatledger.open(tmp_path / "data", durability="fast") as opened:
        yield opened


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of messages of each atomic batch that was asked for."""
    sizes: list[int] = []

    def counted(client: Any, stream: str, messages: Any, *rest: Any, **options: Any) -> Any:
        sizes.append(len(messages))
        return append_messages(client, stream, messages, *rest, **options)

    monkeypatch.setattr(event_log, "append_messages", counted)
    return sizes


def test_many_chats_share_a_commit(ledger: Ledger, batches: list[int]) -> None:
    """Each has its own events, in the order given, one chat after the other."""
    chats = [chat(f"c{number}", "a", "b") for number in range(100)]
    outcomes = list(import_chats(ledger, chats))
    again = list(import_chats(ledger, iter(chats)))

    assert sum(batches) == 200
    assert batches == [128, 72]
    assert [one.id for one in chats] == [one.chat.id for one in outcomes] == [one.chat.id for one in again]
    assert {(True, 2)} == {(one.get_result().is_new, one.get_result().messages_added) for one in outcomes}
    assert [ImportResult(chat_id=one.id) for one in chats] == [one.outcome for one in again]
    assert [one.id for one in chats for _ in range(2)] == [event.chat_id for event in ledger.history()]
    for one in chats[::10]:
        check_chat(ledger, one.id)


def test_imports_of_threads_share_batches(ledger: Ledger, batches: list[int]) -> None:
    """Without a file: what comes while another import is under way is written with what else came."""
    together(16, lambda number: ledger.import_chat(chat(f"c{number}", "a")))

    assert sum(batches) == 32
    assert len(batches) < 16
    for number in range(16):
        check_chat(ledger, f"c{number}")


def odd_chats() -> st.SearchStrategy[ImportedChat]:
    """Chats with ids and messages of each other, with branches, and some that nothing can take."""
    plain = st.builds(
        chat,
        st.sampled_from("abcdef"),
        *(st.sampled_from(["x", "y"]),) * 2,
        first=st.sampled_from([None, None, None, "a", "b"]),
    )
    forked = plain.map(
        lambda one: msgspec.structs.replace(
            one,
            branches=(*one.branches, ImportedBranch(name="side", head_message_id=one.messages[0].id)),
            checkpoints=(ImportedCheckpoint(name="k", message_id=one.messages[0].id),),
        )
    )
    lost = plain.map(lambda one: msgspec.structs.replace(one, messages=one.messages[1:]))
    wrong = plain.map(lambda one: msgspec.structs.replace(one, user_id=""))
    return plain | forked | lost | wrong


@pytest.mark.parametrize("place", ["memory:", pytest.param("data", marks=pytest.mark.soak)])
def test_together_is_as_one_after_the_other(place: str, tmp_path: Path) -> None:
    """Outcomes, events and their order."""
    count = iter(range(10_000))

    def location() -> str:
        return place if place == "memory:" else str(tmp_path / f"{next(count)}")

    @settings(max_examples=examples(40 if place == "memory:" else 20), deadline=None)
    @given(st.lists(odd_chats(), max_size=12))
    def check(chats: list[ImportedChat]) -> None:
        with chatledger.open(location()) as one, chatledger.open(location()) as many:
            expected = alone(one, chats)
            outcomes = list(import_chats(many, chats))

            assert chats == [outcome.chat for outcome in outcomes]
            assert told(expected) == told([outcome.outcome for outcome in outcomes])
            assert events(one) == events(many)
            assert one.verify().message_count == many.verify().message_count

    check()


def test_what_was_read_before_an_error_is_imported(ledger: Ledger) -> None:
    """The file ends in the middle of a group; the outcomes come first, then its error."""

    def broken() -> Iterator[ImportedChat]:
        yield from (chat(f"c{number}", "a") for number in range(3))
        msg = "the file ends here"
        raise InvalidValueError(msg)

    outcomes: list[ChatImport] = []
    with pytest.raises(InvalidValueError, match="ends here"):
        outcomes.extend(import_chats(ledger, broken()))
    found = {one.id for one in ledger.list_chats()}

    assert found == {"c0", "c1", "c2"}


def test_one_user_imports_their_own(ledger: Ledger) -> None:
    """A ledger that is limited to a user refuses the others' chats, and ids that others use."""
    ledger.import_chat(chat("taken", "a"))
    chats = [chat("mine", "a", owner="ada"), chat("his", "a"), chat("taken", "b", owner="ada", first="new")]
    mine, his, taken = import_chats(ledger.for_user("ada"), chats)

    assert mine.get_result().is_new
    with pytest.raises(AccessDeniedError):
        his.get_result()
    with pytest.raises(ChatledgerError, match="taken"):
        taken.get_result()
    assert {"mine", "taken"} == {one.id for one in ledger.list_chats()}


def test_a_message_of_another_chat_of_the_group(ledger: Ledger) -> None:
    """The chat that comes second gets an id of its own for it, as when the first had been there for long."""
    first, second, third = import_chats(ledger, [chat("a", "x"), chat("b", "x", first="a"), chat("c", "x")])

    assert all(one.get_result().is_new for one in (first, second, third))


def test_a_batch_that_loses_a_race_is_written_one_by_one(
    ledger: Ledger, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer makes one of the chats meanwhile: the rest of it is added, and the others do not notice."""
    write, lost = event_log.JetStreamLog.write, ["once"]

    def racing(self: event_log.JetStreamLog, stream_id: str, messages: Any, **options: Any) -> list[int]:
        if len(messages) > 2 and lost:
            lost.pop()
            chat_1 = [message for message in messages if message.subject.endswith(f".{token('c1')}")]
            write(
                self,
                "c1",
                [
                    msgspec.structs.replace(one, headers={**one.headers, "Nats-Msg-Id": f"x{at}"})
                    for at, one in enumerate(chat_1)
                ],
            )
        return write(self, stream_id, messages, **options)

    monkeypatch.setattr(event_log.JetStreamLog, "write", racing)
    outcomes = list(import_chats(ledger, [chat(f"c{number}", "a") for number in range(6)]))

    assert lost == []
    assert [True, False, True, True, True, True] == [one.get_result().is_new for one in outcomes]
    assert length(ledger) == 12
    for number in range(6):
        check_chat(ledger, f"c{number}")


def test_an_answer_that_is_lost(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server stored a batch, and nobody heard of it: all are told so, and the repetition finds every chat."""
    write = event_log.JetStreamLog.write

    def unheard(self: event_log.JetStreamLog, stream_id: str, messages: Any, **options: Any) -> list[int]:
        write(self, stream_id, messages, **options)
        msg = "no answer"
        raise LogUnavailableError(msg)

    chats = [chat(f"c{number}", "a") for number in range(6)]
    with monkeypatch.context() as patch:
        patch.setattr(event_log.JetStreamLog, "write", unheard)
        outcomes = list(import_chats(ledger, chats))
    again = list(import_chats(ledger, chats))

    assert {LogUnavailableError} == {type(one.outcome) for one in outcomes}
    assert length(ledger) == 12
    assert [ImportResult(chat_id=one.id) for one in chats] == [one.outcome for one in again]


def test_the_log_refuses_one_of_a_batch(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is told what concerns itself."""
    write = internals(ledger).log.write

    def refuse(stream_id: str, messages: Any, **options: Any) -> list[int]:
        if any(message.subject.endswith(f".{token('c3')}") for message in messages):
            raise LostRaceError if len(messages) > 2 else ChatledgerError("not c3")
        positions: list[int] = write(stream_id, messages, **options)
        return positions

    monkeypatch.setattr(internals(ledger).log, "write", refuse)
    outcomes = list(import_chats(ledger, [chat(f"c{number}", "a") for number in range(6)]))

    assert ["not c3"] == [str(one.outcome) for one in outcomes if isinstance(one.outcome, ChatledgerError)]
    assert {"c0", "c1", "c2", "c4", "c5"} == {one.id for one in ledger.list_chats()}


KILLED = """
    import sys
    from pathlib import Path
    import chatledger
    from chatledger.importers import import_chats, read_chats
    from tests.faults.deaths import Death, arm, server_pid

    place, file, point, victim = sys.argv[1:]
    with chatledger.open(place) as ledger:
        arm(Death(point, 2, victim), lambda _: None, lambda: server_pid(Path(place)))
        for one in import_chats(ledger, read_chats(file, on_problem=print)):
            one.get_result()
"""


@pytest.mark.guard
@pytest.mark.matrix
@pytest.mark.parametrize("victim", ["self", "server"])
@pytest.mark.parametrize(
    "point", ["group: sent", "group: acknowledged", "group: applied", "project: before the commit"]
)
def test_a_killed_import_leaves_whole_chats(tmp_path: Path, point: str, victim: str) -> None:
    """Kill -9 within a group: each chat is there whole or not at all, and the import run again completes."""
    place, file = tmp_path / "data", tmp_path / "chats.jsonl"
    chats = [chat(f"c{number:03}", *(f"{number} {at}" for at in range(5))) for number in range(150)]
    with file.open("wb") as stream:
        write_chats(stream, chats)
    script = textwrap.dedent(KILLED)
    command = [sys.executable, "-c", script, str(place), str(file), point, victim]
    died = subprocess.run(command, capture_output=True, check=False, cwd=Path(__file__).parents[3], timeout=120)
    with chatledger.open(place) as ledger:
        found = {one.id: len(ledger.get_messages(one.id)) for one in ledger.list_chats()}
        outcomes = [one.get_result() for one in import_chats(ledger, chats)]

        assert died.returncode == (-9 if victim == "self" else died.returncode)
        assert {5} >= set(found.values())
        assert {one.chat_id for one in outcomes if not one.is_new} == set(found)
        assert [ImportResult(chat_id=one.id) for one in chats] == alone(ledger, chats)
        assert 750 == ledger.verify().message_count
