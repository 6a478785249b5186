import itertools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.naive_index import opened
from tests.support.soak import examples
from tests.support.stories import Story, user

from chatledger.domain.chat.decide_chats import decide_update_chat
from chatledger.domain.values import Chat
from chatledger.projections.chat.lists import ChatCursor, ChatList
from chatledger.projections.index import Index

Entry = tuple[str, str | float]

values = st.sampled_from([1, 1.0, True, False, 0, "1", "", "a", 1.5, None, [1], {"a": 1}])
metadata = st.none() | st.dictionaries(st.sampled_from(["a", "", "a.b", "a[0]", "$.a"]), values, max_size=3)
chats = st.lists(
    st.tuples(st.sampled_from(["", "ada", "Ada", "bob"]), metadata, st.integers(0, 3)), min_size=1, max_size=12
)
updates = st.lists(st.tuples(st.integers(0, 11), st.sampled_from(["append", "title", "metadata", "delete"]), metadata))


def told(plan: list[tuple[str, dict[str, Any] | None, int]], changes: list[tuple[int, str, Any]]) -> Story:
    """Chats with a clock that stands still at times, and what happened to them later."""
    story = Story()
    for at, (user_id, entries, wait) in enumerate(plan):
        story.time += wait - 1
        story.create(f"c{(at * 7) % 12}", user_id=user_id, metadata=entries)
    for at, what, entries in changes:
        chat_id = f"c{at}"
        if story.chat(chat_id).record is None:
            continue
        if what == "append":
            story.append(user(story.new_id()), chat_id=chat_id)
        elif what == "title":
            story.write(decide_update_chat(story.chat(chat_id), title=story.new_id("t")), chat_id)
        elif what == "metadata":
            story.write(decide_update_chat(story.chat(chat_id), metadata=entries), chat_id)
        else:
            story.delete(chat_id)
    return story


def matches(chat: Chat, user_id: str | None, entry: Entry | None) -> bool:
    """The filter as it is written."""
    if user_id is not None and chat.user_id != user_id:
        return False
    if entry is None:
        return True
    key, wanted = entry
    if chat.metadata is None or key not in chat.metadata:
        return False
    found = chat.metadata[key]
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    return (
        isinstance(found, str | int | float) and isinstance(found, str) == isinstance(wanted, str) and found == wanted
    )


def ask(index: Index, **options: Any) -> list[Chat]:
    chats = ChatList(**{name: options.pop(name) for name in ChatList._fields if name in options})
    with index.snapshot() as snapshot:
        return snapshot.list_chats(chats, **options)


ORDERS: list[dict[str, Any]] = [
    {"is_ascending": True},
    {"is_by_creation": True},
    {"is_by_creation": True, "is_ascending": True},
]
OTHERS: list[Entry] = [("a", 1), ("b", "x"), ("", 1)]
FILTERS: list[tuple[str | None, Entry | None]] = [
    (user_id, entry)
    for user_id in (None, "", "ada", "eve")
    for entry in (None, ("a", 1), ("a", True), ("a", "1"), ("a", ""), ("a.b", 1), ("", 1), ("a", 1.5), ("a", 0))
]


