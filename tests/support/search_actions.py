"""Random actions on chats that are searched."""

import random
from collections.abc import Iterator
from itertools import chain, combinations
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st
from tests.support.search_world import check_against_scan, messages_in_log_order

from chatledger import Ledger, Message, NewMessage
from chatledger.domain.search.fields import FIELDS
from chatledger.domain.values import SearchHits

OWNERS: Final = {"c0": "ada", "c1": "ada", "c2": "bo"}
ROLES: Final = ("user", "assistant", "tool")
WORDS: Final = (
    "a",
    "b",
    "ab",
    "run",
    "Running",
    "runs",
    "état",
    "中文字",
    "中",
    "x1",
    "a-b",
    "the",
    "c" * 300,
    "runsTheAb",
    "서울은",
    "서울",
)
SELECTIONS: Final = list(chain.from_iterable(combinations(FIELDS, size) for size in (1, 2, 3)))
"""Any of the fields together."""


said = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
texts = said | st.lists(said, min_size=2, max_size=3).map("|".join)
"""Of a message: its text, what its tools took and gave, its reasoning."""
words = st.sampled_from(WORDS)
phrases = st.lists(words, min_size=1, max_size=3).map(lambda parts: f'"{" ".join(parts)}"')
simple = words | words.map(lambda word: word + "*") | phrases | phrases.map(lambda phrase: phrase + "*")
queries = st.recursive(
    simple,
    lambda inner: st.tuples(inner, st.sampled_from([" ", " AND ", " OR ", " NOT "]), inner).map(
        lambda parts: f"({''.join(parts)})"
    ),
    max_leaves=5,
)


class Append(NamedTuple):
    """A batch onto the chat's branch."""

    chat: str
    texts: list[str]


class Fork(NamedTuple):
    """A batch onto a message of the chat, or beside its roots."""

    chat: str
    parent: int
    texts: list[str]


class Delete(NamedTuple):
    chat: str


chats = st.sampled_from(sorted(OWNERS))
batches = st.lists(texts, min_size=1, max_size=7)
Action = Append | Fork | Delete
actions = st.lists(
    st.builds(Append, chats, batches) | st.builds(Fork, chats, st.integers(0, 30), batches) | st.builds(Delete, chats),
    min_size=1,
    max_size=10,
)


def _data(text: str) -> Any:
    """A string, or a message with tools and maybe reasoning; see `texts`."""
    if "|" not in text:
        return text
    own, tools, *reasoning = text.split("|")
    first, _, rest = tools.partition(" ")
    call = {"type": "tool-x", "toolCallId": "run", "input": {"a": first}, "output": [rest] if rest else None}
    parts = [{"type": "text", "text": own}, call, *({"type": "reasoning", "text": one} for one in reasoning)]
    return {"parts": parts}


class World:
    """A ledger, and what is in it by reading it."""

    def __init__(self, ledger: Ledger, seed: int = 0) -> None:
        self.ledger = ledger
        self.random = random.Random(seed)
        self.count = 0

    def carry_out(self, action: Action) -> None:
        chat_id = action.chat
        if isinstance(action, Delete):
            self.ledger.delete_chat(chat_id)
            return
        if self.ledger.get_chat(chat_id) is None:
            self.ledger.create_chat(chat_id, OWNERS[chat_id])
        drafts = [self.draft(text) for text in action.texts]
        if isinstance(action, Append):
            self.ledger.append(chat_id, drafts)
            return
        known = messages_in_log_order(self.ledger, chat_id)
        parent_id = known[action.parent].id if action.parent < len(known) else None
        added: list[NewMessage] = []
        for draft in drafts:
            added.append(
                NewMessage(draft.name, draft.data, id=draft.id, parent_id=parent_id, created_at=draft.created_at)
            )
            parent_id = draft.id
        self.ledger.add_messages(chat_id, added)

    def draft(self, text: str) -> NewMessage:
        """Few times, so that there are ties."""
        self.count += 1
        name, created_at = self.random.choice(ROLES), self.random.randrange(4)
        return NewMessage(name, _data(text), id=f"m{self.count}", created_at=created_at)

    def scopes(self) -> Iterator[tuple[dict[str, Any], list[Message]]]:
        """The arguments for a scope, and all messages of it: chats that changed later come later where all else is equal."""
        listed = [chat.id for chat in self.ledger.list_chats()]
        found = {chat_id: messages_in_log_order(self.ledger, chat_id) for chat_id in OWNERS}
        for chat_id in OWNERS:
            yield {"chat_id": chat_id}, found[chat_id]
        for scope, owner in [({"user_id": "ada"}, "ada"), ({"user_id": "bo"}, "bo"), ({}, None)]:
            mine = [chat_id for chat_id in listed if owner in {None, OWNERS[chat_id]}]
            yield scope, [message for chat_id in reversed(mine) for message in found[chat_id]]

    def check(self, query: str) -> None:
        """Every scope answers what reading its messages answers."""
        for scope, messages in self.scopes():
            for within in (SELECTIONS[0], self.random.choice(SELECTIONS)):
                hits = self.ledger.search(query, limit=None, within=within, **scope)
                check_against_scan(hits, messages, query, {message.id for message in messages}, within)

    def check_filters(self, query: str) -> None:
        """Filters leave ranks as they are."""
        for scope, messages in self.scopes():
            roles = self.random.sample(ROLES, 2)
            since, until = sorted(self.random.choices(range(6), k=2))
            within = self.random.choice(SELECTIONS)
            hits = self.ledger.search(query, roles=roles, within=within, since=since, until=until, limit=None, **scope)
            wanted = {m.id for m in messages if m.name in roles and since <= m.created_at < until}
            check_against_scan(hits, messages, query, wanted, within)

    def answers(self, query: str) -> list[tuple[SearchHits, bool]]:
        """All that a query answers, to be compared with what it answers later."""
        found = [
            self.ledger.search(query, limit=None, within=within, **scope)
            for scope, _ in self.scopes()
            for within in (SELECTIONS[0], FIELDS)
        ]
        return [(hits, hits.is_degraded) for hits in found]
