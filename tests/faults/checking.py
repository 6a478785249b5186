"""
The judge: whether a log holds all that was acknowledged, once, and nothing else.

A process of its own. What it proves comes from the events on the log, folded here in plain code, and from the journals; only
then are the answers of the index compared with that.
"""

import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from tests.faults.calls import BARE, WRITTEN, Call, content
from tests.faults.journal import Operation, lines, operations
from tests.support.ledger_world import check_chat

import chatledger
from chatledger import Ledger, Recorded
from chatledger.domain.chat.events import BranchCreated, ChatCreated, MessagesAppended, StreamDeleted
from chatledger.domain.versioned.keys import thread_stream
from chatledger.projections.log.kinds import THREADS, kind_of

MOST_FINDINGS: Final = 20


class Verdict(msgspec.Struct):
    """The findings; sound when there are none."""

    findings: list[str] = []
    events: int = 0
    operations: int = 0
    acknowledged: int = 0
    refused: int = 0
    settled: int = 0
    """Operations of unknown outcome that had happened."""
    open: int = 0
    """Those that had not."""
    deletions: int = 0
    failures: list[str] = []
    deaths: dict[str, int] = {}


class Log:
    """The events of a log, and what must hold for them by themselves."""

    def __init__(self, events: list[Recorded], *, is_dense: bool) -> None:
        self.events, self._is_dense = events, is_dense
        self.findings: list[str] = []
        self.streams: dict[str, list[Recorded]] = defaultdict(list)
        self.commands: dict[tuple[str, str], list[Recorded]] = defaultdict(list)
        self.messages: dict[str, Recorded] = {}
        self.copies: dict[str, str] = {}
        """Messages under another id than that in their text, and the latter."""
        for recorded in events:
            self.streams[recorded.chat_id].append(recorded)
            if recorded.event.command_id is not None:
                self.commands[recorded.chat_id, recorded.event.command_id].append(recorded)

    def check(self) -> None:
        """Everything that needs no journal."""
        erased = sum(self._check_stream(stream) for stream in self.streams.values())
        self._check_order(erased)
        self._check_commits()
        self._check_messages()

    def tombstones(self, stream: str) -> list[Recorded]:
        """The deletions of a stream."""
        return [recorded for recorded in self.streams.get(stream, ()) if isinstance(recorded.body, StreamDeleted)]

    def _check_stream(self, events: list[Recorded]) -> int:
        """Versions without holes, and a whole chain of hashes; returns how many events its tombstones stand for."""
        version, digest, erased = 0, b"", 0
        for recorded in events:
            where = f"{recorded.chat_id} at {recorded.position}"
            if isinstance(recorded.body, StreamDeleted):
                erased += recorded.version - version - 1
                if recorded.version <= version:
                    self.findings.append(f"{where}: version {recorded.version} follows {version}")
            elif recorded.version != version + 1 or recorded.event.previous_hash != digest:
                self.findings.append(f"{where}: version {recorded.version} does not follow {version}")
            version, digest = recorded.version, recorded.hash
        return erased

    def _check_order(self, erased: int) -> None:
        positions = [recorded.position for recorded in self.events]
        if positions != sorted(set(positions)):
            self.findings.append("positions do not ascend")
        if len({recorded.event_id for recorded in self.events}) != len(positions):
            self.findings.append("an event id is there twice")
        if self._is_dense and positions and positions[-1] - len(positions) != erased:
            missing = positions[-1] - len(positions)
            self.findings.append(f"{missing} positions hold no event, and tombstones account for {erased}")

    def _check_commits(self) -> None:
        due: Recorded | None = None
        for recorded in self.events:
            if due is not None and (recorded.chat_id, recorded.position, recorded.event.rest) != (
                due.chat_id,
                due.position + 1,
                due.event.rest - 1,
            ):
                self.findings.append(f"the commit at {due.position} is not whole")
            due = recorded if recorded.event.rest else None
        if due is not None:
            self.findings.append(f"the commit at {due.position} is not whole")

    def _check_messages(self) -> None:
        for recorded in self.events:
            body = recorded.body
            for message in body.messages if isinstance(body, MessagesAppended) else ():
                if message.id in self.messages:
                    self.findings.append(f"message {message.id} is there twice")
                named = _named(message.data)
                if not str(message.data).startswith(content(named)) and not _has_text(message.data, named):
                    self.findings.append(f"message {message.id} has another content")
                if named != message.id:
                    self.copies[message.id] = named
                self.messages[message.id] = recorded


