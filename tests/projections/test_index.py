from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.index_scripts import CHATS, apply_paged, erased, scripts
from tests.support.naive_index import (
    IDENTITY,
    MAP_BYTES,
    all_rows,
    answers,
    ask,
    indexed,
    opened,
    process,
    reader,
    rows,
    story_answers,
)
from tests.support.salts import salts
from tests.support.soak import examples
from tests.support.stories import CHAT, Command, Story, tell, user

from chatledger.domain.chat.events import ChatUpdated, Recorded
from chatledger.domain.chat.state import stream_head
from chatledger.domain.errors import ChainIntegrityError, CorruptStateError, LedgerClosedError
from chatledger.domain.log.codec import Envelope, encode_events
from chatledger.projections.generations import Erasure
from chatledger.projections.index import Index
from chatledger.projections.lmdb.keys import id_key, number


@given(scripts, st.sampled_from([1, 2, 7, 1000]))
@settings(max_examples=examples(60), deadline=None)
def test_the_index_equals_a_fold(script: list[Command], page: int) -> None:
    """Every question is answered as by chats replayed in memory, whatever the transactions were (promise 2, PS-29)."""
    story = tell(script, CHATS)
    with TemporaryDirectory() as folder, opened(Path(folder)) as index:
        apply_paged(index, story.events, page)

        assert story_answers(story, CHATS) == answers(index, CHATS)
        assert (len(story.events), 0) == (index.state.position, index.state.missing)


@given(scripts)
@settings(max_examples=examples(40), deadline=None)
def test_a_rebuild_gives_the_same_answers(script: list[Command]) -> None:
    """Live or rebuilt, in small pages or at once: the same answers, and nothing else in the tables (promise 2)."""
    story = tell(script, CHATS)
    with TemporaryDirectory() as folder, opened(Path(folder)) as index:
        apply_paged(index, story.events, 1)
        live, live_state, live_keys = answers(index, CHATS), index.state, found_keys(index)
        for page in (3, 1000):
            index.rebuild(reader(story.events, page))

            assert live == answers(index, CHATS)
            assert live_state == index.state
            assert live_keys == found_keys(index)


def found_keys(index: Index) -> dict[str, list[bytes]]:
    """The keys of all tables but the pages, which depend on the transactions."""
    return {name: [key for key, _ in found if key[8:9] != b"\x0a"] for name, found in rows(index).items()}


@given(scripts, st.integers(0, 1000), st.integers(1, 10))
@settings(max_examples=examples(40), deadline=None)
def test_applying_again_changes_nothing(script: list[Command], start: int, count: int) -> None:
    """Redelivered events, in any overlapping page, leave every row as it is (PS-31)."""
    story = tell([*script, ("append", 0, 0, 0)], CHATS)
    at = start % len(story.events)
    with TemporaryDirectory() as folder, opened(Path(folder), story.events) as index:
        before = all_rows(index)
        index.apply(story.events[at : at + count])
        index.apply(story.events)

        assert before == all_rows(index)


@pytest.mark.parametrize(
    ("stands", "after", "first", "is_applied"),
    [
        (3, 3, 4, True),
        (3, 2, 3, False),
        (2, 3, 4, False),
        (5, 3, 4, True),
        (4, 3, 4, False),
        (9, 3, 4, True),
    ],
)
def test_apply_after_a_position(tmp_path: Path, stands: int, after: int, first: int, is_applied: bool) -> None:  # noqa: FBT001 (a column of the table)
    """Two events are applied where the index stands just before them, or are there already; else nothing happens."""
    story = Story().chain(*(f"m{at}" for at in range(12)))
    with opened(tmp_path, story.events[:stands]) as index:
        found = index.apply(story.events[first - 1 : first + 1], after=after)

        assert is_applied == found
        assert max(stands, first + 1 if is_applied else 0) == index.state.position


