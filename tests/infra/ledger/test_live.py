"""Live streams: written, read while they grow, committed once, taken over, dropped, erased."""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.store_world import together
from tests.support.encrypted_world import KEY, found_in, in_memory
from tests.support.in_form import in_form
from tests.support.jetstream_world import TOKEN, Relay, eventually, running
from tests.support.ledger_world import internals
from tests.support.soak import examples

import chatledger
from chatledger import (
    AlreadyExistsError,
    AsyncContextEngine,
    AsyncLedger,
    ContextEngine,
    Encryption,
    HeadConflictError,
    InvalidValueError,
    Ledger,
    NewMessage,
    NotFoundError,
    admin,
    assistant,
    user,
)
from chatledger.domain.chat.live import MAX_CHUNK_BYTES, LiveCommit, LiveEntry, LiveStart, live_key
from chatledger.errors import (
    BranchNotFoundError,
    ChatNotFoundError,
    LedgerClosedError,
    LiveConflictError,
    LiveLimitError,
    LiveStreamNotFoundError,
    LogUnavailableError,
    PayloadTooLargeError,
)
from chatledger.infra.ledger.drafts import MessageLike
from chatledger.infra.ledger.live import pump, writer
from chatledger.infra.ledger.live.writer import append_answer
from chatledger.infra.log.live_storage import LiveChangedError
from chatledger.infra.store.erasure import LiveEraser
from chatledger.live import LiveAnswer, LiveStream

assert in_memory
CHUNKS = ["Old ", "Town", "", b"\x00\xff", {"type": "tool", "input": [1, None]}, 7, None, True, ["x"], "é🦜"]