def _named(data: Any) -> str:
    """The id with which the text of a message begins."""
    if isinstance(data, dict):
        parts: list[dict[str, str]] = cast("dict[str, Any]", data)["parts"]
        return parts[0]["text"].partition(" ")[0]
    return str(data).partition(" ")[0]


def _has_text(data: object, message_id: str) -> bool:
    return json.dumps(content(message_id)) in json.dumps(data)


class Judge:
    """Compares a log with journals."""

    def __init__(self, log: Log, done: Iterable[Operation], verdict: Verdict) -> None:
        self._log, self._verdict = log, verdict
        self._done = list(done)
        self._of_command = {one.command_id: one for one in self._done}

    def judge(self) -> None:
        """Every operation that was acknowledged is there once; one that was refused is not; others once or not at all."""
        verdict, found = self._verdict, self._log.findings
        for one in self._done:
            verdict.operations += 1
            events = self._events(one)
            if (fault := _fault_of_commit(events)) is not None and not self._is_forgotten(one, events):
                found.append(f"{one.command_id} {one.call}: {fault}")
            if one.acknowledged is not None:
                verdict.acknowledged += 1
                self._judge_acknowledged(one, events)
            elif one.is_open:
                verdict.settled += bool(events)
                verdict.open += not events
            else:
                verdict.refused += 1
                if events and one.call["kind"] not in BARE:
                    found.append(f"{one.command_id} was refused, and is at {events[0].position}")
        self._judge_strangers()
        self._judge_order()

    def _events(self, one: Operation) -> list[Recorded]:
        if one.call["kind"] not in BARE:
            return self._log.commands.get((_stream_of(one.call), one.command_id), [])
        found = {
            self._log.messages[one_id].position: self._log.messages[one_id]
            for one_id in one.call["ids"]
            if one_id in self._log.messages
        }
        return [found[position] for position in sorted(found)]

    def _judge_acknowledged(self, one: Operation, events: list[Recorded]) -> None:
        call = one.call
        is_written = call["kind"] in WRITTEN and one.answer is not False
        if is_written and not events and not self._is_excused(one):
            self._log.findings.append(f"LOST: {one.command_id} {_short(call)} was acknowledged with {one.answer!r:.60}")
        if events:
            missing = [one_id for one_id in call.get("ids", ()) if one_id not in self._log.messages]
            if missing:
                self._log.findings.append(f"LOST: the messages {missing} of {one.command_id}")

    def _is_forgotten(self, one: Operation, events: list[Recorded]) -> bool:
        """Whether a deletion was repeated after another one: a chat's last tombstone is all that is left of its commands."""
        positions = [recorded.position for recorded in self._log.tombstones(_stream_of(one.call))]
        ours = [positions.index(recorded.position) for recorded in events if recorded.position in positions]
        return one.call["kind"] == "delete" and all(b - a > 1 for a, b in itertools.pairwise(ours))

    def _is_excused(self, one: Operation) -> bool:
        """Whether a deletion that was not over before the operation began may have erased it."""
        for tombstone in self._log.tombstones(_stream_of(one.call)):
            deletion = self._of_command.get(tombstone.event.command_id or "")
            is_over = deletion is not None and deletion.acknowledged is not None and deletion.acknowledged < one.began
            if deletion is not one and not is_over:
                return True
        return False

    def _judge_strangers(self) -> None:
        """Nothing is on the log that nobody wrote."""
        for (stream, command_id), events in self._log.commands.items():
            # An engine gives its saves ids of its own, also to a chat it makes anew after a deletion; their messages are known.
            is_save = all(
                isinstance(recorded.body, ChatCreated | MessagesAppended | BranchCreated) for recorded in events
            )
            if command_id not in self._of_command and not is_save:
                self._log.findings.append(f"nobody noted the command {command_id} on {stream}")
        said = {one_id for one in self._done for one_id in one.call.get("ids", ())}
        # A save that is repeated by another engine, while another branch is active, is a save to that branch: the message
        # whose id is taken gets another one there.
        again = {
            one_id for one in self._done if one.call["kind"] in BARE and one.attempts > 1 for one_id in one.call["ids"]
        }
        said |= {copy for copy, original in self._log.copies.items() if original in again}
        for message_id in self._log.messages.keys() - said:
            self._log.findings.append(f"nobody noted message {message_id}")

    def _judge_order(self) -> None:
        """Check that what was acknowledged before something else began stands before it."""
        latest = 0.0
        for recorded in self._log.events:
            one = self._of_command.get(recorded.event.command_id or "")
            if one is None or recorded.event.rest:
                continue
            if one.acknowledged is not None and one.acknowledged < latest:
                self._log.findings.append(f"{one.command_id} at {recorded.position} stands after what came later")
            latest = max(latest, one.began)