def broken(story: Story, at: int) -> list[Recorded]:
    """A page in which the event at `at` does not follow."""
    event = story.events[at]
    wrong = encode_events(
        [event.body],
        stream_id=event.chat_id,
        version=event.version - 1,
        previous_hash=b"x" * 32,
        occurred_at=event.occurred_at,
        event_ids=["wrong"],
        salts=salts(),
        envelope=Envelope(),
    )[0]
    return [*story.events[:at], Recorded(event.position, wrong.event, wrong.hash), *story.events[at + 1 :]]


@pytest.mark.parametrize("at", [3, 5, 11])
def test_a_batch_is_applied_whole_or_not_at_all(tmp_path: Path, at: int) -> None:
    """An event that does not follow leaves the index where it was, and the right page is applied afterwards."""
    story = Story().chain("m1", "m2")
    for number_ in range(9):
        story.append(user(f"n{number_}"))
    with opened(tmp_path, story.events[:3]) as index:
        before = all_rows(index)
        with pytest.raises(ChainIntegrityError) as caught:
            index.apply(broken(story, at))

        assert (CHAT, at + 1) == (caught.value.chat_id, caught.value.position)
        assert before == all_rows(index)
        index.apply(story.events)
        assert story_answers(story, [CHAT]) == answers(index, [CHAT])


def extra(story: Story, body: Any, *, at: int | None = None) -> Recorded:
    """An event with a valid hash that no decision makes."""
    head = stream_head(story.chat())
    encoded = encode_events(
        [body],
        stream_id=CHAT,
        version=head.version,
        previous_hash=head.hash,
        occurred_at=story.time if at is None else at,
        event_ids=["extra"],
        salts=salts(),
        envelope=Envelope(),
    )[0]
    return Recorded(len(story.events) + 1, encoded.event, encoded.hash)


def test_a_time_beyond_the_calendar_is_damage(tmp_path: Path) -> None:
    """A number that cannot be a time raises an error of ours and changes nothing."""
    story = Story().chain("m1")
    with opened(tmp_path, story.events) as index:
        before = all_rows(index)
        with pytest.raises((ChainIntegrityError, CorruptStateError)):
            index.apply([extra(story, ChatUpdated({"title": "x"}), at=2**63)])

        assert before == all_rows(index)


class InterruptedReadError(Exception):
    """Stands for whatever may go wrong while a log is read."""


@pytest.mark.parametrize("page", range(6))
def test_an_interrupted_rebuild_leaves_the_old_generation(tmp_path: Path, page: int) -> None:
    """Whatever page of the log cannot be read, the old generation serves on, also after reopening (PS-30)."""
    story = tell([("append", 0, 0, 1)] * 25, ["c0"])
    pages = reader(story.events, 6)
    calls: list[int] = []

    def read(after: int) -> list[Recorded]:
        calls.append(after)
        if len(calls) == page + 1:
            raise InterruptedReadError
        return pages(after)

    with opened(tmp_path, story.events[:20]) as index:
        before = all_rows(index)
        with pytest.raises(InterruptedReadError):
            index.rebuild(read)

        assert before == all_rows(index)
        index.apply(story.events)
        assert story_answers(story, ["c0"]) == answers(index, ["c0"])
    with opened(tmp_path) as index:
        assert story_answers(story, ["c0"]) == answers(index, ["c0"])
        index.rebuild(reader(story.events))
        assert story_answers(story, ["c0"]) == answers(index, ["c0"])
    assert ["CURRENT", "building"] == sorted(entry.name for entry in tmp_path.iterdir() if not entry.is_dir())
    assert 1 == sum(entry.is_dir() for entry in tmp_path.iterdir())


def test_a_refused_rebuild_leaves_the_old_generation(tmp_path: Path) -> None:
    """What `check` raises comes out, and the old generation serves on."""
    story = Story().chain("m1")

    def check(state: object) -> None:
        raise InterruptedReadError

    with opened(tmp_path, story.events) as index:
        before = all_rows(index)
        with pytest.raises(InterruptedReadError):
            index.rebuild(reader(story.events), check=check)

        assert before == all_rows(index)


