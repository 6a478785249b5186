"""Reading as of an earlier position: next to reading the same now, and next to folding the log up to there."""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import chatledger
from chatledger import Ledger, LedgerView, Message, Recorded
from chatledger.domain.chat.replay import ReplayedChat

from ..measure import Row, check_equal
from ..prose import Prose
from ..world import World, append_singly

_CHAT_EVENTS = 100
_PER_CHAT = 20
_QUERY = "the"
_CHANGED, _UNCHANGED = "changed", "unchanged"
_SAME = "the same call, of the present"
_FOLD = "the log up to there, folded in memory"


def time_travel(world: World) -> Iterator[Row]:
    """A chat of a long log as of half of it, of which it is a small part; one that has not changed since; all of them."""
    count = world.sizes.chats
    world.report(f"storing {count:,} chats to look back at")
    folder = world.folder() / "ledger"
    position = _fill(folder, count)
    with chatledger.open(folder, durability="fast") as ledger:
        yield from _one_chat(world, ledger, position)
        yield from _all_chats(world, ledger, position, count)


def _fill(folder: Path, count: int) -> int:
    """Chats of as many events each, one event at a time; returns the position in the middle, after which a third changes."""
    talk, chat_ids = Prose(11), [f"chat-{number}" for number in range(count)]
    append_singly(folder, [_CHANGED, _UNCHANGED], _CHAT_EVENTS, talk)
    position = append_singly(folder, chat_ids, _PER_CHAT, talk)
    append_singly(folder, [_CHANGED, *chat_ids[::3]], _PER_CHAT, talk)
    return position


def _one_chat(world: World, ledger: Ledger, position: int) -> Iterator[Row]:
    length = ledger.last_position()
    for chat_id in (_UNCHANGED, _CHANGED):
        name = f"chain of 100 as of half of {length:,} events, {chat_id} since"
        at = partial(_chain_then, ledger, position, chat_id)
        now = partial(ledger.get_messages, chat_id, limit=_CHAT_EVENTS)
        folded = partial(_fold_chain, ledger, position, chat_id)
        expected = folded()
        check_equal(name, at(), expected)
        note = "as_of, the read and close; what changed is folded from its own events, of which it has 100 up to there"
        yield world.compare(
            at, now, subject="time_travel", name=name, peer=_SAME, note=f"{note}; now: the last 100 messages, warm"
        )
        if chat_id == _CHANGED:
            yield world.compare(at, folded, subject="time_travel", name=name, peer=_FOLD, note=note)
            with ledger.as_of(position) as view:
                again = partial(view.get_messages, chat_id)
                check_equal(name, again(), expected)
                yield world.compare(
                    again,
                    now,
                    subject="time_travel",
                    name=f"{name}, in a view that has read it",
                    peer=_SAME,
                    note="warm; from the temporary index of the view",
                )


def _all_chats(world: World, ledger: Ledger, position: int, count: int) -> Iterator[Row]:
    name = f"list of {count + 2:,} chats as of half of the log, a third changed since"
    at = partial(_ids_then, ledger, position)
    folded = partial(_fold_ids, ledger, position)
    check_equal(name, at(), folded())
    note = "as_of, the read and close; the third is folded, from one reading of the log"
    yield world.compare(at, folded, subject="time_travel", name=name, peer=_FOLD, note=note)
    with ledger.as_of(position) as view:
        search = partial(view.search, _QUERY)
        now = partial(ledger.search, _QUERY)
        check_equal(name, {hit.message.id for hit in view.search(_QUERY, limit=None)}, _ids_with(view, _QUERY))
        yield world.compare(
            search,
            now,
            subject="time_travel",
            name=f"search all of {count + 2:,} chats as of half of the log, in a view that has read them",
            peer=_SAME,
            note="warm; best 20 by BM25, with the statistics of that moment",
        )


def _chain_then(ledger: Ledger, position: int, chat_id: str) -> list[Message]:
    with ledger.as_of(position) as view:
        return view.get_messages(chat_id)


def _ids_then(ledger: Ledger, position: int) -> list[str]:
    with ledger.as_of(position) as view:
        return [chat.id for chat in view.list_chats()]


def _fold(ledger: Ledger, position: int) -> dict[str, ReplayedChat]:
    by_chat: defaultdict[str, list[Recorded]] = defaultdict(list)
    for recorded in ledger.history(up_to=position):
        by_chat[recorded.chat_id].append(recorded)
    return {chat_id: ReplayedChat(chat_id, events) for chat_id, events in by_chat.items()}


def _fold_chain(ledger: Ledger, position: int, chat_id: str) -> list[Message]:
    chat = _fold(ledger, position)[chat_id]
    head = chat.branches[0].head_message_id
    return [] if head is None else chat.get_chain(head)


def _fold_ids(ledger: Ledger, position: int) -> list[str]:
    chats = [folded.chat for folded in _fold(ledger, position).values()]
    found = [chat for chat in chats if chat is not None]
    return [chat.id for chat in sorted(found, key=lambda chat: (-chat.updated_at, chat.id))]


def _ids_with(view: LedgerView, word: str) -> set[str]:
    """The messages that a search must find, by reading all chats."""
    from chatledger.domain.search.tokens import terms_of

    wanted = terms_of(word)[0]
    return {
        message.id
        for chat in view.list_chats()
        for message in view.get_messages(chat.id)
        if wanted in terms_of(message.text)
    }