@given(chats, updates, st.sampled_from([1, 3, 1000]))
@settings(max_examples=examples(60), deadline=None)
def test_lists_agree_with_sorting_and_filtering(plan: Any, changes: Any, page: int) -> None:
    """Newest first, ties by id; owner and entry match exactly; offset and cursor give the same pages (PS-8 to PS-11)."""
    story = told(plan, changes)
    whole: list[Chat] = sorted(
        (found for replayed in story.chats.values() if (found := replayed.chat) is not None),
        key=lambda chat: (-chat.updated_at, chat.id),
    )
    with TemporaryDirectory() as folder, opened(Path(folder)) as index:
        for at in range(0, len(story.events), page):
            index.apply(story.events[at : at + page])
        for user_id, entry in FILTERS:
            expected = [chat for chat in whole if matches(chat, user_id, entry)]

            entries = () if entry is None else (entry,)
            assert expected == ask(index, user_id=user_id, entries=entries)
            assert expected[::-1] == ask(index, user_id=user_id, entries=entries, is_ascending=True)
            for other in OTHERS:
                both = [chat for chat in expected if matches(chat, None, other)]
                assert both == ask(index, user_id=user_id, entries=(*entries, other))
                assert both[::-1] == ask(index, user_id=user_id, entries=(other, *entries), is_ascending=True)
                with index.snapshot() as snapshot:
                    assert len(both) == snapshot.count_chats(ChatList(user_id, (*entries, other)))
            created = sorted(
                [chat for chat in whole if user_id in {None, chat.user_id}],
                key=lambda chat: (-chat.created_at, chat.id),
            )
            assert created == ask(index, user_id=user_id, is_by_creation=True)
            assert created[::-1] == ask(index, user_id=user_id, is_by_creation=True, is_ascending=True)
        for chats, size in itertools.product(ORDERS, (1, 2, 5)):
            listed, order = ask(index, **chats), ChatList(**chats)
            pages = [ask(index, **chats, limit=size)]
            while pages[-1]:
                last = pages[-1][-1]
                pages.append(ask(index, **chats, limit=size, after=ChatCursor(order.time_of(last), last.id)))
            assert listed == [chat for page_ in pages for chat in page_]
        for size in (1, 2, 5):
            by_offset = [ask(index, limit=size, offset=at) for at in range(0, len(whole) + 1, size)]
            by_cursor = [ask(index, limit=size)]
            while by_cursor[-1]:
                last = by_cursor[-1][-1]
                by_cursor.append(ask(index, limit=size, after=ChatCursor(last.updated_at, last.id)))

            assert whole == [chat for page_ in by_offset for chat in page_]
            assert whole == [chat for page_ in by_cursor for chat in page_]


def test_limits_and_offsets(tmp_path: Path) -> None:
    """None is all, 0 is none, an offset works without a limit, and beyond the end there is nothing (PS-11)."""
    story = told([("ada", None, 1)] * 5, [])
    with opened(tmp_path, story.events) as index:
        whole = ask(index)

        assert 5 == len(whole)
        assert [] == ask(index, limit=0)
        assert whole[2:] == ask(index, offset=2)
        assert whole[2:4] == ask(index, offset=2, limit=2)
        assert [] == ask(index, offset=5)
        assert [] == ask(index, offset=10**12, limit=10**12)
        assert whole == ask(index, limit=10**12)


@pytest.mark.parametrize("length", [399, 400, 401, 2048])
def test_chats_with_long_ids_are_all_listed(tmp_path: Path, length: int) -> None:
    """Ids that begin alike for hundreds of bytes are different chats, on every page (PS-16)."""
    story = Story()
    for letter in "abcdef":
        story.create("x" * (length - 1) + letter)
        story.time -= 1  # so that only the id tells them apart
    with opened(tmp_path, story.events) as index:
        whole = ask(index)
        pages: list[Chat] = ask(index, limit=2)
        while len(pages) < len(whole) and (
            more := ask(index, limit=2, after=ChatCursor(pages[-1].updated_at, pages[-1].id))
        ):
            pages += more

        assert ["x" * (length - 1) + letter for letter in "abcdef"] == [chat.id for chat in whole]
        assert whole == pages


def test_a_cursor_survives_the_deletion_of_its_chat(tmp_path: Path) -> None:
    """The next page begins where the deleted chat stood, nothing twice and nothing left out."""
    story = told([("ada", None, 2)] * 4, [])
    with opened(tmp_path, story.events) as index:
        whole = ask(index)
        story.delete(whole[1].id)
        index.apply(story.events)

        assert whole[2:] == ask(index, after=ChatCursor(whole[1].updated_at, whole[1].id))