def test_a_rebuild_takes_what_was_written_meanwhile(tmp_path: Path) -> None:
    """Events that the old generation took while the new one was filled are in the new one."""
    story = Story().chain("m1")
    with opened(tmp_path, story.events) as index:
        told: list[int] = []

        def progress(position: int) -> None:
            told.append(position)
            if len(told) == 1:
                index.apply(story.append(user("m2")))

        def read(after: int) -> list[Recorded]:
            return reader(story.events)(after)  # what is on the log at that moment

        index.rebuild(read, progress=progress)

        assert [2, 3] == told
        assert story_answers(story, [CHAT]) == answers(index, [CHAT])


@pytest.mark.soak
def test_others_follow_to_the_new_generation(tmp_path: Path) -> None:
    """After a rebuild, who has the old generation open reads and writes the new one, and the old one is removed (PS-30)."""
    story = Story().chain("m1")
    with opened(tmp_path, story.events):
        pass
    script = f"""
index = Index(root, identity={IDENTITY!r}, map_bytes={MAP_BYTES})
say(index.open())
while (what := hear()) != "end":
    say(index.state.position)
index.close()
say("closed")
"""
    with process(script, tmp_path) as child, opened(tmp_path) as index:
        first = [ask(child), ask(child, "state")]
        story.append(user("m2"))
        index.rebuild(reader(story.events))
        story.append(user("m3"))
        index.apply(story.events)
        state = ask(child, "state")
        ask(child, "end")

        assert ["None", "2"] == first
        assert "4" == state
        assert ["000002"] == [entry.name for entry in tmp_path.iterdir() if entry.is_dir()]


@pytest.mark.soak
def test_a_process_that_rebuilds_is_followed(tmp_path: Path) -> None:
    """Here the other process rebuilds, and this one writes afterwards into the generation that it left behind."""
    story = Story().chain("m1")
    with opened(tmp_path, story.events) as index:
        script = f"""
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.support.stories import Story
from tests.support.naive_index import reader
index = Index(root, identity={IDENTITY!r}, map_bytes={MAP_BYTES})
say(index.open())
index.rebuild(reader(Story().chain("m1").events))
say("rebuilt")
hear()
say(index.state.position)
index.close()
"""
        with process(script, tmp_path) as child:
            said = [ask(child), ask(child)]
            index.apply(story.append(user("m2")))
            position = ask(child, "state")

        assert ["None", "rebuilt"] == said
        assert "3" == position
        assert story_answers(story, [CHAT]) == answers(index, [CHAT])


@pytest.mark.soak
def test_a_killed_rebuild_is_begun_anew(tmp_path: Path) -> None:
    """Killed while it builds: nothing is current, and the next one builds and cleans up (PS-30)."""
    script = f"""
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.support.stories import Story
index = Index(root, identity={IDENTITY!r}, map_bytes={MAP_BYTES})
events = Story().chain("m1").events
def read(after):
    if after:
        say("half")
        hear()
    return events[after:1]
index.rebuild(read)
"""
    with process(script, tmp_path) as child:
        ask(child)
    story = Story().chain("m1")
    with opened(tmp_path, story.events) as index:
        assert story_answers(story, [CHAT]) == answers(index, [CHAT])
    assert 1 == sum(entry.is_dir() for entry in tmp_path.iterdir())


@given(scripts)
@settings(max_examples=examples(40), deadline=None)
def test_erased_holes_are_accounted_for(script: list[Command]) -> None:
    """A rebuild from the erased log gives the same answers, and its holes are just those of the tombstones (PS-13)."""
    story = tell([*script, ("append", 0, 0, 0)], CHATS)
    rest = erased(story)
    with TemporaryDirectory() as folder, opened(Path(folder), rest) as index:
        state = index.state
        expected = story_answers(story, CHATS)

        assert len(story.events) - len(rest) == state.missing == state.erased
        assert expected == answers(index, CHATS)
        with index.snapshot() as snapshot:
            assert [] == snapshot.erasures()