@pytest.fixture(params=["memory", "sqlite", "embedded"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A ledger with a chat."""
    location = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/log.db"}.get(request.param, str(tmp_path / "d"))
    options: dict[str, Any] = {"durability": "fast"} if request.param == "embedded" else {}
    with chatledger.open(location, **options) as ledger:
        ledger.create_chat("c", "ada")
        yield ledger


@pytest.fixture
def memory() -> Iterator[Ledger]:
    """A ledger in memory with a chat."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        yield ledger


def read(ledger: Ledger, stream_id: str, *, after: int = 0, follow: bool = False) -> list[Any]:
    """The data of the chunks after a number, whose numbers are in order and without holes."""
    chunks = list(ledger.read_live("c", stream_id, after=after, follow=follow))
    assert list(range(after + 1, after + 1 + len(chunks))) == [chunk.number for chunk in chunks]
    return [chunk.data for chunk in chunks]


def interrupted(ledger: Ledger, *chunks: Any, **options: Any) -> LiveStream:
    """A stream whose writer went."""
    with ledger.live("c", **options) as answer:
        for chunk in chunks:
            answer.write(chunk)
    found = ledger.get_live("c", answer.id)
    assert found is not None
    assert "interrupted" == found.status
    return found


def texts(ledger: Ledger) -> list[str]:
    return [message.data["parts"][0]["text"] for message in ledger.get_messages("c")]


def test_an_answer_is_read_while_it_grows_and_becomes_one_message(ledger: Ledger) -> None:
    """Readers see every chunk once and the end; the log gets one event."""
    before = ledger.last_position()
    found: dict[int, list[str]] = {}

    def follow(number: int) -> None:
        with ledger.read_live("c", answer.id, after=number) as reader:
            found[number] = [chunk.data for chunk in reader]
            assert "committed" == reader.status

    with ledger.live("c", name="assistant") as answer:
        readers = [threading.Thread(target=follow, args=(after,), daemon=True) for after in (0, 3)]
        for reader in readers:
            reader.start()
        for number in range(300):
            answer.write(f"{number} ")
        answer.flush()
        assert 300 == len(read(ledger, answer.id))
        assert before == ledger.last_position()
        message = answer.commit()
        assert message == answer.commit()
    for reader in readers:
        reader.join(20)

    written = [f"{number} " for number in range(300)]
    assert {0: written, 3: written[3:]} == found
    assert ["".join(written)] == texts(ledger)
    assert ("assistant", message.id) == (message.name, ledger.get_messages("c")[0].id)
    assert before + 1 == ledger.last_position()
    stream = ledger.get_live("c", answer.id)
    assert stream is not None
    assert ("committed", message.id, 300) == (stream.status, stream.message_id, stream.chunk_count)


def test_chunks_are_text_bytes_or_json(ledger: Ledger) -> None:
    """They are read as they were written, from any point; the message is then given."""
    with ledger.live("c") as answer:
        for chunk in CHUNKS:
            answer.write(chunk)
        answer.flush()

        for after in range(len(CHUNKS) + 1):
            assert CHUNKS[after:] == read(ledger, answer.id, after=after)
        with pytest.raises(InvalidValueError, match="not text"):
            answer.commit()
        message = answer.commit(assistant("done", id="m"), expected_head=None)
    assert ("m", ["done"]) == (message.id, texts(ledger))


def test_a_message_without_an_id_takes_that_which_readers_were_given(ledger: Ledger) -> None:
    """Whatever it is made of, also after a take-over; else what they show would be another message than the one that is stored."""
    ui = {"role": "assistant", "parts": [{"type": "text", "text": "done"}]}
    chat = {"role": "assistant", "content": "done"}
    made: list[MessageLike] = [
        assistant("done"),
        assistant("done", metadata={"model": "m"}),
        chatledger.message(ui),
        ui,
        chat,
        NewMessage("assistant", "done"),
        NewMessage("assistant", "done", metadata={"model": "m"}),
    ]
    for message in made:
        left = ledger.live("c")
        left.write("d")
        left.close()
        stream = ledger.get_live("c", left.id)
        assert stream is not None
        with ledger.take_over_live(stream) as answer, ledger.read_live("c", left.id) as reader:
            stored = answer.commit(message)
            assert reader.message_id == stored.id, message
            assert stored.text == "done"
    own: list[MessageLike] = [
        assistant("done", "m1"),
        assistant("done").with_id("m2"),
        {**ui, "id": "m3"},
        in_form("openai", chat, "m4"),
        NewMessage("assistant", "done", id="m5"),
    ]
    for number, message in enumerate(own, 1):
        with ledger.live("c") as answer:
            assert answer.commit(message).id == f"m{number}"


def test_a_discarded_stream_leaves_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message, no chunk; a reader learns that it was dropped."""
    monkeypatch.setattr(writer, "LINGER_S", 0.1)
    with ledger.live("c") as answer:
        answer.write("never mind")
        answer.flush()
        reader = ledger.read_live("c", answer.id)
        assert "never mind" == next(reader).data
        answer.discard()
        answer.discard()
        assert [] == list(reader)

    assert "dropped" == reader.status
    assert [] == ledger.get_messages("c")
    assert eventually(lambda: ledger.get_live("c", answer.id) is None)
    with pytest.raises(LiveConflictError):
        answer.write("more")


def test_a_stream_left_by_an_error_is_taken_over(ledger: Ledger) -> None:
    """What was written is there; who takes it over goes on behind it, and the earlier readers with it."""
    with contextlib.suppress(ZeroDivisionError), ledger.live("c", branch="main", id="s") as answer:
        answer.write("one ")
        raise ZeroDivisionError
    reader = ledger.read_live("c", "s")
    assert ["one "] == [chunk.data for chunk in reader]
    assert "interrupted" == reader.status
    (stream,) = ledger.list_live("c")

    with ledger.take_over_live(stream) as other:
        other.write("two")
        assert (2, 2) == (other.epoch, other.chunk_count)
        other.commit()

    assert ["two"] == [chunk.data for chunk in reader]
    assert ("committed", 2) == (reader.status, reader.position)
    assert ["one two"] == texts(ledger)
    with pytest.raises(LiveConflictError):
        ledger.take_over_live(stream)


def test_of_several_takers_one_wins(ledger: Ledger) -> None:
    """Also of those that come later with what they saw before."""
    stream = interrupted(ledger, "x")

    def take(_: int) -> LiveAnswer | None:
        try:
            return ledger.take_over_live(stream)
        except LiveConflictError:
            return None

    winners = [answer for answer in [*together(6, take), take(6)] if answer is not None]

    assert 1 == len(winners)
    assert "x" == winners[0].commit().data["parts"][0]["text"]


def test_a_stream_that_was_taken_over_is_read_in_one_go(ledger: Ledger) -> None:
    """Where an earlier writer left it a reader does not stop, if it went on since."""
    with ledger.live("c", id="s") as answer:
        for number in range(6):
            answer.write(f"{number},")
            answer.flush()
    stream = ledger.get_live("c", "s")
    assert stream is not None
    with ledger.take_over_live(stream) as answer:
        answer.write("6,")
        answer.commit()

    for _ in range(10):
        with ledger.read_live("c", "s") as reader:
            assert "0,1,2,3,4,5,6," == "".join(chunk.data for chunk in reader)
            assert "committed" == reader.status


class SlowRelay(Relay):
    """Passes the first of the chunks on after a while only; where it is deaf, it passes none on."""

    is_slow = True
    is_deaf = False

    def transfer(self, data: bytes, to: socket.socket, *, is_reply: bool) -> bool:
        is_chunk = is_reply and b"$JS.ACK.slow-live." in data
        if is_chunk and self.is_deaf:
            return True
        if is_chunk and self.is_slow:
            self.is_slow = False
            time.sleep(0.7)
        return super().transfer(data, to, is_reply=is_reply)


@pytest.mark.guard
def test_a_reader_behind_a_slow_network_reads_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the writer was silent for long before the first chunk arrives. A commit says when it cannot read them."""
    with running(tmp_path / "server") as server:
        relay = SlowRelay(lambda: server.port)
        near, far = (f"nats://{TOKEN}@127.0.0.1:{port}/slow" for port in (server.port, relay.port))
        with chatledger.open(near, create=True, index=tmp_path / "a") as writer_side:
            writer_side.create_chat("c", "ada")
            with writer_side.live("c", id="s") as answer:
                answer.write("x")
                answer.commit()
            with chatledger.open(far, index=tmp_path / "b") as reader_side:
                monkeypatch.setattr("chatledger.infra.ledger.live.methods.SILENCE_S", 0.2)
                reader = reader_side.read_live("c", "s")
                assert ["x"] == [chunk.data for chunk in reader]
                assert ("committed", False) == (reader.status, relay.is_slow)
                monkeypatch.setattr("chatledger.infra.ledger.live.writer._WAIT_S", 0.2)
                relay.is_deaf = True
                with reader_side.live("c") as answer:
                    answer.write("y")
                    with pytest.raises(LogUnavailableError, match="did not arrive"):
                        answer.commit()
                    relay.is_deaf = False
                    monkeypatch.undo()
                    answer.commit()
                assert ["x", "y"] == texts(reader_side)
        relay.close()


def test_a_fenced_writer_is_told(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that it writes afterwards is in the stream."""
    answer = ledger.live("c")
    answer.write("mine")
    answer.flush()
    _silent(monkeypatch)
    stream = ledger.get_live("c", answer.id)
    assert stream is not None
    other = ledger.take_over_live(stream)
    other.write("theirs")
    other.flush()

    with pytest.raises(LiveConflictError):
        write_on(answer)
    assert ["mine", "theirs"] == read(ledger, answer.id)


def write_on(answer: LiveAnswer) -> None:
    """Write until that is refused."""
    for _ in range(100):
        answer.write("late")
        answer.flush()


def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every writer seems to be silent for long."""
    monkeypatch.setattr("chatledger.domain.chat.live.SILENCE_S", -1.0)


def test_the_message_of_a_writer_that_died_in_a_commit_is_appended_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a sweep or by whoever takes it over, whether or not it was there already."""
    _silent(monkeypatch)
    monkeypatch.setattr("chatledger.infra.ledger.live.writer.SILENCE_S", -1.0)
    for number in range(2):
        stream = interrupted(ledger, f"answer {number}")
        close_for_commit(ledger, stream, LiveCommit(f"m{number}", None))
        if number:
            ledger.append("c", assistant("answer 1", id="m1"))
        committing = ledger.get_live("c", stream.id)
        assert committing is not None
        assert ("committing", f"m{number}") == (committing.status, committing.message_id)
        if number:
            ledger.sweep()
        else:
            with pytest.raises(LiveConflictError, match="committed"):
                ledger.take_over_live(committing)
        ended = ledger.get_live("c", stream.id)
        assert ended is not None
        assert "committed" == ended.status

    assert ["answer 0", "answer 1"] == texts(ledger)


def test_a_commit_that_cannot_be_finished_leaves_the_stream_interrupted(
    memory: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its branch was deleted meanwhile."""
    monkeypatch.setattr("chatledger.infra.ledger.live.writer.SILENCE_S", -1.0)
    stream = interrupted(memory, "x")
    close_for_commit(memory, stream, LiveCommit("m", "gone"))
    memory.sweep()

    found = memory.get_live("c", stream.id)
    assert found is not None
    assert "interrupted" == found.status
    assert "x" == memory.take_over_live(found).commit().data["parts"][0]["text"]


def test_a_commit_that_others_finish_heeds_the_expected_head(memory: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that died in a commit for a branch that has moved since leaves an interrupted stream, and no message."""
    _silent(monkeypatch)
    monkeypatch.setattr("chatledger.infra.ledger.live.writer.SILENCE_S", -1.0)
    with memory.live("c", id="s") as answer:
        answer.write("x")
        monkeypatch.setattr(writer, "append_answer", _unanswered)
        with pytest.raises(LogUnavailableError):
            answer.commit(expected_head=None)
        monkeypatch.setattr(writer, "append_answer", append_answer)
    memory.append("c", user("faster"))
    memory.sweep()

    assert ["faster"] == texts(memory)
    found = memory.get_live("c", "s")
    assert found is not None
    assert "interrupted" == found.status
    assert "x" == memory.take_over_live(found).commit().data["parts"][0]["text"]


def _unanswered(*_: Any, **__: Any) -> None:
    msg = "no answer"
    raise LogUnavailableError(msg)


@pytest.mark.parametrize("options", [{}, {"expected_head": "q"}])
def test_a_commit_is_repeated_after_its_branch_was_left(
    memory: Ledger, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """The message that the first attempt stored is the answer; there is no second one, and no error."""
    memory.append("c", user("q", id="q"))

    def append_and_lose_the_answer(*args: Any, **options: Any) -> None:
        append_answer(*args, **options)
        _unanswered()

    with memory.live("c") as answer:
        answer.write("a")
        monkeypatch.setattr(writer, "append_answer", append_and_lose_the_answer)
        with pytest.raises(LogUnavailableError):
            answer.commit(**options)
        monkeypatch.setattr(writer, "append_answer", append_answer)
        memory.create_branch("c", "other", "q", activate=True)
        message = answer.commit(**options)

    assert ["q"] == texts(memory)
    assert ["q", message.id] == [one.id for one in memory.get_messages("c", branch="main")]


def test_an_id_that_is_used_already_is_no_answer(memory: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another message has under the id of a dead writer's is not taken for its answer, which stays to be committed."""
    _silent(monkeypatch)
    monkeypatch.setattr("chatledger.infra.ledger.live.writer.SILENCE_S", -1.0)
    stream = interrupted(memory, "the answer")
    close_for_commit(memory, stream, LiveCommit("m", None))
    memory.append("c", assistant("something else", id="m"))
    memory.sweep()

    found = memory.get_live("c", stream.id)
    assert found is not None
    assert "interrupted" == found.status


def test_a_commit_that_others_finish_is_theirs(memory: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that was only slow cannot open the stream again, where its message may be there any moment."""
    monkeypatch.setattr("chatledger.infra.ledger.live.writer.SILENCE_S", -1.0)
    answer = memory.live("c")
    answer.write("x")
    answer.flush()
    stream = memory.get_live("c", answer.id)
    assert stream is not None
    close_for_commit(memory, stream, LiveCommit("m", None))
    slow = internals(memory).live.find(live_key("c", answer.id))
    assert slow is not None
    opened: list[bool] = []

    def append_while_the_other_opens(*args: Any, **options: Any) -> Any:
        message = append_answer(*args, **options)
        streams, entry = internals(memory).live, LiveEntry("open", 1, slow.last.count, slow.last.size)
        with pytest.raises(LiveChangedError):
            streams.add(slow.key, slow.tail, streams.seal(slow.key, slow.tail.number + 1, entry))
        opened.append(False)
        return message

    monkeypatch.setattr("chatledger.infra.ledger.live.writer.append_answer", append_while_the_other_opens)
    memory.sweep()

    assert ([False], ["x"]) == (opened, texts(memory))


def close_for_commit(ledger: Ledger, stream: LiveStream, commit: LiveCommit) -> None:
    """Leave a stream as a writer does that dies between closing it and appending its message."""
    streams = internals(ledger).live
    found = streams.find(live_key("c", stream.id))
    assert found is not None
    entry = LiveEntry("committing", found.last.epoch, found.last.count, found.last.size, commit=commit)
    streams.add(found.key, found.tail, streams.seal(found.key, found.tail.number + 1, entry))


def test_a_refused_commit_leaves_the_stream_open(memory: Ledger) -> None:
    """It can be written to, committed elsewhere or discarded."""
    memory.append("c", user("hello"))
    with memory.live("c") as answer:
        answer.write("hi")
        with pytest.raises(HeadConflictError):
            answer.commit(expected_head=None)
        answer.write(" there")
        answer.commit()
    assert ["hello", "hi there"] == texts(memory)


def test_nothing_stands_behind_a_commit_that_waits(memory: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """No beat and no chunk: who finds the stream then must see the message that it is to become."""
    monkeypatch.setattr(pump, "BEAT_S", 0.01)
    seen: list[str] = []

    def append_slowly(*args: Any, **options: Any) -> Any:
        time.sleep(0.1)
        with pytest.raises(LiveConflictError, match="committing"):
            answer.write("late")
        found = memory.get_live("c", answer.id)
        assert found is not None
        seen.append(found.status)
        return append_answer(*args, **options)

    monkeypatch.setattr(writer, "append_answer", append_slowly)
    with memory.live("c") as answer:
        answer.write("x")
        answer.commit()
    assert (["committing"], ["x"]) == (seen, texts(memory))


def test_an_interrupted_stream_is_dropped_by_its_time_limit(ledger: Ledger) -> None:
    """By a sweep; others stay."""
    gone = interrupted(ledger, "x", keep_s=0.01)
    kept = interrupted(ledger, "y")
    time.sleep(0.05)
    ledger.sweep()

    assert [kept.id] == [stream.id for stream in ledger.list_live()]
    with pytest.raises(LiveStreamNotFoundError):
        ledger.read_live("c", gone.id)
    with pytest.raises(LiveStreamNotFoundError):
        ledger.take_over_live(gone)


def test_it_is_erased_with_its_chat(ledger: Ledger, tmp_path: Path) -> None:
    """From the files too; its writer and readers are told. A new chat under the same id has none."""
    secret = "swordfish in the stream"
    answer = ledger.live("c")
    answer.write(secret)
    answer.flush()
    reader = ledger.read_live("c", answer.id)
    assert secret == next(reader).data
    ledger.delete_chat("c")
    ledger.create_chat("c", "ada")

    assert [] == ledger.list_live()
    with pytest.raises(LiveStreamNotFoundError):
        next(reader)
    with pytest.raises(LiveStreamNotFoundError):
        write_on(answer)
    assert set() == found_in(tmp_path, {"chunk": secret})


def test_it_is_erased_with_the_name_of_its_branch(ledger: Ledger, tmp_path: Path) -> None:
    """Once that is another one, and the earlier is erased: those that go to branches that are called so still, or to none, stay."""
    ledger.append("c", user("hello"))
    for name in ("card 4929", "main-v2"):
        ledger.create_branch("c", name, None)
    gone = interrupted(ledger, "x", branch="card 4929")
    stays = [interrupted(ledger, "y", branch="main-v2").id, interrupted(ledger, "z").id]
    ledger.rename_branch("c", "card 4929", "payment")
    ledger.redact(ledger.get_messages("c")[0].id)
    assert [gone.id, *stays] == [stream.id for stream in ledger.list_live("c")]
    ledger.redact_words("c")

    ledger.wait_erased()
    assert stays == [stream.id for stream in ledger.list_live("c")]
    with pytest.raises(LiveStreamNotFoundError):
        ledger.take_over_live(gone)
    assert set() == found_in(tmp_path, {"name": "card 4929"})


def test_it_is_erased_with_the_message_that_it_became(ledger: Ledger, tmp_path: Path) -> None:
    """Also where that has an id of its own: readers could read it for half a minute more."""
    secret = "swordfish in the stream"
    answer = ledger.live("c")
    answer.write(secret)
    message = answer.commit(NewMessage("assistant", secret, id="own"))
    assert [chunk.data for chunk in ledger.read_live("c", answer.id)] == [secret]
    ledger.redact(message.id)

    ledger.wait_erased()
    assert [] == ledger.list_live()
    assert set() == found_in(tmp_path, {"chunk": secret})


def test_it_is_erased_with_the_name_of_who_was_to_send_it(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pseudonym stands in the message, also in that of a writer that died in its commit; the streams with the name go, others stay."""
    monkeypatch.setattr("chatledger.infra.ledger.live.writer.SILENCE_S", -1.0)
    name = "ada.lovelace@example"
    draft = NewMessage("user", "word", sender_id=name)
    stays = interrupted(ledger, "y").id
    ledger.live("c").commit(draft)
    with ledger.live("c") as refused, pytest.raises(HeadConflictError):
        refused.commit(draft, expected_head=None)
    close_for_commit(ledger, interrupted(ledger, "z"), LiveCommit("m", None, draft))
    ledger.erase_user(name)
    assert len(ledger.list_live()) == 4
    ledger.erase_user(name, pseudonym="former user")

    assert [stays] == [stream.id for stream in ledger.list_live()]
    assert ["former user"] * 2 == [message.sender_id for message in ledger.get_messages("c")]
    assert set() == found_in(tmp_path, {"name": name})


def test_a_hold_keeps_the_stream_that_names_a_user(memory: Ledger) -> None:
    """As it does the message."""
    memory.live("c").commit(NewMessage("user", "word", sender_id="bob"))
    memory.hold("chat", "c")
    memory.erase_user("bob", pseudonym="former user")
    assert len(memory.list_live()) == 1
    memory.release("chat", "c")
    memory.erase_user("bob", pseudonym="former user")
    assert [] == memory.list_live()


def rename_and_redact(ledger: Ledger) -> None:
    ledger.rename_branch("c", "draft", "other")
    ledger.redact_words("c")


@pytest.mark.parametrize(
    ("erase", "error"),
    [(lambda ledger: ledger.delete_chat("c"), ChatNotFoundError), (rename_and_redact, BranchNotFoundError)],
    ids=["chat", "branch"],
)
def test_a_stream_begun_while_what_it_names_is_erased_elsewhere_is_refused(
    tmp_path: Path, erase: Callable[[Ledger], object], error: type[Exception]
) -> None:
    """The erasure has not seen the stream, and the index of the writer not the erasure."""
    location = f"sqlite:///{tmp_path}/log.db"
    with (
        chatledger.open(location, index=tmp_path / "a") as ledger,
        chatledger.open(location, index=tmp_path / "b") as b,
    ):
        ledger.create_chat("c", "ada")
        ledger.create_branch("c", "draft", None)
        b.sync()
        streams = internals(b).live
        begin = streams.begin

        def begin_late(start: LiveStart) -> Any:
            erase(ledger)
            return begin(start)

        streams.begin = begin_late
        with pytest.raises(error):
            b.live("c", id="s", branch="draft")
        assert [] == streams.keys()


def test_a_stream_of_a_later_log_is_not_there(memory: Ledger) -> None:
    """As where the log was restored from a backup, and the server kept what was being written after that."""
    lasting = interrupted(memory, "x")
    internals(memory).live.begin(LiveStart("c", "later", "x", None, 0, 60.0, 1_000, "m"))
    assert [lasting.id] == [stream.id for stream in memory.list_live()]
    assert memory.get_live("c", "later") is None


def test_streams_of_deleted_chats_are_dropped_by_whoever_tidies(memory: Ledger) -> None:
    """As where the login that deleted the chat may not drop them; one that cannot be read stays where others write to it."""
    store = internals(memory)
    key, _ = store.live.begin(LiveStart("c", "of an earlier chat", "x", None, 0, 60.0, 0, "m"))
    lasting = interrupted(memory, "x")
    unreadable = live_key("c", "unreadable")
    store.live.storage.create(unreadable, b"no entry at all")
    LiveEraser(store.live, store.index).tidy()

    assert store.live.find(key) is None
    assert [lasting.id] == [stream.id for stream in memory.list_live()]
    assert {unreadable, live_key("c", lasting.id)} == set(store.live.keys())
    memory.delete_chat("c")
    assert [] == store.live.keys()


def test_one_user_sees_the_streams_of_own_chats_only(memory: Ledger) -> None:
    """Those of others are as if they were not there."""
    stream = interrupted(memory, "x", id="s")
    ada, bob = memory.for_user("ada"), memory.for_user("bob")

    assert [stream.id] == [one.id for one in ada.list_live()]
    assert ["x"] == [chunk.data for chunk in ada.read_live("c", "s", follow=False)]
    assert [] == bob.list_live() == bob.list_live("c")
    assert bob.get_live("c", "s") is None
    refused: list[tuple[type[Exception], Callable[[], object]]] = [
        (ChatNotFoundError, lambda: bob.live("c")),
        (LiveStreamNotFoundError, lambda: bob.read_live("c", "s")),
        (LiveStreamNotFoundError, lambda: bob.take_over_live(stream)),
    ]
    for error, call in refused:
        with pytest.raises(error):
            call()
    assert "x" == ada.take_over_live(stream).commit().data["parts"][0]["text"]


@pytest.mark.usefixtures("in_memory")
def test_it_is_encrypted_where_the_ledger_is(tmp_path: Path) -> None:
    """Neither its chunks nor its name stand in clear in a file."""
    secrets = {"chunk": "swordfish", "name": "detective", "draft": "marlowe"}
    location = f"sqlite:///{tmp_path}/log.db"
    with chatledger.open(location, encryption=Encryption(KEY)) as ledger:
        ledger.create_chat("c", "ada")
        with ledger.live("c", name=secrets["name"]) as answer:
            answer.write(secrets["chunk"])
            answer.flush()
            assert [secrets["chunk"]] == read(ledger, answer.id)
            assert set() == found_in(tmp_path, secrets)
            answer.commit(assistant(secrets["draft"]))
        assert set() == found_in(tmp_path, secrets)


def test_it_is_in_no_backup(tmp_path: Path) -> None:
    """A restored ledger has the messages, and no live streams."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        interrupted(ledger, "swordfish")
        ledger.backup(tmp_path / "backup")
        assert set() == found_in(tmp_path / "backup", {"chunk": "swordfish"})
    admin.restore(tmp_path / "backup", tmp_path / "copy")

    with chatledger.open(tmp_path / "copy", durability="fast") as ledger:
        assert [] == ledger.list_live()
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        assert ["swordfish"] == [chunk.data for chunk in ledger.read_live("c", ledger.list_live()[0].id, follow=False)]


def test_what_breaks_a_rule_changes_nothing(memory: Ledger) -> None:
    """Each with its error."""
    calls: list[tuple[type[Exception], Callable[[], object]]] = [
        (ChatNotFoundError, lambda: memory.live("nobody")),
        (BranchNotFoundError, lambda: memory.live("c", branch="none")),
        (InvalidValueError, lambda: memory.live("c", name="")),
        (InvalidValueError, lambda: memory.live("c", id="")),
        (InvalidValueError, lambda: memory.live("c", keep_s=0)),
        (InvalidValueError, lambda: memory.live("c", keep_s=10**9)),
        (NotFoundError, lambda: memory.read_live("c", "none")),
        (InvalidValueError, lambda: memory.read_live("c", "none", after=-1)),
    ]
    for error, call in calls:
        with pytest.raises(error):
            call()
    assert [] == memory.list_live()
    with memory.live("c", id="s") as answer:
        with pytest.raises(AlreadyExistsError):
            memory.live("c", id="s")
        bad: list[Any] = [{1: 2}, {1, 2}, [10**4300], "x" * (MAX_CHUNK_BYTES + 1), object()]
        for chunk in bad:
            with pytest.raises(InvalidValueError):
                answer.write(chunk)
        for message in ([], [user("a"), user("b")], "text"):
            with pytest.raises(InvalidValueError):
                answer.commit(message)  # type: ignore[arg-type]  # what it is about
        with pytest.raises(PayloadTooLargeError):
            answer.commit(assistant("x" * 9 * 1024 * 1024))
        assert [] == read(memory, "s")
        answer.commit(assistant("ok"))


def test_its_size_and_age_are_limited(memory: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before stays, and can be committed."""
    monkeypatch.setattr(pump, "MAX_LIVE_BYTES", 10)
    with memory.live("c") as answer:
        answer.write("12345678")
        with pytest.raises(LiveLimitError):
            answer.write("901")
        answer.write("90")
        monkeypatch.setattr(pump, "MAX_LIVE_AGE_S", -1)
        with pytest.raises(LiveLimitError):
            answer.write("")
        answer.commit()
    assert ["1234567890"] == texts(memory)


@pytest.mark.soak
def test_a_server_with_small_messages_gets_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever gathered meanwhile; a chunk that no message can hold is refused, and the stream takes others."""
    with running(tmp_path / "server") as server:
        configuration = server.base / "nats.conf"
        configuration.write_text(configuration.read_text().replace("max_payload: 1MB", "max_payload: 100000"))
        server.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        location = f"nats://{TOKEN}@127.0.0.1:{server.port}/small"
        with chatledger.open(location, create=True, index=tmp_path / "index", timeout_s=5) as ledger:
            ledger.create_chat("c", "ada")
            monkeypatch.setattr(pump, "PAUSE_S", 0.2)
            with ledger.live("c") as answer:
                with pytest.raises(PayloadTooLargeError, match="a chunk"):
                    answer.write("x" * 99_000)
                for _ in range(10):
                    answer.write("x" * 30_000)
                for _ in range(60_000):
                    answer.write("")
                answer.flush()
                assert 60_010 == len(read(ledger, answer.id))
                message = answer.commit(assistant("done"))
            assert "done" == message.data["parts"][0]["text"]


def test_a_flush_waits_for_what_was_written_before_it(memory: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for what others write meanwhile, or it would never end."""
    monkeypatch.setattr(pump, "_GIVE_UP_S", 20.0)
    monkeypatch.setattr(pump, "PAUSE_S", 0.02)
    with memory.live("c") as answer:
        is_over = threading.Event()

        def write_always() -> None:
            while not is_over.is_set():
                answer.write("x" * 10_000)

        others = threading.Thread(target=write_always, daemon=True)
        others.start()
        try:
            for _ in range(3):
                answer.flush()
        finally:
            is_over.set()
            others.join()


def test_a_closed_ledger_leaves_its_streams_interrupted(tmp_path: Path) -> None:
    """Nothing of what was written is lost; readers are told that the ledger was closed."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        answer = ledger.live("c")
        answer.write("kept")
        reader = ledger.read_live("c", answer.id)
        assert "kept" == next(reader).data
    with pytest.raises((LedgerClosedError, StopIteration)):
        next(reader)
    with pytest.raises((LedgerClosedError, LiveConflictError)):
        answer.write("late")
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        (stream,) = ledger.list_live()
        assert "interrupted" == stream.status
        assert "kept" == ledger.take_over_live(stream).commit().data["parts"][0]["text"]


@pytest.mark.anyio
async def test_asynchronous_streams(async_ledger: AsyncLedger) -> None:
    """The same, awaited: a reader in another task, a writer that is left, one that takes it over."""
    await async_ledger.create_chat("c", "ada")
    found: list[Any] = []

    async def follow(stream_id: str) -> None:
        async with async_ledger.read_live("c", stream_id) as reader:
            found.extend([chunk.data async for chunk in reader])
            assert ("committed", 101) == (reader.status, reader.position)

    with anyio.fail_after(30):
        async with async_ledger.live("c") as answer:
            for number in range(100):
                await answer.write(str(number))
            await answer.flush()
        (stream,) = await async_ledger.list_live("c")
        assert (100, "interrupted") == (stream.chunk_count, stream.status)
        async with anyio.create_task_group() as tasks, async_ledger.take_over_live(stream) as answer:
            tasks.start_soon(follow, answer.id)
            await answer.write("!")
            await answer.commit()

    (message,) = await async_ledger.get_messages("c")
    assert [*map(str, range(100)), "!"] == found
    assert "".join(found) == message.data["parts"][0]["text"]


@pytest.mark.anyio
async def test_an_asynchronous_stream_of_a_closed_ledger_is_left_in_peace(async_ledger: AsyncLedger) -> None:
    """The ledger closed it; its `async with` has nothing more to do, as that of a blocking ledger."""
    await async_ledger.create_chat("c", "ada")
    with anyio.fail_after(30):
        async with async_ledger.live("c") as answer:
            await answer.write("x")
            await async_ledger.close()
        await answer.close()


@pytest.mark.anyio
async def test_readers_that_wait_hold_nobody_up(async_ledger: AsyncLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither other calls of the ledger nor each other, however many they are."""
    monkeypatch.setattr("chatledger.infra.ledger.live.methods._LOOK_UP_S", 30.0)
    monkeypatch.setattr(pump, "BEAT_S", 60.0)
    count, found = 70, list[Any]()

    async def follow() -> None:
        async with async_ledger.read_live("c", "s") as reader:
            found.extend([chunk.data async for chunk in reader])

    with anyio.fail_after(15):
        await async_ledger.create_chat("c", "ada")
        async with async_ledger.live("c", id="s") as answer, anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(follow)
            await anyio.sleep(0.5)
            assert await async_ledger.get_chat("c") is not None
            await answer.write("x")
            await answer.commit()
    assert ["x"] * count == found


def test_what_is_gone_is_discarded_already(memory: Ledger) -> None:
    """As after the answer of the first attempt was lost, or with its chat."""
    answer = memory.live("c")
    answer.write("x")
    memory.delete_chat("c")
    answer.discard()
    answer.discard()
    assert [] == memory.list_live()


Step = tuple[str, int]
steps = st.lists(st.tuples(st.sampled_from(["write", "flush", "leave", "read"]), st.integers(1, 12)), max_size=30)


@settings(max_examples=examples(40), deadline=None)
@given(steps=steps, is_committed=st.booleans())
def test_readers_and_writers_agree_with_a_list(*, steps: list[Step], is_committed: bool) -> None:
    """Whatever is written in however many hands, from any point all of it is read, in order, once."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        answer, model = ledger.live("c", id="s"), list[str]()
        follower = ledger.read_live("c", "s")
        for step, count in steps:
            if step == "write":
                for _ in range(count):
                    model.append(f"{len(model)},")
                    answer.write(model[-1])
            elif step == "flush":
                answer.flush()
            elif step == "leave":
                answer.close()
                stream = ledger.get_live("c", "s")
                assert stream is not None
                answer = ledger.take_over_live(stream)
            else:
                answer.flush()
                after = min(count, len(model))
                assert model[after:] == read(ledger, "s", after=after)
        if is_committed:
            assert "".join(model) == answer.commit().data["parts"][0]["text"]
        else:
            answer.close()
        assert model == [chunk.data for chunk in follower]


def test_an_engine_streams_its_answer(memory: Ledger) -> None:
    """What is pending is saved first, and the answer follows on the engine's branch; not while it regenerates."""
    engine = ContextEngine(memory, "c", "ada").set(user("q"))
    with engine.live() as answer:
        answer.write("a")
        answer.commit()
    assert ["q", "a"] == texts(memory)
    engine.regenerate()
    with pytest.raises(InvalidValueError, match="regenerated"):
        engine.live()
    assert ["q", "a"] == texts(memory)


@pytest.mark.anyio
async def test_an_asynchronous_engine_streams_its_answer(async_ledger: AsyncLedger) -> None:
    """The same, awaited."""
    engine = AsyncContextEngine(async_ledger, "c", "ada").set(user("q"))
    async with engine.live() as answer:
        await answer.write("a")
        message = await answer.commit()
    head = await engine.head_message()
    assert head is not None
    assert message.id == head.id


def test_what_a_killed_server_left_of_a_dropped_stream_is_removed(tmp_path: Path) -> None:
    """The server renames the folder of a stream before it deletes it."""
    secret = "swordfish"
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "ada")
    streams = tmp_path / "data" / "log" / "jetstream" / "$G" / "streams"
    left = streams / f".chatledger-live-{'0' * 32}-{'1' * 32}" / "msgs"
    left.mkdir(parents=True)
    (left / "1.blk").write_text(secret)

    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        assert set() == found_in(tmp_path, {"chunk": secret})
        assert [] == ledger.list_live()
