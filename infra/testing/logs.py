"""The contract of a log, see `EventLog`."""

import secrets
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Final

from chatledger.domain.chat.events import Body, ChatCreated, ChatUpdated, MessagesAppended, Recorded
from chatledger.domain.errors import ConfigurationError
from chatledger.domain.log.codec import NO_HASH, EncodedEvent, Envelope, encode_events
from chatledger.domain.log.parts import without
from chatledger.domain.values import Message

from ..log.bookmarks import Bookmark
from ..log.envelope import draw_salts
from ..log.port import EventLog, LostRaceError, Outcome
from . import expect, require

_LONG_WAIT_S: Final = 30.0
_LARGE_CHARACTERS: Final = 400_000
_WRITERS: Final = 4
_COMMITS: Final = 20
_SLOW_BYTES: Final = 100_000


def check_log(
    make_log: Callable[[], AbstractContextManager[EventLog]],
    *,
    open_again: Callable[[], AbstractContextManager[EventLog]] | None = None,
) -> None:
    """
    Check that a log keeps what a ledger asks of it: order, expectations, lost answers, erasure, positions of feeds.

    Args:
        make_log: Opens a new, empty log each time, and closes it.
        open_again: Opens the log that `make_log` made last once more, as another process would, with connections of its own. None
            for a log of one process.

    Raises:
        AssertionError: At the first rule that is broken.
    """
    for check in CHECKS:
        with make_log() as log:
            check(log)
    _check_writers_at_the_same_time(make_log, open_again)
    _check_restoring(make_log)


def _check_an_empty_log(log: EventLog) -> None:
    expect(0, log.last_position(), "the last position of an empty log is 0")
    expect([], log.read(0), "an empty log gives no events")
    expect([], log.read_stream("nobody", after=0), "a chat without events gives none")
    expect(None, log.event_at(1), "there is no event beyond the end")
    require(not log.wait(0, 0), "waiting for no time finds no event")


def _check_order(log: EventLog) -> None:
    first, second = _Chat(log), _Chat(log)
    positions = [*first.append(2), *second.append(1), *first.append(3)]
    expect(sorted(set(positions)), positions, "positions grow with each event of a commit and each commit")
    expect(positions[-1], log.last_position(), "the last position is that of the last event")
    expect(positions[-1], log.committed_position(), "the committed position lacks nothing that was acknowledged")
    if log.is_dense:
        expect(list(range(1, 7)), positions, "a dense log leaves no position out")
    events = log.read(0)
    expect(positions, [recorded.position for recorded in events], "events are read in order")
    written = [*first.written[:2], *second.written, *first.written[2:]]
    expect([event.hash for event in written], _hashes(events), "events are read as written")
    for recorded in events:
        expect(recorded, log.event_at(recorded.position), "an event is found by its position")


def _check_pages(log: EventLog) -> None:
    chat, other = _Chat(log), _Chat(log)
    for _ in range(3):
        chat.append(2)
        other.append(1)
    expect(_hashes(log.read(0)), _hashes(_paged(lambda after: log.read(after, 2))), "pages of the log tile it")
    whole = log.read_stream(chat.id, after=0)
    expect(list(range(1, 7)), [recorded.version for recorded in whole], "a chat is read in order, without others")
    pages = _paged(lambda after: log.read_stream(chat.id, after=after, limit=4))
    expect(_hashes(whole), _hashes(pages), "pages of a chat tile it")
    rest = log.read_stream(chat.id, after=0, after_version=4)
    expect(_hashes(whole[4:]), _hashes(rest), "a chat is read from a version")


def _check_stale_commits(log: EventLog) -> None:
    chat = _Chat(log)
    first = chat.encoded(1)
    chat.append(1)
    position, late = chat.position, chat.encoded(1)
    chat.append(2)
    before = _hashes(log.read(0))
    stale = partial(log.append, chat.id, late, expected_position=position)
    require(_is_refused(stale), "a commit on what is not the chat's end is refused")
    require(_is_refused(partial(log.append, chat.id, first, expected_position=0)), "a chat begins once")
    expect(before, _hashes(log.read(0)), "a refused commit writes nothing")


def _check_lost_answers(log: EventLog) -> None:
    chat = _Chat(log)
    chat.append(1)
    position, commit = chat.position, chat.encoded(2)
    first = log.append(chat.id, commit, expected_position=position)
    # As a client does whose answer was lost on the way.
    again = log.append(chat.id, commit, expected_position=position)
    expect(first, again, "the same commit again finds its events")
    expect(3, len(log.read(0)), "the same commit again writes nothing")


