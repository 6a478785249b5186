"""Retention rules of a ledger: set, removed and listed, and what is over by them."""

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Literal

import msgspec

from chatledger.domain.chat.events import Body
from chatledger.domain.holds import LEDGER_OWNER
from chatledger.domain.limits import check_choice
from chatledger.domain.retention import (
    KINDS,
    RULES,
    Erases,
    RetentionKind,
    RetentionRule,
    check_rule,
    deciding,
    is_over,
    rule_key,
)
from chatledger.domain.values import Chat
from chatledger.domain.versioned.keys import ASSISTANT_STATES, STATE, Family, family_of_stream, parse_state_id
from chatledger.domain.versioned.numbered import VALUE, StateDraft, decide_end_item, decide_put_state
from chatledger.domain.versioned.record import VersionedRecord
from chatledger.domain.versioned.serials import encoded
from chatledger.projections.chat.lists import ChatCursor, ChatList
from chatledger.projections.log.holds import own_value
from chatledger.projections.log.kinds import CHATS, ITEMS, KIND_OF_FAMILY
from chatledger.projections.versioned.lists import listed_values, living_items
from chatledger.projections.versioned.reader import IndexedVersioned

from ..log.bookmarks import bookmark_key
from .port import LedgerPart, LedgerSnapshot, StorePort

_PAGE = 100
_CATCH_UP_S = 30.0
Due = tuple[str, str]
"""The kind and the key of what is over."""
Place = ChatCursor | bytes
"""The place in a list, of chats or of values, up to which it was gone through."""


class RetentionMethods(LedgerPart):
    """The part of a ledger that is about how long what is kept."""

    def set_retention(
        self,
        name: str,
        *,
        kind: RetentionKind = "chat",
        keep_days: float | None,
        since: Literal["updated", "created"] = "updated",
        user_id: str | None = None,
        metadata: dict[str, str | bool | int | float] | None = None,
        erases: Erases = "all",
        roles: Sequence[str] = (),
        keep_last: int = 1,
    ) -> RetentionRule:
        """
        Set a retention rule, or set it anew: a sweep deletes what it keeps no longer, such as chats without a message for 90 days.

        Of the rules that fit a thing the most specific decides; see `RetentionRule`. A rule without owner and metadata is the default.
        The end of a chat, or a time to live, deletes it earlier. What is under a legal hold stays.

        Args:
            name: The name of the rule.
            kind: What it is about: `chat`, `thread`, `state` or `item`.
            keep_days: How long that is kept, in days, which may be fractions; None for ever.
            since: From when the days count: `updated`, the last message or other change, or, of chats only, `created`.
            user_id: Only what this user owns.
            metadata: Only chats whose metadata have all of these entries.
            erases: `content` to redact messages, each so many days after it came to the ledger, and keep the chat with its structure.
                `versions`, of threads, states and items, to take their content from earlier versions, so many days after newer ones came.
            roles: With `content`, only messages with one of these names, such as `tool`.
            keep_last: With `versions`, how many stay whatever their age: the newest ones, of a thread those of each namespace.

        Raises:
            AccessDeniedError: This ledger is limited to a user.
            InvalidValueError: A value breaks a rule.
        """
        store = self._store.whole("set_retention")
        rule = check_rule(
            RetentionRule(
                name=name,
                kind=kind,
                keep_days=keep_days,
                since=since,
                user_id=user_id,
                metadata=metadata or None,
                erases=erases,
                roles=(roles,) if isinstance(roles, str) else tuple(roles),
                keep_last=keep_last,
            )
        )
        if store.execute(ITEMS, rule_key(name), partial(_decide_set, rule)):
            begin_again(store)
        return rule

    def remove_retention(self, name: str) -> bool:
        """
        Remove a retention rule; what was said when stays in the history.

        Returns:
            Whether there was one.

        Raises:
            AccessDeniedError: This ledger is limited to a user.
        """
        store = self._store.whole("remove_retention")
        key = rule_key(name)
        is_removed = bool(store.execute(ITEMS, key, lambda state, now: decide_end_item(state, key, now)))
        if is_removed:
            begin_again(store)
        return is_removed

    def retention(self, kind: RetentionKind | None = None) -> list[RetentionRule]:
        """
        The retention rules, by name.

        Args:
            kind: Only those about chats, threads, states or items.

        Raises:
            AccessDeniedError: This ledger is limited to a user.

        Source: the LMDB index. Costs O(rules).
        """
        if kind is not None:
            check_choice(kind, KINDS, "kind")
        with self._store.whole("retention").snapshot() as snapshot:
            return [rule for rule in rules_in(snapshot) if kind in {None, rule.kind}]


def _decide_set(rule: RetentionRule, state: IndexedVersioned, now: int) -> list[Body]:
    if own_value(state, RetentionRule) == rule:
        return []
    value = {VALUE: encoded(msgspec.to_builtins(rule))}
    return decide_put_state(state, StateDraft(state_id=rule_key(rule.name), values={**value}), now)


