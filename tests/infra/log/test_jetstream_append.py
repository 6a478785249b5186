"""Appends: lost answers, races, late retries, limits and refusals."""

# pyright: reportPrivateUsage=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# White-box checks, as for ruff; and raw replies of the server.

import os
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
from eventsourcing.persistence import (
    DataError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    StoredEvent,
    Tracking,
)
from tests.support.jetstream_world import Proxy, Server, connected, event, eventually, inserted, new_name, new_recorder

from chatledger.infra.log.nats import append as append_module
from chatledger.infra.log.nats.append import EXPECTED, Ack
from chatledger.infra.log.nats.client import JetStreamClient
from chatledger.infra.log.nats.errors import ConnectionLostError
from chatledger.infra.log.nats.transport import Request, Transport
from chatledger.jetstream import (
    DamagedLogError,
    JetStreamApplicationRecorder,
    JetStreamProcessRecorder,
    JetStreamTrackingRecorder,
    OutcomeUnknownError,
    StorageFullError,
)


@pytest.fixture
def proxy(server: Server) -> Generator[Proxy]:
    proxy = Proxy(lambda: server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def behind_proxy(proxy: Proxy, recorder: JetStreamApplicationRecorder) -> Generator[JetStreamApplicationRecorder]:
    """The same stream through a proxy that can swallow answers."""
    with connected(proxy.endpoint) as client:
        yield JetStreamApplicationRecorder(client, recorder.stream, id_type="text")


@pytest.mark.parametrize("expected", [{}, {"expected_position": 1}], ids=["unknown", "known"])
def test_a_lost_answer_to_one_event_is_no_conflict(
    proxy: Proxy, behind_proxy: JetStreamApplicationRecorder, expected: dict[str, int]
) -> None:
    """The event was stored, its acknowledgement was not delivered: the insert returns its position, and it is there once."""
    inserted(behind_proxy.insert_events([event("a", 1)]))
    proxy.swallow(b'"seq"')
    ids = inserted(behind_proxy.insert_events([event("a", 2)], **expected))

    assert proxy.swallowed.is_set()
    assert ids == [2]
    assert behind_proxy.last_position() == 2


def test_a_lost_answer_to_a_batch_is_no_conflict(proxy: Proxy, behind_proxy: JetStreamApplicationRecorder) -> None:
    """Several originators in one batch: all positions are found again, nothing is stored twice."""
    behind_proxy.insert_events([event("b", 1)])
    proxy.swallow(b'"batch"')
    ids = inserted(behind_proxy.insert_events([event("a", 1), event("b", 2), event("a", 2), event("c", 1)]))

    assert proxy.swallowed.is_set()
    assert ids == [2, 3, 4, 5]
    assert behind_proxy.last_position() == 5
    assert [n.originator_id for n in behind_proxy.select_notifications(2, 10)] == ["a", "b", "a", "c"]


def test_a_late_retry_finds_its_own_event_behind_those_of_others(
    recorder: JetStreamApplicationRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last event of the originator is somebody else's by the time of the retry; the slot is still ours."""
    exchange = append_module._exchange
    other = iter([True])

    def exchange_and_lose(transport: Transport, requests: Sequence[Request], ends_at: float) -> Ack:
        ack = exchange(transport, requests, ends_at)
        if next(other, False):
            headers = {"Nats-Msg-Id": "other", "Cl-Topic": "t", "Cl-Version": "2", EXPECTED: str(ack.last)}
            exchange(transport, [(requests[0][0], headers, b"later")], ends_at)
            raise ConnectionLostError
        return ack

    monkeypatch.setattr(append_module, "_exchange", exchange_and_lose)
    ids = inserted(recorder.insert_events([event("a", 1)], expected_position=0))

    assert ids == [1]
    assert [e.state for e in recorder.select_events("a")] == [b"state", b"later"]


def test_a_repeated_call_with_the_same_ids_stores_nothing_twice(recorder: JetStreamApplicationRecorder) -> None:
    first = inserted(recorder.insert_events([event("a", 1)], expected_position=0, message_ids=["op-1"]))
    recorder.insert_events([event("a", 2)], expected_position=1)
    again = inserted(recorder.insert_events([event("a", 1)], expected_position=0, message_ids=["op-1"]))

    assert first == again == [1]
    assert recorder.last_position() == 2


def test_a_repeated_batch_with_the_same_ids_stores_nothing_twice(recorder: JetStreamApplicationRecorder) -> None:
    events, ids = [event("a", 1), event("a", 2)], ["op-1", "op-2"]
    first = inserted(recorder.insert_events(events, expected_position=0, message_ids=ids))
    again = inserted(recorder.insert_events(events, expected_position=0, message_ids=ids))

    assert first == again == [1, 2]
    assert recorder.last_position() == 2


def test_an_id_that_was_used_for_something_else_is_a_programming_error(recorder: JetStreamApplicationRecorder) -> None:
    recorder.insert_events([event("a", 1)], message_ids=["op-1"])

    with pytest.raises(ProgrammingError):
        recorder.insert_events([event("b", 1), event("b", 2)], message_ids=["op-1", "op-2"])
    assert recorder.last_position() == 1


@pytest.mark.parametrize("events_each", [1, 2])
@pytest.mark.parametrize("is_position_known", [False, True])
def test_of_twenty_racers_one_wins(
    recorder: JetStreamApplicationRecorder, events_each: int, *, is_position_known: bool
) -> None:
    """All append the same version at the same time: one succeeds, the others learn it and wrote nothing."""
    racers = 20
    start = threading.Barrier(racers)
    expected: dict[str, int] = {"expected_position": 0} if is_position_known else {}

    def race(racer: int) -> bool:
        events = [event("a", 1 + n, str(racer).encode()) for n in range(events_each)]
        start.wait()
        try:
            recorder.insert_events(events, **expected)
        except IntegrityError:
            return False
        return True

    with ThreadPoolExecutor(racers) as pool:
        outcomes = list(pool.map(race, range(racers)))

    assert outcomes.count(True) == 1
    winner = str(outcomes.index(True)).encode()
    assert [e.state for e in recorder.select_events("a")] == [winner] * events_each
    assert recorder.last_position() == events_each


def test_an_outdated_memory_of_versions_allows_what_is_allowed(
    recorder: JetStreamApplicationRecorder, client: JetStreamClient
) -> None:
    """Another process appended version 2; version 5 may follow (gaps are allowed), version 2 may not."""
    other = JetStreamApplicationRecorder(client, recorder.stream, id_type="text")
    recorder.insert_events([event("a", 1)])
    other.insert_events([event("a", 2)])

    assert recorder.insert_events([event("a", 5)]) == [3]
    with pytest.raises(IntegrityError):
        other.insert_events([event("a", 3)])
    assert [e.originator_version for e in recorder.select_events("a")] == [1, 2, 5]


def test_a_wrong_expected_position_is_a_conflict(recorder: JetStreamApplicationRecorder) -> None:
    recorder.insert_events([event("a", 1), event("b", 1), event("a", 2)])

    with pytest.raises(IntegrityError):
        recorder.insert_events([event("a", 3)], expected_position=1)
    with pytest.raises(IntegrityError):
        recorder.insert_events([event("a", 1)], expected_position=0)
    assert recorder.last_position() == 3


def test_a_position_that_the_log_does_not_have_is_damage(recorder: JetStreamApplicationRecorder) -> None:
    recorder.insert_events([event("a", 1)])

    with pytest.raises(DamagedLogError):
        recorder.insert_events([event("a", 2)], expected_position=7)


def test_an_expected_position_belongs_to_one_originator(recorder: JetStreamApplicationRecorder) -> None:
    with pytest.raises(ProgrammingError):
        recorder.insert_events([event("a", 1), event("b", 1)], expected_position=0)
    assert recorder.last_position() == 0


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([event("a", 1), event("a", 1)], id="twice"),
        pytest.param([event("a", 2), event("a", 1)], id="descending"),
        pytest.param([event("b", 1), event("a", 1), event("b", 0)], id="interleaved"),
    ],
)
def test_versions_increase_within_an_insert(recorder: JetStreamApplicationRecorder, events: list[StoredEvent]) -> None:
    with pytest.raises(IntegrityError):
        recorder.insert_events(events)
    assert recorder.last_position() == 0


