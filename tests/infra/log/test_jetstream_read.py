"""Reading, erasing, waiting, and the ids that everything is stored under."""

# pyright: reportPrivateUsage=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# White-box checks, as for ruff; and raw replies of the server.

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest
from eventsourcing.persistence import DataError, PersistenceError, ProgrammingError, Tracking
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.jetstream_world import Server, connected, event, eventually, new_name

from chatledger.infra.log.nats import reading, subjects, watching
from chatledger.infra.log.nats.reading import LogMessage
from chatledger.infra.log.nats.subscription import JetStreamSubscription
from chatledger.infra.log.nats.watching import KEPT_BYTES, KEPT_MESSAGES, KEPT_S, News
from chatledger.jetstream import JetStreamApplicationRecorder, JetStreamClient, JetStreamProcessRecorder

ODD_IDS = [
    "a",
    "u" + "0" * 32,
    "b",
    "*",
    ">",
    "a.b",
    "a b",
    " a ",
    "a\tb",
    "a\r\nb",
    "%41",
    "ä€😀",
    "\u202e\u2028",
    "\ud800",
    "\x7f\x01",
    "$JS.API.>",
    "550e8400-e29b-41d4-a716-446655440000",
    "550E8400-E29B-41D4-A716-446655440000",
    "550e8400e29b41d4a716446655440000",
    "x" * 2048,
    "x" * 2047 + "y",
    "€" * 682 + "ab",
    "".join(map(chr, range(1, 128))),
]


any_id = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=300)


@given(any_id, any_id)
@example("550e8400-e29b-41d4-a716-446655440000", "550E8400-E29B-41D4-A716-446655440000")
@example("x" * 2048, "x" * 2047 + "y")
def test_two_ids_never_share_a_token(one: str, other: str) -> None:
    assert (subjects.token(one) == subjects.token(other)) == (one == other)


@given(st.text(min_size=1) | st.uuids().map(str) | st.sampled_from(ODD_IDS))
def test_an_id_comes_back_from_its_token_and_header(raw: str) -> None:
    """Also lone surrogates and NUL. A token has only letters, digits, `-` and `_`, and stays short."""
    token = subjects.token(raw)
    header = subjects.encode_header(raw)

    assert subjects.raw_id(token, header) == raw
    assert subjects.decode_header(header) == raw
    assert len(token) <= subjects.MAX_TOKEN_CHARS
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert header.isascii()
    assert header.isprintable()
    assert header == header.strip()


@given(st.text(), st.text())
def test_two_application_names_never_share_a_stream(one: str, other: str) -> None:
    assert subjects.check_stream_name(subjects.stream_name(one)) == subjects.stream_name(one)
    assert (subjects.stream_name(one) == subjects.stream_name(other)) == (one == other)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">", "a/b", "ä", "x" * 201, "a\n"])
def test_bad_stream_names_are_refused(name: str) -> None:
    with pytest.raises(ProgrammingError):
        subjects.check_stream_name(name)


def test_odd_ids_are_stored_and_come_back(recorder: JetStreamApplicationRecorder) -> None:
    """Through real subjects and headers; a server would close the connection over a bad one."""
    for raw in ODD_IDS:
        recorder.insert_events([event(raw, 1, raw.encode(errors="surrogatepass"), topic=f"topic {raw[:50]}")])
    notifications = recorder.select_notifications(None, 1000)

    assert [n.originator_id for n in notifications] == ODD_IDS
    assert [n.topic for n in notifications] == [f"topic {raw[:50]}" for raw in ODD_IDS]
    for raw in ODD_IDS:
        (found,) = recorder.select_events(raw)
        (last,) = recorder.select_events(raw, desc=True, limit=1)
        assert found == last
        assert (found.originator_id, found.state) == (raw, raw.encode(errors="surrogatepass"))