def _check_commits_at_the_same_time(log: EventLog) -> None:
    old, new = _Chat(log), _Chat(log)
    late = old.encoded(1)
    old.append(1)
    appends = log.begin_appends()
    appends.add(new.id, new.encoded(1), 0)
    appends.add(old.id, late, 0)
    outcomes = appends.finish()
    expect([list, LostRaceError], list(map(type, outcomes)), "of commits at the same time each has its outcome")
    expect(1, len(log.read_stream(new.id, after=0)), "one commit that is refused does not hinder another")


def _check_commits_of_several_events_at_the_same_time(log: EventLog) -> None:
    chats = [_Chat(log) for _ in range(4)]
    late = chats[2].encoded(2)
    chats[2].append(1)
    commits = [(chat.id, late if chat is chats[2] else chat.encoded(number), 0) for number, chat in enumerate(chats, 2)]
    answers: list[list[Outcome]] = []
    for batch in (commits, [commit for commit in commits if commit[0] != chats[2].id]):
        appends = log.begin_appends()
        for stream_id, events, expected_position in batch:
            appends.add(stream_id, events, expected_position)
        answers.append(appends.finish())
    refused = answers[0].pop(2)
    require(isinstance(refused, LostRaceError), "a commit on what is not the chat's end is refused among others")
    lengths = [len(log.read_stream(chat.id, after=0)) for chat in chats]
    expect([2, 3, 1, 5], lengths, "commits of several events are written whole beside one that is refused")
    expect(answers[0], answers[1], "the same commits again find their events")


def _check_large_data(log: EventLog) -> None:
    chat = _Chat(log)
    chat.append(1)
    text = "x" * _LARGE_CHARACTERS  # more than an event holds itself: stored beside it
    log.append(chat.id, chat.encode(MessagesAppended((chat.message(text),))), expected_position=chat.position)
    (recorded,) = log.read_stream(chat.id, after=0, after_version=1)
    body = recorded.body
    texts = [message.text for message in body.messages] if isinstance(body, MessagesAppended) else []
    require(texts == [text], "large data come back")


def _check_erasing(log: EventLog) -> None:
    gone, stays = _Chat(log), _Chat(log)
    first, *_ = gone.append(3)
    stays.append(2)
    (tombstone,) = gone.append(1)
    end = log.last_position()
    # An erasure that was interrupted is done again, so it has to be one however often.
    for _ in range(2):  # the second time there is nothing left to do
        with log.erasing():
            log.erase(gone.id, first_position=first, before=tombstone)
        left = log.read_stream(gone.id, after=0)
        expect([tombstone], [recorded.position for recorded in left], "what was erased is gone, and what follows stays")
        expect(None, log.event_at(first), "there is no event where one was erased")
        expect(2, len(log.read_stream(stays.id, after=0)), "other chats stay")
        expect(3, len(log.read(0)), "reading passes over what was erased")
        expect(end, log.last_position(), "erasing does not move the end")
    require(gone.append(1)[0] > end, "positions of erased events are not used again")


def _check_rewriting(log: EventLog) -> None:
    """Content is taken away from an event: it stays in its place, with its hash, however it is read."""
    chat, other = _Chat(log), _Chat(log)
    chat.append(1)
    commit = chat.encode(MessagesAppended(tuple(chat.message(data) for data in ("a", "b", "c"))))
    (position,) = chat.write(commit)
    other.append(1)
    chat.append(2)
    before = log.read(0)
    require(log.rewrite(position, [3, 5]), "an event is rewritten")
    # By somebody who does not know of the others, whose content must not come back; and once more, as after a crash.
    require(log.rewrite(position, [7]) and log.rewrite(position, [3]), "it is rewritten again")
    bare = without(commit[0].state, [3, 5, 7])
    expect(bare, log.event_bytes(position), "the slots that were named have commitments, and the others their content")
    expect(_hashes(before), _hashes(log.read(0)), "reading the log gives an event that was rewritten, with its hash")
    expect(_hashes(before), _hashes(_paged(lambda after: log.read(after, 1))), "so does reading it in pages")
    records = [log.decode(record) for record in log.stored(0)]
    expect(_hashes(before), _hashes(records), "so does reading its records")
    ours = [recorded for recorded in before if recorded.chat_id == chat.id]
    expect(_hashes(ours), _hashes(log.read_stream(chat.id, after=0)), "so does reading its stream")
    expect(
        _hashes(ours), _hashes(_paged(lambda after: log.read_stream(chat.id, after=after, limit=1))), "in pages, too"
    )
    expect(_hashes(ours[1:]), _hashes(log.read_stream(chat.id, after=0, after_version=1)), "and from a version")
    recorded = log.event_at(position)
    expect((3, 5, 7), recorded and recorded.event.redacted, "an event says what was taken away from it")
    expect(len(before), log.count() or len(before), "an event that was rewritten is counted once")
    last = chat.position
    try:
        log.rewrite(last, [1])
    except ValueError:
        pass
    else:
        require(
            holds=False, rule="the last event of a stream, behind which nobody would notice a hole, is not rewritten"
        )
    with log.erasing():
        log.erase(chat.id, first_position=1, before=last)
    expect(None, log.event_at(position), "an event that was rewritten is erased with its stream")
    expect(
        [last], [recorded.position for recorded in log.read_stream(chat.id, after=0)], "and its stream passes over it"
    )
    require(not log.rewrite(position, [3]), "what was erased is not rewritten")
    expect(None, log.event_at(position), "and does not come back")


