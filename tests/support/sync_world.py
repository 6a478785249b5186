"""Ledgers that are edited at random and pull from each other, and what all of them come to tell."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from chatledger import ANY, Ledger, user
from chatledger.infra.ledger.peers import PullSource

LEDGERS: Final = ("a", "b", "c")
EDITS: Final = ("append", "append", "fork", "rewind", "redact", "title", "pull", "pull", "merge", "delete")
"""Steps of one ledger; what is there twice is taken more often."""


def begin(ledgers: Mapping[str, Ledger]) -> None:
    """Give all ledgers the same chat."""
    first, *others = ledgers.items()
    first[1].create_chat("x", "ada")
    first[1].append("x", [user("start", id="m0")])
    for _, ledger in others:
        ledger.pull(first[1], name=first[0])


def edit(
    ledgers: Mapping[str, Ledger],
    name: str,
    step: str,
    number: int,
    new: Callable[[], str],
    peer: Callable[[Ledger], Ledger | PullSource] = lambda ledger: ledger,
) -> None:
    """Do a step in one of the ledgers: a pull from another, by way of `peer`, or an edit. `new` makes ids."""
    ledger = ledgers[name]
    nodes = ledger.graph("x").nodes
    if step == "pull":
        source = LEDGERS[(LEDGERS.index(name) + 1 + number % 2) % 3]
        ledger.pull(peer(ledgers[source]), name=source)
    elif not nodes:
        return
    elif step == "append":
        ledger.append("x", [user("text", id=f"{name}{new()}")])
    elif step == "fork":
        branch = f"{name}{new()}"
        ledger.create_branch("x", branch, nodes[number % len(nodes)].id)
        ledger.append("x", [user("fork", id=f"{branch}-m")], branch=branch)
    elif step == "rewind":
        ledger.move_head("x", "main", nodes[number % len(nodes)].id, expected=ANY)
    elif step == "merge":
        into, *others = sorted(heads(ledger, "x"))
        if others:
            source = others[number % len(others)]
            if number % 2:
                ledger.merge("x", source, into, how="rebase")
            else:
                ledger.merge("x", source, into, summary="in short")
    elif step == "redact":
        ledger.redact(nodes[number % len(nodes)].id)
    elif step == "title":
        ledger.update_chat("x", title=f"title {number}")
    elif step == "delete" and number == 0:
        ledger.delete_chat("x")


def what_is_told(ledger: Ledger, chat_id: str = "x") -> Any:
    """The messages of a chat, and the ends of its branches that no other branch goes on from."""
    graph = ledger.graph(chat_id)
    parents = {node.id: [node.parent_id, *node.merged_from] for node in graph.nodes}
    ends = {branch.head_message_id for branch in graph.branches}
    inner: set[str | None] = set()
    above = [parent for end in ends if end is not None for parent in parents[end]]
    while above:
        at = above.pop()
        if at is not None and at not in inner:
            inner.add(at)
            above += parents[at]
    said = (
        {}
        if ledger.get_chat(chat_id) is None
        else {each.id: (each.parent_id, each.merged_from, each.data) for each in ledger.export_chat(chat_id).messages}
    )
    return said, ends - inner


def pull_until_quiet(ledgers: Mapping[str, Ledger], order: Sequence[tuple[str, str]]) -> None:
    """Let each pull from each, as `order` has them, until nothing changes: all tell the same then, and verify."""
    changed: list[Any] = []
    for _ in range(8):
        changed = [ledgers[to].pull(ledgers[source], name=source).chats for to, source in order]
        if not any(changed):
            break
    assert not any(changed), f"it comes to no end: {changed}"
    told = [what_is_told(ledger) for ledger in ledgers.values()]
    assert all(each == told[0] for each in told)
    for ledger in ledgers.values():
        ledger.verify()


def heads(ledger: Ledger, chat_id: str = "trip") -> dict[str, str | None]:
    return {branch.name: branch.head_message_id for branch in ledger.graph(chat_id).branches}