def test_a_lost_event_is_not_an_erased_one(tmp_path: Path) -> None:
    """A hole that no tombstone explains is counted as missing, not as erased (PS-24)."""
    story = Story().chain("m1", "m2")
    story.chain("x1", chat_id="other")
    lost = [event for event in story.events if event.position != 3]
    with opened(tmp_path, lost) as index:
        assert (5, 1, 0) == (index.state.position, index.state.missing, index.state.erased)


def test_erasures_wait_until_they_are_finished(tmp_path: Path) -> None:
    """A deletion is remembered, over reopening, until somebody says that the events are gone (PS-13)."""
    story = Story().chain("m1")
    story.chain("x1", chat_id="other")
    story.delete()
    claimed = (CHAT, 1, 5)
    with opened(tmp_path, story.events):
        pass
    with opened(tmp_path) as index:
        with index.snapshot() as snapshot:
            (erasure,) = snapshot.erasures()
        index.finish_erasure(erasure, at_ms=1)
        with index.snapshot() as snapshot:
            after = snapshot.erasures()

    assert (erasure.stream_id, erasure.first_position, erasure.tombstone_position) == claimed
    assert after == []


@given(scripts, st.sampled_from([1, 1000]))
@settings(max_examples=examples(30), deadline=None)
def test_deletion_leaves_no_row(script: list[Command], page: int) -> None:
    """After the deletion of a chat every table is as if it had never been there, but for the tombstone (PS-13)."""
    story = tell([("append", 0, 0, 1), *script], CHATS)
    for chat_id in CHATS[1:]:
        if story.chat(chat_id).record is not None:
            story.delete(chat_id)
    with TemporaryDirectory() as folder, opened(Path(folder)) as index:
        apply_paged(index, story.events, page)
        left = rows(index)
        record = story.chat(CHATS[0]).record
        prefix = b"" if record is None else number(record.first_position)
        mine = {id_key(message.id) for message in story.chat(CHATS[0]).messages}
        living = {key for key, _ in left["chat_ids"] if key[:1] == b"c"}

        assert mine == {key for key, _ in left["message_ids"]}
        assert {id_key(branch.id) for branch in story.chat(CHATS[0]).branches} == {key for key, _ in left["branch_ids"]}
        assert all(prefix and key.startswith(prefix) for key, _ in left["rows"])
        assert ({b"c" + id_key(CHATS[0])} if prefix else set()) == living
        assert {prefix} >= {value for _, value in left["order"]}


def test_no_content_of_a_deleted_chat_is_in_any_row(tmp_path: Path) -> None:
    """Text, title, names and ids of its things are in no key and no value; other chats are untouched (PS-13)."""
    story = Story()
    story.create(title="SECRET title", metadata={"SECRET key": "SECRET value"}, user_id="SECRET user")
    story.chain("x1", chat_id="other")
    for at in range(100):
        story.append(user(f"SECRET id {at}", f"SECRET text {at}"))
    story.obey(("fork", 0, 0, 0))
    story.obey(("checkpoint", 0, 0, 0))
    with opened(tmp_path, story.events) as index:
        with_it = repr(all_rows(index))
        other = answers(index, ["other"])["other"]
        index.apply(story.delete())

        assert "SECRET" in with_it
        assert "SECRET" not in repr(all_rows(index))
        assert other == answers(index, ["other"])["other"]


def test_a_message_id_in_two_chats(tmp_path: Path) -> None:
    """Where two writers met, each chat has its own message, the older one is found, and deletion takes only one."""
    story = Story().chain("m1")
    story.chain("m1", chat_id="other")
    with opened(tmp_path, story.events) as index:
        with index.snapshot() as snapshot:
            found = snapshot.find("m1")
            assert found is not None
            assert CHAT == found[0].chat_id
            assert all(snapshot.chat(chat_id).is_elsewhere("m1") for chat_id in (CHAT, "other", "none"))
        index.apply(story.delete())
        with index.snapshot() as snapshot:
            found = snapshot.find("m1")
            assert found is not None
            assert "other" == found[0].chat_id
            assert not snapshot.chat(CHAT).has_message("m1")
            assert not snapshot.chat("other").is_elsewhere("m1")