def _check_late_commits_on_what_was_erased(log: EventLog) -> None:
    """The version that a late commit wants was given and erased, so nothing that is left takes it."""
    gone = _Chat(log)
    (first,) = gone.append(1)
    position, lost, late, long = gone.position, gone.encoded(1), gone.encoded(1), gone.encoded(5)
    gone.write(lost)
    gone.append(1)
    (tombstone,) = gone.append(1)
    log.erase(gone.id, first_position=first, before=tombstone)
    for commit in (late, long, lost):
        write = partial(log.append, gone.id, commit, expected_position=position)
        require(_is_refused(write), "a commit that was decided before a deletion is refused behind it")
    appends = log.begin_appends()
    appends.add(gone.id, late, position)
    expect([LostRaceError], list(map(type, appends.finish())), "such a commit is refused among others too")
    left = log.read_stream(gone.id, after=0)
    expect([tombstone], [recorded.position for recorded in left], "a deletion is the last that was written to its chat")
    gone.append(1)


def _check_removing(log: EventLog) -> None:
    chat = _Chat(log)
    positions = chat.append(3)
    log.remove(positions[1:2])
    expect([positions[0], positions[2]], [recorded.position for recorded in log.read(0)], "what was removed is gone")


def _check_waiting(log: EventLog) -> None:
    chat = _Chat(log)
    outcomes: list[bool] = []
    waiting = threading.Thread(target=lambda: outcomes.append(log.wait(0, _LONG_WAIT_S)))
    waiting.start()
    chat.append(1)
    waiting.join(_LONG_WAIT_S)
    expect([True], outcomes, "an event ends a wait")
    require(log.wait(0, 0), "waiting for an event that is there ends at once")
    require(not log.wait(log.last_position(), 0.01), "waiting ends with its time")


def _check_bookmarks(log: EventLog) -> None:
    mark = Bookmark(name="f", index=0, count=1, position=1, holder="h", log_id=log.identity, saved_at=1)
    expect(None, log.load_bookmark(mark.key), "there is no bookmark before one is saved")
    saved = log.save_bookmark(mark)
    expect(saved, log.load_bookmark(mark.key), "a bookmark comes back as it was saved")
    require(_is_refused(partial(log.save_bookmark, mark)), "a bookmark is not made twice")
    moved = log.save_bookmark(saved)
    is_refused = _is_refused(partial(log.save_bookmark, saved))
    require(is_refused, "a bookmark is replaced only by a writer that knows its revision")
    expect([moved], log.bookmarks(), "all bookmarks are listed")
    log.drop_bookmark(mark.key)
    log.drop_bookmark(mark.key)
    expect([], log.bookmarks(), "a dropped bookmark is gone")
    require(_is_refused(partial(log.save_bookmark, moved)), "a dropped bookmark cannot be replaced")


def _check_closing(log: EventLog) -> None:
    _Chat(log).append(1)
    log.close()
    log.close()