def test_uuids_come_back_as_uuids(client: JetStreamClient) -> None:
    recorder = JetStreamApplicationRecorder(client, new_name(), create=True)
    one = uuid4()
    recorder.insert_events([event(one, 1)])  # type: ignore[arg-type] # the helper is for text ids

    assert recorder.select_notifications(None, 1)[0].originator_id == one
    assert isinstance(recorder.select_events(str(one))[0].originator_id, UUID)
    with pytest.raises(DataError):
        recorder.insert_events([event("not a uuid", 1)])
    recorder.destroy()


def test_empty_ids_are_refused(recorder: JetStreamApplicationRecorder) -> None:
    with pytest.raises(DataError):
        recorder.insert_events([event("", 1)])


def test_pages_are_complete_and_in_order(
    recorder: JetStreamApplicationRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small pages by count and by size, over two interleaved originators."""
    for start in range(0, 100, 20):
        recorder.insert_events([event("ab"[n % 2], n, bytes(200)) for n in range(start, start + 20)])
    for page, size in ((7, 10**6), (1000, 1000), (1, 10**6)):
        monkeypatch.setattr(reading, "PAGE", page)
        monkeypatch.setattr(reading, "PAGE_BYTES", size)

        assert [n.id for n in recorder.select_notifications(None, 1000)] == list(range(1, 101))
        assert [n.id for n in recorder.select_notifications(10, 5)] == [10, 11, 12, 13, 14]
        assert [e.originator_version for e in recorder.select_events("b")] == list(range(1, 100, 2))
        assert [e.originator_version for e in recorder.select_events("b", gt=51, lte=57)] == [53, 55, 57]
        assert [e.originator_version for e in recorder.select_events("b", gt=51, limit=2)] == [53, 55]
        assert [e.originator_version for e in recorder.select_events("b", desc=True, limit=2)] == [99, 97]


def test_selections(recorder: JetStreamApplicationRecorder) -> None:
    recorder.insert_events([event("a", n, topic="xy"[n % 2]) for n in range(10)])
    notifications = recorder.select_notifications

    assert [n.id for n in notifications(0, 100)] == list(range(1, 11))
    assert [n.id for n in notifications(None, 100, inclusive_of_start=False)] == list(range(1, 11))
    assert [n.id for n in notifications(3, 100, 5)] == [3, 4, 5]
    assert [n.id for n in notifications(3, 100, 5, inclusive_of_start=False)] == [4, 5]
    assert [n.id for n in notifications(1, 2, topics=["y"])] == [2, 4]
    assert [n.id for n in notifications(11, 10)] == []
    assert notifications(1, 0) == []
    assert recorder.select_events("a", limit=0) == []
    assert [e.originator_version for e in recorder.select_events("a", desc=True, limit=1, lte=4)] == [4]
    assert recorder.select_events("a", desc=True, limit=1, gt=9) == []
    assert [e.originator_version for e in recorder.select_events("a", after_position=8)] == [8, 9]
    assert recorder.select_events("nobody") == []
    assert recorder.select_events("nobody", desc=True, limit=1) == []


def test_states(recorder: JetStreamApplicationRecorder) -> None:
    empty = recorder.state()
    assert (empty.last, empty.messages, empty.num_deleted) == (0, 0, 0)
    assert recorder.last_position() == 0
    assert recorder.max_notification_id() is None

    recorder.insert_events([event("a", n) for n in range(5)])
    recorder.erase_events("a", after=1, before=4)
    state = recorder.state()
    assert (state.first, state.last, state.messages, state.num_deleted) == (1, 5, 3, 2)


def test_the_newest_event_counts_not_the_newest_message(client: JetStreamClient) -> None:
    recorder = JetStreamProcessRecorder(client, new_name(), id_type="text", create=True)
    recorder.insert_tracking(Tracking("up", 1))
    assert recorder.max_notification_id() is None

    recorder.insert_events([event("a", 1)])
    recorder.insert_tracking(Tracking("up", 2))
    assert recorder.max_notification_id() == 2
    recorder.destroy()


def test_erased_events_are_gone_from_the_disk(recorder: JetStreamApplicationRecorder, server: Server) -> None:
    """Everything between the bounds, of this originator only, and the bytes are overwritten."""
    secret = b"secret-" + uuid4().bytes.hex().encode()
    for n in range(1, 41):
        recorder.insert_events([event("a", n, secret + b"-%03d-" % n), event("b", n, b"kept")])
    positions = [n.id for n in recorder.select_notifications(None, 100) if n.originator_id == "a"]
    assert secret in stored_bytes(server)

    erased = recorder.erase_events("a", after=positions[0], before=positions[-1])
    assert erased == 38
    assert [e.originator_version for e in recorder.select_events("a")] == [1, 40]
    assert len(recorder.select_events("b")) == 40
    assert recorder.erase_events("a", after=positions[0], before=positions[-1]) == 0
    left = stored_bytes(server)
    assert [n for n in range(1, 41) if secret + b"-%03d-" % n in left] == [1, 40]

    assert recorder.insert_events([event("a", 41)], expected_position=positions[-1]) == [81]


def stored_bytes(server: Server) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(server.base.rglob("*.blk")))


def test_erasing_everything_allows_a_fresh_start(recorder: JetStreamApplicationRecorder) -> None:
    recorder.insert_events([event("a", 1), event("a", 2)])

    assert recorder.erase_events("a", before=100) == 2
    assert recorder.erase_events("a", before=100) == 0
    assert recorder.erase_events("nobody", before=100) == 0
    assert recorder.select_events("a") == []
    assert recorder.max_notification_id() is None
    assert recorder.last_position() == 2
    assert recorder.insert_events([event("a", 1)], expected_position=0) == [3]


def test_erasing_goes_from_new_to_old(recorder: JetStreamApplicationRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption leaves a prefix, and repeating the call completes it."""
    erase_module = __import__("chatledger.infra.log.nats.erase", fromlist=["erase"])
    recorder.insert_events([event("a", n) for n in range(1, 101)])
    delete = erase_module._erase_window
    windows = iter(range(3))

    def delete_some(client: JetStreamClient, stream: str, positions: list[int]) -> int:
        if next(windows, None) is None:
            raise InterruptedError
        return int(delete(client, stream, positions))

    monkeypatch.setattr(erase_module, "_erase_window", delete_some)
    with pytest.raises(InterruptedError):
        recorder.erase_events("a", after=10, before=101)
    assert [e.originator_version for e in recorder.select_events("a")] == list(range(1, 53))

    monkeypatch.undo()
    assert recorder.erase_events("a", after=10, before=101) == 42
    assert [e.originator_version for e in recorder.select_events("a")] == list(range(1, 11))


def test_wait_is_woken_by_somebody_else(recorder: JetStreamApplicationRecorder, client: JetStreamClient) -> None:
    """Several waiters at several positions share one consumer; each wakes for its own."""
    other = JetStreamApplicationRecorder(client, recorder.stream, id_type="text")
    other.insert_events([event("a", n) for n in range(5)])
    assert recorder.wait(0, 10.0)
    assert recorder.wait(4, 10.0)
    assert not recorder.wait(5, 0.05)

    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(recorder.wait, after, 20.0) for after in (7, 5, 6)]
        eventually(lambda: len(recorder._watcher._waiters) == 3)
        for n in range(5, 8):
            other.insert_events([event("a", n)])
        assert all(wait.result(20) for wait in waits)