def _stream_of(call: Call) -> str:
    return thread_stream(call["thread"]) if "thread" in call else str(call["chat"])


def _short(call: Call) -> str:
    return f"{call['kind']} on {_stream_of(call)}"


def _fault_of_commit(events: list[Recorded]) -> str | None:
    if not events:
        return None
    first = events[0].position
    if [recorded.position for recorded in events] != list(range(first, first + len(events))):
        return f"DOUBLED: it is at {[recorded.position for recorded in events]}"
    if [recorded.event.rest for recorded in events] != list(range(len(events)))[::-1]:
        return f"it is not one commit: {[recorded.event.rest for recorded in events]}"
    return None


def check(ledger: Ledger, journals: Iterable[Path], *, is_dense: bool) -> Verdict:
    """Judge an open ledger."""
    verdict = Verdict()
    journals = list(journals)
    ledger.sync()
    log = Log(list(ledger.history()), is_dense=is_dense)
    log.check()
    verdict.events = len(log.events)
    verdict.deletions = sum(isinstance(recorded.body, StreamDeleted) for recorded in log.events)
    Judge(log, [one for journal in journals for one in operations(journal)], verdict).judge()
    _check_index(ledger, log)
    _take_notes(journals, verdict)
    verdict.findings = log.findings[:MOST_FINDINGS]
    return verdict


def _check_index(ledger: Ledger, log: Log) -> None:
    """The index equals the fold of the log: as `verify` says, and by asking it what it should know."""
    try:
        ledger.verify()
        for stream in log.streams:
            if kind_of(stream) is not THREADS:
                check_chat(ledger, stream)
        living = {chat.id for chat in ledger.list_chats()}
        dead = {s for s, events in log.streams.items() if isinstance(events[-1].body, StreamDeleted)}
        wanted = {stream for stream in log.streams if kind_of(stream) is not THREADS} - dead
        assert living == wanted, f"listed {living ^ wanted}"
    except (AssertionError, chatledger.ChatledgerError) as error:
        log.findings.append(f"the index is not the fold of the log: {error!r:.500}")


def _take_notes(journals: list[Path], verdict: Verdict) -> None:
    deaths: Counter[str] = Counter()
    for journal in journals:
        for line in lines(journal):
            if line["kind"] == "failure":
                verdict.failures.append(f"{journal.stem}: {line['error']}")
            elif line["kind"] == "death":
                deaths[f"{line['point']} ({'server' if line['victim'] == 'server' else 'process'})"] += 1
    verdict.deaths = dict(deaths)


def main(location: str, folder: str, options: dict[str, Any]) -> None:
    """Open the ledger and print the verdict."""
    is_dense = bool(options.pop("is_dense", True))
    with chatledger.open(location, **options) as ledger:
        verdict = check(ledger, sorted(Path(folder).glob("*.journal")), is_dense=is_dense)
    print(msgspec.json.encode(verdict).decode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