def _check_writers_at_the_same_time(
    make_log: Callable[[], AbstractContextManager[EventLog]],
    open_again: Callable[[], AbstractContextManager[EventLog]] | None,
) -> None:
    """A writer in flight hides none behind it: whoever follows the log sees all events, though large ones take longer to be written."""
    with make_log() as log, ExitStack() as others, ThreadPoolExecutor(_WRITERS) as pool:
        # Each as another process would write, with connections of its own.
        logs = [log if open_again is None else others.enter_context(open_again()) for _ in range(_WRITERS)]
        seen: list[int] = []

        def follow() -> bool:
            page = log.read(seen[-1] if seen else 0)
            seen.extend(recorded.position for recorded in page)
            return bool(page)

        writers = [
            pool.submit(_write_some, _Chat(writers_log), is_slow=not number) for number, writers_log in enumerate(logs)
        ]
        while not all(writer.done() for writer in writers):
            follow()
        for writer in writers:
            writer.result()
        while follow():
            pass
        there = [recorded.position for recorded in _paged(log.read)]
        expect(there, seen, "a writer in flight hides none behind it from whoever follows the log")
        expect(_WRITERS * (_COMMITS + 1), len(there), "commits at the same time to different chats are all written")


def _write_some(chat: "_Chat", *, is_slow: bool) -> None:
    chat.append(1)
    for _ in range(_COMMITS):
        if is_slow:
            data = secrets.token_hex(_SLOW_BYTES // 2)
            chat.write(chat.encode(MessagesAppended((chat.message(data),))))
        else:
            chat.append(1)


def _check_restoring(make_log: Callable[[], AbstractContextManager[EventLog]]) -> None:
    """The records of one log make an equal one, with the same positions."""
    with make_log() as log:
        chat = _Chat(log)
        chat.append(3)
        records, events, identity = log.stored(0), log.read(0), log.identity
        expect(_hashes(events), _hashes([log.decode(record) for record in records]), "records are those of the events")
    with make_log() as other:
        require(identity != other.identity, "each log has an identity of its own")
        other.restore([records])
        restored = other.read(0)
        expect(_hashes(events), _hashes(restored), "a log that was restored has the same events")
        positions = [recorded.position for recorded in events]
        expect(
            positions, [recorded.position for recorded in restored], "a log that was restored has the same positions"
        )
        try:
            other.restore([records])
        except ConfigurationError:
            return
        require(holds=False, rule="only an empty log is restored")


CHECKS: Final[tuple[Callable[[EventLog], None], ...]] = (
    _check_an_empty_log,
    _check_order,
    _check_pages,
    _check_stale_commits,
    _check_lost_answers,
    _check_commits_at_the_same_time,
    _check_commits_of_several_events_at_the_same_time,
    _check_large_data,
    _check_erasing,
    _check_rewriting,
    _check_late_commits_on_what_was_erased,
    _check_removing,
    _check_waiting,
    _check_bookmarks,
    _check_closing,
)
"""Each is about one idea, on a log of its own."""


class _Chat:
    """A chat of its own on a log, and what was written to it."""

    def __init__(self, log: EventLog) -> None:
        self.id = f"check {uuid.uuid4()}"
        self._log = log
        self.version, self.position, self._hash = 0, 0, NO_HASH
        self.written: list[EncodedEvent] = []

    def encode(self, *bodies: Body) -> list[EncodedEvent]:
        """One commit at the chat's end, as it is now."""
        return encode_events(
            bodies,
            stream_id=self.id,
            version=self.version,
            previous_hash=self._hash,
            occurred_at=self.version,
            event_ids=[str(uuid.uuid4()) for _ in bodies],
            salts=draw_salts(),
            envelope=Envelope(),
        )

    def encoded(self, count: int) -> list[EncodedEvent]:
        """A commit of so many events."""
        begin = [] if self.version else [ChatCreated("u", None, None, str(uuid.uuid4()))]
        return self.encode(*begin, *(ChatUpdated({"title": str(number)}) for number in range(count - len(begin))))

    def message(self, data: str) -> Message:
        return Message(id=str(uuid.uuid4()), chat_id=self.id, name="user", data=data, created_at=0)

    def append(self, count: int) -> list[int]:
        """Write a commit of so many events; returns their positions."""
        return self.write(self.encoded(count))

    def write(self, commit: list[EncodedEvent]) -> list[int]:
        """Write a commit; returns the positions of its events."""
        positions = self._log.append(self.id, commit, expected_position=self.position)
        self.version, self.position, self._hash = self.version + len(commit), positions[-1], commit[-1].hash
        self.written += commit
        return positions


def _is_refused(write: Callable[[], object]) -> bool:
    try:
        write()
    except LostRaceError:
        return True
    return False


def _hashes(events: Sequence[Recorded]) -> list[bytes]:
    return [recorded.hash for recorded in events]


def _paged(read: Callable[[int], list[Recorded]]) -> list[Recorded]:
    events: list[Recorded] = []
    while page := read(events[-1].position if events else 0):
        events += page
    return events