def test_commands_are_found_by_id(tmp_path: Path) -> None:
    """The positions of the first and the last event of a command stay known while the chat lives (PS-22)."""
    story = Story().chain("m1")
    story.write([ChatUpdated({"title": "a"}), ChatUpdated({"title": "b"})], command_id="cmd")
    for page in (1, 100):
        with opened(tmp_path / str(page)) as index:
            apply_paged(index, story.events, page)
            with indexed(index, CHAT) as chat:
                assert (3, 4) == chat.command("cmd")
                assert chat.command("none") is None


def keep_first_pages(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:8192].ljust(file.stat().st_size, b"\0"))


@pytest.mark.parametrize("number_", range(6))
def test_an_index_that_cannot_serve_says_why(tmp_path: Path, number_: int) -> None:
    """None yet, another log, another schema, an unclean stop, damage: a reason, and a rebuild makes it good."""
    story = Story().chain("m1")
    spoil: list[tuple[str, Callable[[Path], object]]] = [
        ("there is none", lambda folder: (tmp_path / "CURRENT").unlink()),
        ("the machine went down", lambda folder: (folder / "in-use").write_bytes(b"another boot")),
        ("cannot be opened", lambda folder: (folder / "data.mdb").write_bytes(b"\1" * 40_960)),
        ("has schema", lambda folder: (folder / "data.mdb").unlink()),
        ("there is none", lambda folder: (tmp_path / "CURRENT").write_text("nonsense")),
        ("", lambda folder: keep_first_pages(folder / "data.mdb")),
    ]
    reason, damage = spoil[number_]
    with opened(tmp_path, story.events):
        pass
    damage(tmp_path / "000001")
    index = Index(tmp_path, identity=IDENTITY, map_bytes=MAP_BYTES)
    found = index.open()
    index.rebuild(reader(story.events), unless_open=True)

    assert found is not None
    assert reason in found
    assert story_answers(story, [CHAT]) == answers(index, [CHAT])
    index.close()


def test_an_index_of_another_log_does_not_serve(tmp_path: Path) -> None:
    """The identity of the log is part of the index."""
    with opened(tmp_path, Story().chain("m1").events):
        pass
    index = Index(tmp_path, identity="log-2", map_bytes=MAP_BYTES)

    assert index.open() == "it was built from another log"
    index.close()


def test_closed_is_closed(tmp_path: Path) -> None:
    """Every question raises after `close`, and closing again does nothing."""
    with opened(tmp_path) as index:
        index.close()
        index.close()
        for act in (lambda: index.state, lambda: index.apply([])):
            with pytest.raises(LedgerClosedError):
                act()


def test_the_map_of_an_index_grows(tmp_path: Path) -> None:
    """An index with a tiny map takes megabytes in one batch, and rebuilds them."""
    story = Story().chain("m1")
    for at in range(60):
        story.append(user(f"n{at}", "x" * 50_000))
    with opened(tmp_path, map_bytes=256 * 1024) as index:
        index.apply(story.events)
        live = answers(index, [CHAT])
        index.rebuild(reader(story.events, 7))

        assert story_answers(story, [CHAT]) == live == answers(index, [CHAT])


def test_what_is_to_be_erased_again_is_noted_once(tmp_path: Path) -> None:
    """By its position, however often; the last event that took content away stays the last one."""
    first, second = (Erasure("c", 1, position, targets=((1, (3,)),)) for position in (5, 9))
    with opened(tmp_path) as index:
        for redaction in (second, first, first):
            index.note_erasures([], [redaction])
        with index.snapshot() as snapshot:
            assert [erasure.tombstone_position for erasure in snapshot.erasures()] == [5, 9]
            assert snapshot.redacted_at == 9
        for _ in range(2):
            index.finish_erasure(first, at_ms=1)
        with index.snapshot() as snapshot:
            assert [receipt.tombstone_position for receipt in snapshot.receipts()] == [5, 9]