def test_wait_catches_up_over_many_messages(recorder: JetStreamApplicationRecorder, client: JetStreamClient) -> None:
    """A waiter far above the consumer's place, then one far below."""
    other = JetStreamApplicationRecorder(client, recorder.stream, id_type="text")
    other.insert_events([event("a", 0)])
    assert not recorder.wait(1, 0.05)
    other.insert_events([event("a", n) for n in range(1, 1000)])
    assert recorder.wait(998, 20.0)
    assert recorder.wait(999, 20.0)
    assert not recorder.wait(1000, 0.05)

    late = JetStreamApplicationRecorder(client, recorder.stream, id_type="text")
    with ThreadPoolExecutor(2) as pool:
        high = pool.submit(late.wait, 1000, 20.0)
        eventually(lambda: bool(late._watcher._waiters))
        assert late.wait(3, 20.0)
        other.insert_events([event("b", 1)])
        assert high.result(20)


def test_wait_is_woken_by_own_inserts_and_by_close(recorder: JetStreamApplicationRecorder) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(recorder.wait, 0, 60.0)
        eventually(lambda: bool(recorder._watcher._waiters))
        recorder.insert_events([event("a", 1)])
        assert waiting.result(10)

        waiting = pool.submit(recorder.wait, 1, 60.0)
        eventually(lambda: bool(recorder._watcher._waiters))
        recorder.close()
        assert waiting.result(10) is False
    assert recorder.wait(0, 60.0)
    assert not recorder.wait(1, 60.0)


