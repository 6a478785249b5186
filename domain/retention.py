"""Retention rules: how long what is kept, which rule decides on a thing, and when its time is over."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, get_args

from .errors import InvalidValueError
from .holds import LEDGER_OWNER
from .limits import check_choice, check_count, check_id, check_ids, check_metadata, same_json
from .versioned.keys import item_id
from .wire import Value

RetentionKind = Literal["chat", "thread", "state", "item"]
KINDS: Final[tuple[RetentionKind, ...]] = get_args(RetentionKind)
Erases = Literal["all", "content", "versions"]
RULES: Final = "retention"
"""The namespace of the items that are rules."""
_DAY_MS: Final = 86_400_000
_MOST_DAYS: Final = 100 * 366


class RetentionRule(Value, frozen=True, kw_only=True):
    """
    A retention rule: how long chats, threads, states or items are kept.

    Of the rules that fit a thing the most specific decides. A rule with roles comes first, then the rule with more entries of metadata,
    then a rule with an owner, then the shortest. A rule without roles, metadata and owner is the ledger's default for its kind.

    Args:
        name: The name of the rule.
        kind: What it is about.
        keep_days: How long it is kept, in days, which may be fractions; None for ever.
        since: From when the days count: the last message or other change, or, of chats only, the creation.
        user_id: Only what this user owns.
        metadata: Only chats whose metadata have all of these entries.
        erases: What goes then: the whole thing; of chats the `content` of messages that came to the ledger that long ago; of threads, states
            and items what earlier `versions` had, that long after newer ones came. A rule of one sort decides nothing about another.
        roles: Of a rule about content, only messages with one of these names, such as `tool`; of all when empty.
        keep_last: Of a rule about versions, how many stay whatever their age: the newest ones, of a thread those of each namespace.
    """

    name: str
    kind: RetentionKind = "chat"
    keep_days: int | float | None = None
    since: Literal["updated", "created"] = "updated"
    user_id: str | None = None
    metadata: dict[str, str | bool | int | float] | None = None
    erases: Erases = "all"
    roles: tuple[str, ...] = ()
    keep_last: int = 1

    def fits(self, user_id: str | None, metadata: dict[str, Any] | None) -> bool:
        """Whether it is about a thing of this owner, with these metadata."""
        entries = (self.metadata or {}).items()
        return self.user_id in {None, user_id} and all(
            key in (metadata or {}) and same_json((metadata or {})[key], value) for key, value in entries
        )

    def over_before(self, moment: int) -> int | None:
        """The time, in ms, up to which things must have changed, or begun, for their time to be over at a moment; None for never."""
        return None if self.keep_days is None else moment - round(self.keep_days * _DAY_MS)


def check_rule(rule: RetentionRule) -> RetentionRule:
    """
    Check a rule as it was given.

    Raises:
        InvalidValueError: A value breaks a rule, or no list of the index finds what it is about.
    """
    check_id(rule.name, "the name of a rule")
    check_choice(rule.kind, KINDS, "kind")
    check_choice(rule.since, ("updated", "created"), "since")
    days: Any = rule.keep_days
    if days is not None and (isinstance(days, bool) or not isinstance(days, int | float) or not 0 < days <= _MOST_DAYS):
        msg = f"keep_days must be a number of days above 0 and up to {_MOST_DAYS:,}, or None for ever, not {days!r}"
        raise InvalidValueError(msg)
    if rule.user_id is not None:
        check_id(rule.user_id, "user_id", empty=True)
    check_metadata(rule.metadata)
    if any(not isinstance(value, str | bool | int | float) for value in (rule.metadata or {}).values()):
        msg = "metadata of a rule are texts, numbers, true or false: by others chats are not listed"
        raise InvalidValueError(msg)
    check_choice(rule.erases, get_args(Erases), "erases")
    check_ids(rule.roles, "roles")
    if rule.erases == "content" and (rule.kind, rule.since) != ("chat", "updated"):
        msg = "a rule about content is about the messages of chats, each from when it came to the ledger; leave out kind and since"
        raise InvalidValueError(msg)
    if rule.erases == "versions" and rule.kind == "chat":
        msg = "a chat has no versions to erase; give kind='thread', 'state' or 'item', or erases='content' for messages"
        raise InvalidValueError(msg)
    if not check_count(rule.keep_last, "keep_last") or (rule.keep_last > 1 and rule.erases != "versions"):
        msg = f"keep_last={rule.keep_last!r}: the newest version always stays, and only rules with erases='versions' keep more"
        raise InvalidValueError(msg)
    if rule.roles and rule.erases != "content":
        msg = "roles are those of messages: give erases='content' with them"
        raise InvalidValueError(msg)
    if rule.kind != "chat" and (rule.metadata or rule.since == "created"):
        msg = f"a rule for each {rule.kind} has neither metadata nor since='created', which only chats have"
        raise InvalidValueError(msg)
    if rule.metadata and rule.since == "created":
        msg = "the index has no list by creation of chats with some metadata; leave out metadata, or count since='updated'"
        raise InvalidValueError(msg)
    return rule


def rule_key(name: str) -> str:
    """Return the id of the item that a rule is."""
    return item_id(LEDGER_OWNER, (RULES,), check_id(name, "the name of a rule"))


def deciding(
    rules: Iterable[RetentionRule], kind: RetentionKind, user_id: str | None, metadata: dict[str, Any] | None = None
) -> RetentionRule | None:
    """Return the rule that decides on a thing as a whole; None where there is none, as on what is the ledger's own."""
    if user_id == LEDGER_OWNER:
        return None  # a default would delete the holds and the rules themselves
    fitting = [rule for rule in rules if rule.kind == kind and rule.erases == "all" and rule.fits(user_id, metadata)]
    return max(fitting, key=_rank, default=None)


def deciding_on_content(
    rules: Iterable[RetentionRule], role: str, user_id: str | None, metadata: dict[str, Any] | None
) -> RetentionRule | None:
    """Return the rule that decides on the content of messages of a role in a chat; None where there is none."""
    fitting = [rule for rule in rules if rule.erases == "content" and (not rule.roles or role in rule.roles)]
    return max((rule for rule in fitting if rule.fits(user_id, metadata)), key=_rank, default=None)


def deciding_on_versions(
    rules: Iterable[RetentionRule], kind: RetentionKind, user_id: str | None
) -> RetentionRule | None:
    """Return the rule that decides on the versions of a thread, a state or an item; None where there is none, as on the ledger's own."""
    if user_id == LEDGER_OWNER:
        return None
    fitting = [rule for rule in rules if rule.erases == "versions" and rule.kind == kind and rule.fits(user_id, None)]
    return max(fitting, key=_rank, default=None)


def _rank(rule: RetentionRule) -> tuple[bool, int, bool, float, str]:
    # Of rules as specific as each other the shorter wins: who set both meant the stricter. The name makes the order one on all machines.
    shortness = -float("inf") if rule.keep_days is None else -rule.keep_days
    return bool(rule.roles), len(rule.metadata or {}), rule.user_id is not None, shortness, rule.name


def is_over(
    rules: Sequence[RetentionRule],
    kind: RetentionKind,
    user_id: str | None,
    metadata: dict[str, Any] | None,
    *,
    created_at: int,
    updated_at: int,
    until: int,
) -> bool:
    """Whether the time of a thing is over at a moment, in ms, by the rule that decides on it."""
    rule = deciding(rules, kind, user_id, metadata)
    bound = None if rule is None else rule.over_before(until)
    if rule is None or bound is None:
        return False
    return (created_at if rule.since == "created" else updated_at) <= bound
