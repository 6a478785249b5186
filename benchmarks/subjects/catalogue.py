"""Questions about a chat as a whole and about all chats."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import chatledger
from chatledger import Graph, Ledger

from ..data import START_MS
from ..measure import Row, check_equal
from ..sqlite_peer import SqlitePeer
from ..world import Pair, World, fill, make_chain

PAGE = 50
_MESSAGES_PER_CHAT = 5


def branches(world: World) -> Iterator[Row]:
    """The branches of a chat with the lengths of their chains, and its graph."""
    sizes = world.sizes
    world.report(f"storing {sizes.branches} branches on {sizes.branched:,} messages")
    with world.fresh("fast") as pair:
        ids = fill(pair, "chat", sizes.branched, seed=4)
        for number in range(1, sizes.branches):
            head = ids[number * len(ids) // sizes.branches]
            pair.ledger.create_branch("chat", f"branch-{number:02}", head)
            pair.peer.create_branch("chat", f"branch-{number:02}", head)
        name = f"list_branches, {sizes.branches} on {sizes.branched:,} messages"
        check_equal(name, sorted(_list_branches(pair.ledger)), sorted(pair.peer.list_branches("chat")))
        yield world.compare(
            partial(pair.ledger.list_branches, "chat"),
            partial(pair.peer.list_branches, "chat"),
            subject="branches",
            name=name,
            note="warm; with the length of each chain, for which the peer walks it",
        )
        yield _branches_of_shorter(world, pair, name)
        name = f"graph of {sizes.branched:,} messages"
        ours, theirs = partial(pair.ledger.graph, "chat"), partial(pair.peer.graph, "chat")
        nodes, heads, _ = theirs()
        check_equal(name, _nodes(ours()), nodes)
        check_equal(
            name,
            sorted((head.name, head.head_message_id, int(head.is_active)) for head in ours().branches),
            sorted(heads),
        )
        yield world.compare(
            ours, theirs, subject="branches", name=name, note="warm; all nodes with previews of 50 characters"
        )


def _branches_of_shorter(world: World, pair: Pair, name: str) -> Row:
    """The same with as many branches of a chain of a tenth of the length."""
    count = world.sizes.branches
    length = world.sizes.branched // 10
    ids = make_chain(pair.ledger, "shorter", length, seed=5)
    for number in range(1, count):
        pair.ledger.create_branch("shorter", f"branch-{number:02}", ids[number * length // count])
    return world.compare(
        partial(pair.ledger.list_branches, "chat"),
        partial(pair.ledger.list_branches, "shorter"),
        subject="branches",
        name=name,
        peer=f"ours, on {length:,}",
        note="1 means that the length of the chains does not matter",
    )


def _list_branches(ledger: Ledger) -> list[tuple[str, str | None, bool, int]]:
    return [
        (branch.name, branch.head_message_id, branch.is_active, branch.message_count)
        for branch in ledger.list_branches("chat")
    ]


def _nodes(graph: Graph) -> list[dict[str, Any]]:
    return [
        {
            "id": node.id,
            "parentId": node.parent_id,
            "role": node.role,
            "content": node.content,
            "createdAt": node.created_at,
        }
        for node in graph.nodes
    ]


def chats(world: World) -> Iterator[Row]:
    """A page of the list of chats, the first one and one in the middle."""
    count = world.sizes.chats
    world.report(f"storing {count:,} chats")
    with world.fresh("fast") as pair:
        for number in range(count):
            fill(pair, f"chat-{number:06}", _MESSAGES_PER_CHAT, seed=10_000 + number)
        _order_alike(pair)
        limit = min(PAGE, count // 4)
        middle = count // 2
        after = pair.ledger.list_chats(limit=middle)[-1]
        note = f"warm; {_MESSAGES_PER_CHAT} messages in each chat; with the number of messages and branches"
        name = f"first {limit} of {count:,} chats"
        ours, theirs = partial(pair.ledger.list_chats, limit=limit), partial(pair.peer.list_chats, limit=limit)
        check_equal(name, _ours(ours()), _theirs(theirs()))
        yield world.compare(ours, theirs, subject="chats", name=name, note=note)
        name = f"{limit} chats after {middle:,} of {count:,}"
        ours = partial(pair.ledger.list_chats, limit=limit, after=after)
        theirs = partial(pair.peer.list_chats, limit=limit, offset=middle)
        check_equal(name, _ours(ours()), _theirs(theirs()))
        yield world.compare(ours, theirs, subject="chats", name=name, note=f"{note}; by cursor, the peer by offset")


def many_chats(world: World) -> Iterator[Row]:
    """Pages of a long list of chats, by cursor, at several places."""
    count = world.sizes.many_chats
    world.report(f"storing {count:,} chats")
    # The list is a matter of the index alone, which is on the disk here too.
    with chatledger.open("memory:") as ledger, SqlitePeer(world.folder() / "peer.db") as peer:
        ids = [f"chat-{number:06}" for number in range(count)]
        for chat_id in ids:
            ledger.create_chat(chat_id, "ada")
        peer.create_chats(ids, "ada")
        order = ledger.list_chats()
        peer.set_updated({chat.id: START_MS + number for number, chat in enumerate(reversed(order))})
        limit = min(PAGE, count // 4)
        first = partial(ledger.list_chats, limit=limit)
        for place in (0, count // 2, count - limit):
            ours = partial(ledger.list_chats, limit=limit, after=order[place - 1] if place else None)
            theirs = partial(peer.list_chats, limit=limit, offset=place)
            name = f"{limit} chats after {place:,} of {count:,}"
            check_equal(name, _ours(ours()), _theirs(theirs()))
            yield world.compare(
                ours, theirs, subject="many_chats", name=name, note="warm; empty chats; by cursor, the peer by offset"
            )
            if place:
                note = "1 means that the place in the list does not matter"
                yield world.compare(ours, first, subject="many_chats", name=name, peer="ours, first page", note=note)


def _order_alike(pair: Pair) -> None:
    """Give the peer's chats times in our order: it knows seconds only, and breaks no ties."""
    order = [chat.id for chat in reversed(pair.ledger.list_chats())]
    pair.peer.set_updated({chat_id: START_MS + number for number, chat_id in enumerate(order)})


def _ours(page: Any) -> list[tuple[Any, ...]]:
    return [(chat.id, chat.user_id, chat.title, chat.metadata, chat.message_count, chat.branch_count) for chat in page]


def _theirs(page: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    keys = ("id", "userId", "title", "metadata", "messageCount", "branchCount")
    return [tuple(chat[key] for key in keys) for chat in page]