def begin_again(store: StorePort) -> None:
    """Let the next sweep go along the whole log for rules about content and versions: what a hold or a more specific rule kept may be due now."""
    with store.snapshot() as snapshot:
        rules = rules_in(snapshot)
    for rule in rules:
        if rule.erases != "all":
            store.log.drop_bookmark(bookmark_of(rule))


def bookmark_of(rule: RetentionRule) -> str:
    """Return the key of the bookmark of a rule: another one as soon as the rule says something else."""
    return bookmark_key(bookmark_name(rule), 0, 0)


def bookmark_name(rule: RetentionRule) -> str:
    return f"chatledger:retention:{sha256(msgspec.json.encode(rule)).hexdigest()[:32]}"


def rules_in(snapshot: LedgerSnapshot) -> list[RetentionRule]:
    """Return the rules of a ledger, by name; they hold whoever looks."""
    txn, tables = snapshot.txn, snapshot.tables
    listed = living_items(txn, tables, LEDGER_OWNER, (RULES,))
    rules = [own_value(snapshot.stream(ITEMS, record.key), RetentionRule) for record in listed]
    return sorted((rule for rule in rules if rule is not None), key=lambda rule: rule.name)


def over_by_rules(
    snapshot: LedgerSnapshot,
    until: int,
    rules: Sequence[RetentionRule],
    places: dict[str, Place],
    *,
    of_chats: bool,
) -> Iterator[Due]:
    """
    Yield what rules keep no longer at a moment, in ms: of each rule its list, the oldest first, from `places` on, which it moves.

    Costs what is over, and a look at what is as old and stays: held, or kept longer by a rule that is more specific.
    """
    for rule in rules:
        bound = rule.over_before(until)
        is_others = None not in {snapshot.user_id, rule.user_id} and snapshot.user_id != rule.user_id
        if bound is None or is_others or rule.erases != "all" or (rule.kind == CHATS.name) != of_chats:
            continue
        if rule.kind == CHATS.name:
            for chat in _oldest_chats(snapshot, rule, bound, places):
                if chat.hold is None and deciding(rules, "chat", chat.user_id, chat.metadata) == rule:
                    yield CHATS.name, chat.id
            continue
        for state, record in _oldest_values(snapshot, rule, bound, places):
            if not record.holds and deciding(rules, rule.kind, state.owner) == rule:
                yield rule.kind, record.key


def _oldest_chats(
    snapshot: LedgerSnapshot, rule: RetentionRule, bound: int, places: dict[str, Place]
) -> Iterator[Chat]:
    chats = ChatList(
        user_id=snapshot.user_id if rule.user_id is None else rule.user_id,
        entries=tuple((rule.metadata or {}).items()),
        is_by_creation=rule.since == "created",
        is_ascending=True,
    )
    size = 1  # mostly none is over, and a page of others were read for nothing
    while True:
        after = places.get(rule.name)
        assert not isinstance(after, bytes), "a place among chats"
        page = snapshot.list_chats(chats, limit=size, after=after)
        for chat in page:
            if chats.time_of(chat) > bound:
                return
            places[rule.name] = ChatCursor(chats.time_of(chat), chat.id)
            yield chat
        if len(page) < size:
            return
        size = min(2 * size, _PAGE)


def _oldest_values(
    snapshot: LedgerSnapshot, rule: RetentionRule, bound: int, places: dict[str, Place]
) -> Iterator[tuple[IndexedVersioned, VersionedRecord]]:
    kind = KIND_OF_FAMILY[rule.kind]
    after = places.get(rule.name)
    assert after is None or isinstance(after, bytes), "a place among values"
    listed = listed_values(
        snapshot.txn,
        snapshot.tables,
        family_of_stream(kind.prefix),
        user_id=snapshot.user_id if rule.user_id is None else rule.user_id,
        is_by_change=True,
        after=after,
    )
    for place, record in listed:
        if record.updated_at > bound:
            return
        places[rule.name] = place
        state = kind.read(snapshot.tables, snapshot.txn, kind.stream_of(record.key))
        if not is_assistant(state.family, record.key) and snapshot.user_id in {None, state.owner}:
            yield state, record


def is_assistant(family: Family, key: str) -> bool:
    """Whether a value keeps an assistant of the server: no clean-up removes it for its age."""
    return family is STATE and parse_state_id(key).conversation_id.startswith(ASSISTANT_STATES)


def is_chat_over(rules: Sequence[RetentionRule], chat: Chat, until: int) -> bool:
    """Whether a rule keeps a chat no longer at a moment, in ms."""
    return is_over(
        rules,
        "chat",
        chat.user_id,
        chat.metadata,
        created_at=chat.created_at,
        updated_at=chat.updated_at,
        until=until,
    )


def is_value_over(rules: Sequence[RetentionRule], state: IndexedVersioned, record: VersionedRecord, until: int) -> bool:
    """Whether a rule keeps a thread, a state or an item no longer at a moment, in ms; of what is held none does."""
    return not record.holds and is_over(
        rules,
        state.family.name,
        state.owner,
        None,
        created_at=record.created_at,
        updated_at=record.updated_at,
        until=until,
    )
