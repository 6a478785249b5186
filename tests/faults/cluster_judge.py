"""
The judge of a cluster under faults: journals and feeds of the clients against the log, and every index against a new one.

It shares nothing with what it judges but the public API.
"""

import itertools
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.faults.cluster_client import COUNTERS, REGISTERS
from tests.faults.cluster_network import CLIENTS
from tests.faults.journal import lines

import chatledger
from chatledger import ChatledgerError, Ledger, admin

_SHOWN: Final = 5
"""So many findings of a kind are shown."""


class ClusterVerdict(msgspec.Struct):
    """
    What a run was, and what was found.

    Args:
        findings: Sound when there are none.
        counts: Events, calls by outcome, and what was compared.
        errors: How often which error was raised.
    """

    findings: list[str] = []
    counts: dict[str, int] = {}
    errors: dict[str, int] = {}


class Called(msgspec.Struct):
    """A call of a client, with its times on the clock of the machine."""

    op: str
    chat: str
    ids: list[str]
    began: float
    outcome: str = "open"
    ended: float = float("inf")
    answer: Any = None

    @property
    def may_have_happened(self) -> bool:
        """Whether nobody said that it did not."""
        return self.outcome != "refused"


class ClusterJudge:
    """Compares the journals in a folder with the ledger at a place."""

    def __init__(self, place: str, folder: Path) -> None:
        self._place, self._folder = place, folder
        self._findings: dict[str, list[str]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._calls: list[Called] = []
        self._order: dict[str, list[str]] = defaultdict(list)
        self._position: dict[str, int] = {}
        self._parent: dict[str, str | None] = {}

    def judge(self) -> ClusterVerdict:
        """Compare everything."""
        self._read_journals()
        with chatledger.open(self._place, timeout_s=60, index=self._folder / "index-judge") as fresh:
            fresh.sync()
            events = list(fresh.history())
            self.counts["events"] = len(events)
            self._take(events)
            self._judge_deletions(events)
            for call in self._calls:
                self._judge_call(call)
            for chat, calls in itertools.groupby(
                sorted(self._calls, key=lambda call: call.chat), lambda call: call.chat
            ):
                self._judge_chat(chat, sorted(calls, key=lambda call: call.began))
            for chat in COUNTERS:
                self._judge_counter(fresh, chat)
            self._judge_feeds({event.position: f"{event.hash.hex()[:16]} {event.chat_id}" for event in events})
            self._compare_indexes(fresh)
        self._compare_replicas()
        findings = [
            f"{kind}: {len(details)}, such as {details[:_SHOWN]}" for kind, details in self._findings.items() if details
        ]
        return ClusterVerdict(findings, dict(self.counts), dict(self.errors))

    def _read_journals(self) -> None:
        for name in CLIENTS:
            calls: dict[str, Called] = {}
            for line in lines(self._folder / f"{name}.journal"):
                kind, number = line["kind"], str(line.get("number", ""))
                if kind == "call":
                    calls[number] = Called(line["op"], line["chat"], line["ids"], line["at"])
                elif number:
                    call = calls[number]
                    call.outcome, call.ended, call.answer = kind, line["at"], line.get("answer")
                elif kind == "feed failed":
                    self._findings["a feed failed"].append(line["error"])
                if kind == "alien":
                    self._findings["an error that is not chatledger's"].append(line["error"])
                if "error" in line:
                    self.errors[f"{kind}: {line['error'].partition('(')[0]}"] += 1
            self._calls += calls.values()
        for call in self._calls:
            self.counts[f"calls {call.outcome}"] += 1
            self.counts[f"{call.op}: calls"] += 1

    def _take(self, events: list[Any]) -> None:
        for event in events:
            if event.type != "message_appended":
                continue
            for message in event.to_dict()["payload"]["messages"]:
                if message["id"] in self._position:
                    self._findings["DOUBLED"].append(message["id"])
                self._position[message["id"]] = event.position
                self._parent[message["id"]] = message.get("parent_id")
                self._order[event.chat_id].append(message["id"])

    def _judge_deletions(self, events: list[Any]) -> None:
        """Check that nothing of a chat stands before its tombstone, but an earlier tombstone."""
        last = {event.chat_id: event.position for event in events if event.type == "chat_deleted"}
        self.counts["deletions"] = sum(event.type == "chat_deleted" for event in events)
        for event in events:
            if event.type != "chat_deleted" and event.position < last.get(event.chat_id, 0):
                self._findings["DELETED, and in the history"].append(f"{event.position} of {event.chat_id}")

    def _judge_call(self, call: Called) -> None:
        there = [message_id in self._position for message_id in call.ids]
        if any(there) and not all(there):
            self._findings["HALF"].append(f"{call.ids}")
        if call.outcome == "refused" and any(there):
            self._findings["REFUSED, and there"].append(f"{call.ids}")
        if call.outcome == "acknowledged" and call.op in {"register", "append"} and not all(there):
            self._findings["LOST"].append(f"{call.ids}")

    def _judge_chat(self, chat: str, calls: list[Called]) -> None:
        if chat.startswith("own"):
            # One thread at a time writes it: what was acknowledged behind the last deletion is there.
            due: list[str] = []
            for call in calls:
                if call.op == "delete" and call.may_have_happened:
                    due = []
                elif call.op == "own" and call.outcome == "acknowledged":
                    due += call.ids
            self._findings["LOST"] += [message_id for message_id in due if message_id not in self._position]
        self._judge_order(calls)
        if chat in REGISTERS:
            self._judge_register(chat, calls)

    def _judge_order(self, calls: list[Called]) -> None:
        """Check that what was acknowledged before something else began stands before it."""
        written = [call for call in calls if call.ids and call.ids[0] in self._position]
        done = sorted((call for call in written if call.outcome == "acknowledged"), key=lambda call: call.ended)
        number = latest = 0
        for call in written:
            while number < len(done) and done[number].ended < call.began:
                latest = max(latest, self._position[done[number].ids[0]])
                number += 1
            if self._position[call.ids[0]] < latest:
                self._findings["OUT OF ORDER"].append(f"{call.ids} at {self._position[call.ids[0]]}, before {latest}")

    def _judge_register(self, chat: str, calls: list[Called]) -> None:
        """Check that each write knew the one before it, and that each read knew all that was acknowledged before it began."""
        ids = self._order[chat]
        self.counts["register writes"] += len(ids)
        for before, message_id in itertools.pairwise([None, *ids]):
            if self._parent[str(message_id)] != before:
                self._findings["TWO WINNERS"].append(
                    f"{message_id} in {chat} follows {self._parent[str(message_id)]}, not {before}"
                )
        place = {message_id: number for number, message_id in enumerate(ids, 1)}
        done = sorted((c for c in calls if c.op == "register" and c.outcome == "acknowledged"), key=lambda c: c.ended)
        for read in calls:
            if read.op != "read" or read.outcome != "acknowledged":
                continue
            self.counts["reads"] += 1
            missed = [c for c in done if c.ended < read.began and place.get(c.ids[0], 0) > read.answer]
            if missed:
                self._findings["STALE"].append(
                    f"{read.answer} of {chat} read {read.began - missed[0].ended:.1f} s later"
                )

    def _judge_counter(self, fresh: Ledger, chat: str) -> None:
        counted = [call for call in self._calls if call.op == "count" and call.chat == chat]
        sure = sum(call.outcome == "acknowledged" for call in counted)
        most = sum(call.may_have_happened for call in counted)
        record = fresh.get_chat(chat)
        count = 0 if record is None else int((record.metadata or {}).get("count", 0))
        self.counts["counter updates"] += sure
        if not sure <= count <= most:
            self._findings["COUNTER"].append(
                f"{chat} is {count}, with {sure} acknowledged and {most - sure} of unknown outcome"
            )

    def _judge_feeds(self, events: dict[int, str]) -> None:
        for path in sorted(self._folder.glob("*.feed")):
            rows = [line.split(" ", 1) for line in path.read_text().splitlines() if line.count(" ") == 2]
            positions = [int(position) for position, _ in rows]
            self.counts["events given by feeds"] += len(rows)
            is_named = path.name.endswith(".named.feed")
            if not is_named and positions != sorted(set(positions)):
                self._findings["FEED back or double"].append(path.name)
            if is_named:
                self.counts["repeated by named feeds"] += len(positions) - len(set(positions))
            by_position = dict(zip(positions, (text for _, text in rows), strict=True))
            holes = [
                position
                for position in events
                if position not in by_position and position <= max(by_position, default=0)
            ]
            self._findings["FEED holes"] += [f"{path.name}: {holes[:_SHOWN]}"] if holes else []
            # What is not on the log any more was deleted later.
            others = [position for position, text in by_position.items() if events.get(position, text) != text]
            self._findings["FEED other events"] += [f"{path.name}: {others[:_SHOWN]}"] if others else []

    def _compare_indexes(self, fresh: Ledger) -> None:
        fresh.verify()
        wanted, last = _everything(fresh), fresh.last_position()
        for name in ("first", *(f"index-{client}" for client in CLIENTS)):
            try:
                with chatledger.open(self._place, timeout_s=60, index=self._folder / name) as other:
                    other.sync(last)
                    if _everything(other) != wanted:
                        self._findings["INDEX differs"].append(name)
                    other.verify()
            except ChatledgerError as error:
                self._findings["INDEX"].append(f"{name}: {error!r:.300}")
            self.counts["indexes compared"] += 1

    def _compare_replicas(self) -> None:
        try:
            self._findings["REPLICAS differ"] += [
                str(damage) for damage in admin.compare_replicas(self._place, timeout_s=60)
            ]
        except ChatledgerError as error:
            self._findings["REPLICAS cannot be compared"].append(f"{error!r:.300}")


def _everything(ledger: Ledger) -> dict[str, Any]:
    return {
        chat.id: (
            chat,
            [(message.id, message.text[:50]) for message in ledger.get_messages(chat.id, limit=None)],
            [(branch.name, branch.head_message_id, branch.is_active) for branch in ledger.list_branches(chat.id)],
            [(checkpoint.name, checkpoint.message_id) for checkpoint in ledger.list_checkpoints(chat.id)],
        )
        for chat in ledger.list_chats()
    }


def main(place: str, folder: str) -> None:
    """Print the verdict."""
    print(msgspec.json.encode(ClusterJudge(place, Path(folder)).judge()).decode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