def test_an_idle_wait_sends_nothing(recorder: JetStreamApplicationRecorder, client: JetStreamClient) -> None:
    """Neither does a wait whose answer is known already."""
    recorder.insert_events([event("a", 1)])
    nats = client.connection(client.deadline())._nats
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(recorder.wait, 1, 60.0)
        eventually(lambda: recorder._watcher._latest == 1 and consumers_of(client, recorder) == 1)
        before = settled(lambda: nats.stats["out_msgs"])
        assert recorder.wait(0, 10.0)
        assert nats.stats["out_msgs"] == before
        recorder.insert_events([event("a", 2)])
        assert waiting.result(10)


def test_news_are_what_a_read_would_give(
    recorder: JetStreamApplicationRecorder, client: JetStreamClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waited for messages has them without a request, whatever their ids are."""
    monkeypatch.setattr(watching, "KEPT_S", 60.0)
    other = JetStreamApplicationRecorder(client, recorder.stream, id_type="text")
    other.insert_events([event("a", 0)])
    assert recorder.wait(0, 10.0)
    for number, originator in enumerate(["a", "x" * 2048, "ä€😀"], start=2):
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(recorder.wait, number - 1, 20.0)
            eventually(lambda: bool(recorder._watcher._waiters))
            other.insert_events([event(originator, number)])
            assert waiting.result(20)
        assert recorder.select_notifications(number, 1) == recorder.news(number - 1)
    assert [] == recorder.news(4)
    recorder.forget_news()
    assert [] == recorder.news(3)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, KEPT_BYTES // 2)), max_size=90), st.data())
def test_news_have_no_gap_and_an_end(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """Never one after a position that did not arrive, the latest always, and no more than there is room for."""
    news, position, arrived = News(), 0, set[int]()
    body = bytes(KEPT_BYTES // 2)
    for back, size in steps:
        position += 1 if back > 1 else 2
        news.keep(LogMessage(position, "s", {}, body[:size]))
        arrived.add(position)
    after = data.draw(st.integers(0, position + 1))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(watching, "KEPT_S", 60.0)  # drawing an example may take longer than what arrived is kept
        found = [message.position for message in news.after(after)]
        newest = [message.position for message in news.after(position - 1)]

    assert found == list(range(after + 1, after + 1 + len(found)))
    assert arrived >= set(found)
    assert not arrived or [position] == newest
    kept = [entry[1] for entry in news._messages.values()]
    assert len(kept) <= KEPT_MESSAGES
    assert news._bytes == sum(len(message.payload) for message in kept) <= KEPT_BYTES


def test_news_get_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrived a while ago may be erased by now."""
    news = News()
    news.keep(LogMessage(1, "s", {}, b"x"))
    now = time.monotonic()
    assert 1 == len(news.after(0))
    monkeypatch.setattr(time, "monotonic", lambda: now + 2 * KEPT_S)
    assert [] == news.after(0)


def settled(count: Callable[[], int]) -> int:
    """Return a count once it has stayed the same for a while."""
    seen, now = -1, count()
    while seen != now:
        time.sleep(0.3)
        seen, now = now, count()
    return now


def consumers_of(client: JetStreamClient, recorder: JetStreamApplicationRecorder) -> int:
    info = client.api(f"STREAM.INFO.{recorder.stream}", None, dict, client.deadline())
    return int(info["state"]["consumer_count"])


def test_a_subscription_has_old_and_new_and_survives_big_messages(recorder: JetStreamApplicationRecorder) -> None:
    """More and bigger messages than are fetched at once."""
    total = 1500
    with recorder.subscribe() as subscription, ThreadPoolExecutor(1) as pool:
        received = pool.submit(lambda: [next(subscription).id for _ in range(total)])
        for start in range(0, total, 100):
            recorder.insert_events(
                [event("a", n, bytes(900_000 if n % 50 == 0 else 10)) for n in range(start, start + 100)]
            )
        assert received.result(60) == list(range(1, total + 1))


def test_a_subscription_that_nobody_reads_holds_a_bounded_amount(recorder: JetStreamApplicationRecorder) -> None:
    for start in range(0, 5000, 1000):
        recorder.insert_events([event("a", n) for n in range(start, start + 1000)])
    with recorder.subscribe() as subscription:
        assert next(subscription).id == 1
        assert isinstance(subscription, JetStreamSubscription)
        ahead = subscription._prefetch
        assert ahead is not None
        eventually(lambda: len(ahead._ready) > 500)
        assert len(ahead._ready) <= 1500
        assert [next(subscription).id for _ in range(4999)] == list(range(2, 5001))


def test_a_stopped_subscription_is_silent(recorder: JetStreamApplicationRecorder) -> None:
    recorder.insert_events([event("a", n) for n in range(10)])
    never = recorder.subscribe()
    never.stop()
    assert list(never) == []

    running_one = recorder.subscribe(gt=8)
    assert next(running_one).id == 9
    running_one.stop()
    running_one.stop()
    assert list(running_one) == []

    blocked = recorder.subscribe(gt=10)
    timer = threading.Timer(0.1, blocked.stop)
    started = time.monotonic()
    timer.start()
    assert list(blocked) == []
    assert time.monotonic() - started < 10
    timer.join()


def test_a_subscription_to_a_deleted_stream_ends(recorder: JetStreamApplicationRecorder) -> None:
    recorder.insert_events([event("a", 1)])
    with recorder.subscribe() as subscription:
        assert next(subscription).id == 1
        recorder.destroy()
        with pytest.raises(Exception, match="not found"):
            next(subscription)


def test_two_may_erase_the_same_events(recorder: JetStreamApplicationRecorder) -> None:
    """Each event counts once, for whoever erased it."""
    recorder.insert_events([event("a", n) for n in range(1, 201)])
    with ThreadPoolExecutor(4) as pool:
        erased = list(pool.map(lambda _: recorder.erase_events("a", before=200), range(4)))

    assert sum(erased) == 199
    assert [e.originator_version for e in recorder.select_events("a")] == [200]


@pytest.mark.soak
@pytest.mark.parametrize("token", ["", "x1", "u123", "b*", "b_w", "h" + "0" * 64])
def test_foreign_tokens_are_data_errors(token: str) -> None:
    with pytest.raises(DataError):
        subjects.raw_id(token, None)


def test_foreign_messages_are_data_errors(recorder: JetStreamApplicationRecorder, client: JetStreamClient) -> None:
    """Somebody published into our subjects: nothing is guessed, and the position is named."""
    connection = client.connection(client.deadline())
    token = connection.send([(f"{recorder.stream}.e.{subjects.token('a')}", {}, b"?")])
    connection.answer(token, client.deadline().ends_at)
    for read in (
        lambda: recorder.select_notifications(None, 10),
        lambda: recorder.select_events("a"),
        lambda: recorder.insert_events([event("a", 1)]),
    ):
        with pytest.raises(DataError, match="position 1 "):
            read()


def test_closing_the_client_ends_a_subscription(server: Server, recorder: JetStreamApplicationRecorder) -> None:
    with connected(server.endpoint) as client, ThreadPoolExecutor(1) as pool:
        subscription = JetStreamApplicationRecorder(client, recorder.stream, id_type="text").subscribe()
        following = pool.submit(next, subscription)
        eventually(lambda: consumers_of(client, recorder) == 1)
        client.close()
        with pytest.raises(PersistenceError):
            following.result(10)