def test_1000_events_are_one_batch_and_1001_are_refused(recorder: JetStreamApplicationRecorder) -> None:
    with pytest.raises(ProgrammingError):
        recorder.insert_events([event("a", n) for n in range(1001)])
    assert recorder.last_position() == 0

    assert recorder.insert_events([event("a", n) for n in range(1000)]) == list(range(1, 1001))


def test_as_many_ids_as_events(recorder: JetStreamApplicationRecorder) -> None:
    with pytest.raises(ProgrammingError):
        recorder.insert_events([event("a", 1)], message_ids=["one", "two"])


@pytest.mark.parametrize("before", [0, 1])
def test_a_too_large_event_is_a_data_error(recorder: JetStreamApplicationRecorder, before: int) -> None:
    """Alone and in a batch, found before anything is sent; the connection survives."""
    small = [event("a", n) for n in range(before)]

    with pytest.raises(DataError):
        recorder.insert_events([*small, event("a", before, bytes(1024 * 1024))])
    with pytest.raises(DataError):
        recorder.insert_events([*small, event("a", before, bytes(1024 * 1024 - 301), topic="t" * 400)])
    assert recorder.last_position() == 0

    recorder.insert_events([event("a", before, bytes(1024 * 1024 - 1024))])
    assert recorder.last_position() == 1


