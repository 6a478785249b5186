"""Sweeping by rules about parts: messages and earlier versions that lose their content, and stay in their places."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from chatledger.domain.chat.events import Body, ContentRedacted, MessagesAppended, Recorded, StreamDeleted
from chatledger.domain.errors import (
    ChatNotFoundError,
    ConfigurationError,
    CorruptStateError,
    HeldError,
    MessageNotFoundError,
    PayloadTooLargeError,
    QuarantinedError,
)
from chatledger.domain.retention import RetentionRule, deciding_on_content, deciding_on_versions
from chatledger.domain.versioned.events import Skeleton, VersionsRemoved
from chatledger.domain.versioned.pruning import MetadataOf, plan_thinning
from chatledger.domain.versioned.record import is_expired
from chatledger.projections.log.kinds import CHATS, KIND_OF_FAMILY, StreamKind, kind_of
from chatledger.projections.versioned.reader import IndexedVersioned
from chatledger.projections.versioned.thinning import Host, decide_take_out, event_places, host_of

from ..log.bookmarks import Bookmark
from ..log.envelope import clock_ms
from .port import StorePort
from .redactions import redact_messages
from .retention import bookmark_name, bookmark_of, is_assistant
from .thread_trace import need_metadata

_AT_ONCE: Final = 500
"""So many messages of an event are redacted by one command: writers of the chat come in between."""
_MOST_VERSIONS: Final = 250
"""So many versions lose their content by one command, which costs a look at all that the value still has: writers come in between."""
_logger = logging.getLogger(__name__)


class _RuleWalk(msgspec.Struct):
    """How far a rule came along the log: at the beginning, up to which time it goes, in ms, and by now."""

    rule: RetentionRule
    bookmark: Bookmark
    bound: int
    end: int


class PartSweep:
    """
    Takes the content out of messages and versions that rules keep no longer.

    The log has them in the order in which they came, so each rule goes along it once: a bookmark says how far. A rule that is set
    anew, and a hold that is released, begin again.

    Args:
        store: The store of all users.
        rules: All rules of the ledger.
        until: The moment, in ms.
        limit: Ends it when about so many messages and versions were due.
        is_dry_run: Whether they are only counted.

    Attributes:
        messages, versions: How many were due; without a dry run, how many lost their content by this.
    """

    def __init__(
        self, store: StorePort, rules: Sequence[RetentionRule], until: int, *, limit: int | None, is_dry_run: bool
    ) -> None:
        self._store, self._until, self._limit, self._is_dry_run = store, until, limit, is_dry_run
        self._rules = [rule for rule in rules if rule.erases != "all"]
        self._thinned: set[tuple[str, str]] = set()
        """The rules and the streams whose versions were looked at: all that are due at once."""
        self.messages = self.versions = 0

    def run(self) -> None:
        """Go along the log, once for all rules, with each from where it stands to what it still keeps."""
        from ..log.port import LostRaceError

        walks = [
            _RuleWalk(rule, bookmark, bound, bookmark.position)
            for rule in self._rules
            if (bound := rule.over_before(self._until)) is not None
            for bookmark in [self._bookmark(rule)]
        ]
        going = walks
        while going:
            going = self._go_on(going)
        for walk in [] if self._is_dry_run else walks:
            if walk.end > walk.bookmark.position:
                moved = msgspec.structs.replace(walk.bookmark, position=walk.end, saved_at=clock_ms())
                with suppress(LostRaceError):  # another process sweeps, too
                    self._store.log.save_bookmark(moved)

    def _go_on(self, walks: list["_RuleWalk"]) -> list["_RuleWalk"]:
        """Go along the log from where the last of some rules stands to where none of them needs the next event; those that go on behind it."""
        going = walks
        for recorded in self._store.events(min(walk.end for walk in walks)):
            if all(walk.end >= recorded.position for walk in going):
                return going
            for walk in [walk for walk in going if walk.end < recorded.position]:
                if recorded.occurred_at > walk.bound:
                    going = [each for each in going if each is not walk]
                elif self._limit is not None and self.messages + self.versions >= self._limit:
                    return []
                else:
                    self._sweep_event(walk.rule, recorded)
                    walk.end = recorded.position
        return []

    def _sweep_event(self, rule: RetentionRule, recorded: Recorded) -> None:
        if rule.erases == "versions":
            self._sweep_versions(rule, recorded.event.originator_id, recorded)
        elif isinstance(recorded.body, MessagesAppended) and kind_of(recorded.event.originator_id) is CHATS:
            self._sweep_messages(rule, recorded.chat_id, recorded.body)

    def _sweep_messages(self, rule: RetentionRule, chat_id: str, body: MessagesAppended) -> None:
        message_ids = self._due_messages(rule, chat_id, body)
        if self._is_dry_run:
            self.messages += len(message_ids)
            return
        # A hold that is released begins again; who deletes the chat meanwhile takes its messages along.
        with suppress(HeldError, ChatNotFoundError, MessageNotFoundError):
            for at in range(0, len(message_ids), _AT_ONCE):
                redacted = redact_messages(
                    self._store,
                    message_ids[at : at + _AT_ONCE],
                    lambda _message: None,
                    reason=f"retention rule {rule.name!r}",
                    cause="retention",
                    copies=True,
                )
                self.messages += len(redacted.message_ids)

    def _due_messages(self, rule: RetentionRule, chat_id: str, body: MessagesAppended) -> list[str]:
        with self._store.snapshot() as snapshot:
            state = snapshot.chat(chat_id, even_quarantined=True)
            chat = state.chat
            if chat is None or chat.hold is not None:
                return []
            fitting = [
                message.id
                for message in body.messages
                if deciding_on_content(self._rules, message.name, chat.user_id, chat.metadata) == rule
            ]
            stored = [state.message(message_id) for message_id in fitting]
        return [message.id for message in stored if message is not None and message.redacted is None]

    def _sweep_versions(self, rule: RetentionRule, stream_id: str, recorded: Recorded) -> None:
        kind = KIND_OF_FAMILY.get(rule.kind)
        is_seen = (rule.name, stream_id) in self._thinned
        if kind is None or is_seen or kind_of(stream_id) is not kind or isinstance(recorded.body, StreamDeleted):
            return
        self._thinned.add((rule.name, stream_id))
        # One that is held, damaged, or read by its own program only, must not keep all behind it from being swept.
        try:
            with self._store.snapshot() as snapshot:
                state = kind.read(snapshot.tables, snapshot.txn, stream_id)
                due, key = self._due_versions(rule, state, clock_ms()), state.record.key if state.record else ""
            if self._is_dry_run or not due:
                self.versions += len(due)
                return
            self._thin(rule, kind, key)
        except HeldError:
            return  # a hold that is released begins again
        except (ConfigurationError, CorruptStateError, PayloadTooLargeError, QuarantinedError) as error:
            _logger.warning("rule %r passes over %s: %s", rule.name, kind.describe(stream_id), error)

    def _thin(self, rule: RetentionRule, kind: StreamKind[IndexedVersioned], key: str) -> None:
        """Take the content of a value's due versions out of the log, so many at once."""
        hosts: list[Host] = []
        count, is_behind = 0, False

        def read(after: int, up_to: int) -> None:
            events = self._store.events(after, up_to=up_to, stream_id=kind.stream_of(key))
            hosts.extend(host for host in map(host_of, events) if host is not None)

        with self._store.snapshot() as snapshot:
            state = kind.read(snapshot.tables, snapshot.txn, kind.stream_of(key))
            read_to, places = state.head_position, event_places(state)
        for first, last in places:
            read(first - 1, last)

        def decide(state: IndexedVersioned, now: int) -> list[Body]:
            nonlocal count, is_behind
            count, is_behind = 0, state.head_position > read_to
            if is_behind or state.record is None:
                return []
            due = self._due_versions(rule, state, now)[:_MOST_VERSIONS]
            of_value = [host for host in hosts if host.version >= state.record.first_version]
            bodies = decide_take_out(state, due, of_value) if due else []
            count = len(due) if any(isinstance(body, VersionsRemoved) for body in bodies) else 0
            return bodies

        while True:
            written = self._store.execute(kind, key, decide)
            self.versions += count
            redacted = {
                version
                for each in written
                if isinstance(each.body, ContentRedacted)
                for version, _ in each.body.targets
            }
            hosts = [host for host in hosts if host.version not in redacted]
            if not (written or is_behind):
                return
            if redacted:
                self._store.erase_deleted()
            with self._store.snapshot() as snapshot:
                position = kind.read(snapshot.tables, snapshot.txn, kind.stream_of(key)).head_position
            read(read_to, position)
            read_to = position

    def _due_versions(self, rule: RetentionRule, state: IndexedVersioned, now: int) -> list[Skeleton]:
        """The versions of a value that lose their content, and what has to be left of each for others."""
        record, bound = state.record, rule.over_before(self._until)
        if record is None or bound is None or record.holds or is_expired(record, now):
            return []
        if deciding_on_versions(self._rules, rule.kind, state.owner) != rule or is_assistant(state.family, record.key):
            return []
        metadata_of: MetadataOf = (lambda _version: {}) if state.family.is_numbered else need_metadata
        return plan_thinning(state, metadata_of, keep_last=rule.keep_last, until=bound)

    def _bookmark(self, rule: RetentionRule) -> Bookmark:
        name = bookmark_name(rule)
        stored = self._store.log.load_bookmark(bookmark_of(rule))
        identity = self._store.log.identity
        if stored is not None and stored.log_id == identity:
            return stored
        return Bookmark(name=name, index=0, count=0, position=0, holder="sweep", log_id=identity, saved_at=clock_ms())