def test_too_large_headers_are_a_data_error(recorder: JetStreamApplicationRecorder) -> None:
    with pytest.raises(DataError):
        recorder.insert_events([event("a", 1, topic="t" * 70_000)])
    assert recorder.last_position() == 0


def test_a_full_stream_refuses_at_once(recorder: JetStreamApplicationRecorder, client: JetStreamClient) -> None:
    """The limit is imposed behind our back; `discard new` then refuses, and the old events stay."""
    recorder.insert_events([event("a", 1)])
    limit_messages(client, recorder.stream, 1)

    with pytest.raises(StorageFullError):
        recorder.insert_events([event("a", 2)])
    assert [e.originator_version for e in recorder.select_events("a")] == [1]


def limit_messages(client: JetStreamClient, stream: str, limit: int) -> None:
    deadline = client.deadline()
    info = client.api(f"STREAM.INFO.{stream}", None, dict, deadline)
    client.api(f"STREAM.UPDATE.{stream}", {**info["config"], "max_msgs": limit}, dict, deadline)


def test_without_an_answer_the_outcome_is_unknown(
    recorder: JetStreamApplicationRecorder, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every attempt is sent and none is answered."""

    def lose(*_: object) -> Ack:
        raise ConnectionLostError

    with connected(server.endpoint, timeout_s=0.3) as hasty:
        there = JetStreamApplicationRecorder(hasty, recorder.stream, id_type="text")
        monkeypatch.setattr(append_module, "_exchange", lose)
        with pytest.raises(OutcomeUnknownError):
            there.insert_events([event("a", 1)], expected_position=0)


def test_what_was_never_sent_has_a_known_outcome(recorder: JetStreamApplicationRecorder, server: Server) -> None:
    """The connection cannot be made again: an OperationalError that is no OutcomeUnknownError."""
    gone = threading.Event()

    def connect() -> object:
        if gone.is_set():
            raise OSError
        return server.endpoint()

    with connected(connect, timeout_s=0.3) as hasty:  # type: ignore[arg-type] # what it raises is the point
        there = JetStreamApplicationRecorder(hasty, recorder.stream, id_type="text")
        gone.set()
        hasty.loop.call(lose_connection, hasty)
        with pytest.raises(OperationalError) as caught:
            there.insert_events([event("a", 1)], expected_position=0)

    assert not isinstance(caught.value, OutcomeUnknownError)
    assert recorder.last_position() == 0


async def lose_connection(client: JetStreamClient) -> None:
    assert client._connection is not None
    await client._connection.close()


def test_processes_append_events_and_tracking_together(client: JetStreamClient) -> None:
    """A refused tracking record stores nothing; positions of the events are contiguous."""
    recorder = JetStreamProcessRecorder(client, new_name(), id_type="text", create=True)
    ids = recorder.insert_events([event("a", 1), event("a", 2)], tracking=Tracking("up", 5))
    with pytest.raises(IntegrityError):
        recorder.insert_events([event("a", 3)], tracking=Tracking("up", 5))
    with pytest.raises(ProgrammingError):
        recorder.insert_events([event("a", n) for n in range(3, 1003)], tracking=Tracking("up", 6))

    assert ids == [2, 3]
    assert recorder.max_notification_id() == 3
    assert recorder.insert_events([], tracking=Tracking("up", 6)) == []
    assert recorder.max_tracking_id("up") == 6
    assert recorder.max_notification_id() == 3
    assert [n.id for n in recorder.select_notifications(None, 10)] == [2, 3]
    recorder.destroy()


def test_of_two_trackers_one_wins(client: JetStreamClient) -> None:
    stream = new_name()
    first = JetStreamTrackingRecorder(client, stream, create=True)
    second = JetStreamTrackingRecorder(client, stream)
    first.insert_tracking(Tracking("up", 1))
    second.insert_tracking(Tracking("up", 3))

    with pytest.raises(IntegrityError):
        first.insert_tracking(Tracking("up", 2))
    first.insert_tracking(Tracking("up", 4))
    assert second.max_tracking_id("up") == 4
    assert second.max_tracking_id("x" * 3000) is None
    first.destroy()


def test_a_forked_process_is_refused(recorder: JetStreamApplicationRecorder) -> None:
    """The thread of the event loop does not exist in the child; a clear error beats waiting for ever."""
    recorder.insert_events([event("a", 1)])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            recorder.insert_events([event("a", 2)])
        except ProgrammingError:
            code = 0
        finally:
            recorder._client.close()
            os._exit(code)

    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    recorder.insert_events([event("a", 2)])


def test_a_blocking_call_on_the_loop_is_refused(
    recorder: JetStreamApplicationRecorder, client: JetStreamClient
) -> None:
    async def misuse() -> None:
        await anyio.lowlevel.checkpoint()
        recorder.insert_events([event("a", 1)])

    with pytest.raises(ProgrammingError):
        client.loop.call(misuse)


def test_a_closed_client_refuses(server: Server) -> None:
    with connected(server.endpoint) as client:
        recorder = new_recorder(client)
        recorder.insert_events([event("a", 1)])
    client.close()

    with pytest.raises(ProgrammingError):
        recorder.insert_events([event("a", 2)])


def test_close_ends_operations_under_way(server: Server, recorder: JetStreamApplicationRecorder) -> None:
    """A thread that waits for an answer is released by `close` in another thread."""
    with connected(server.endpoint) as client, ThreadPoolExecutor(1) as pool:
        waiting = JetStreamApplicationRecorder(client, recorder.stream, id_type="text")
        outcome = pool.submit(waiting.wait, 10**9, 60.0)
        # Before it has begun to follow, the waiter is told that its client is closed, as one that comes later.
        eventually(lambda: waiting._watcher._follower is not None and waiting._watcher._follower.is_running)
        client.close()

        with pytest.raises(OperationalError):
            outcome.result(10)
