"""Custom projections to test with, and their rows."""

from collections.abc import Callable, Sequence

from tests.support.naive_index import reader

from chatledger.domain.chat.events import ChatCreated, ChatDeleted, MessagesAppended, Recorded
from chatledger.projections.custom.catching_up import CatchingUp
from chatledger.projections.custom.records import BUILDING, SERVING, Projection, ProjectionRecord, load_record
from chatledger.projections.custom.rows import ProjectionRows
from chatledger.projections.index import Index
from chatledger.projections.lmdb.keys import number


class Tally(Projection):
    """Numbers of chats and messages that each owner has; with the messages of each chat under it."""

    name = "tally"

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        chat, body = rows.of(recorded.chat_id), recorded.body
        owner = chat.get("owner")
        if isinstance(body, ChatCreated) and body.user_id is not None:
            chat.put("owner", body.user_id)
            rows.add(("chats", body.user_id))
        elif isinstance(body, MessagesAppended):
            chat.put(("ids", recorded.version), [message.id for message in body.messages])
            chat.add("messages", len(body.messages))
            rows.add(("messages", owner), len(body.messages))
        elif isinstance(body, ChatDeleted) and owner is not None:
            rows.add(("chats", owner), -1)
            rows.add(("messages", owner), -chat.get("messages", 0))


class Failing(Tally):
    """Fails at an event, after it wrote; its mistake can be corrected."""

    def __init__(self, at: int, version: int = 1) -> None:
        super().__init__(version)
        self.at: int | None = at
        self.failure: Callable[[], Exception] = lambda: ValueError("secret content")

    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        super().apply(rows, recorded)
        if recorded.position == self.at:
            rows.put("half", 1)
            rows.of(recorded.chat_id).delete("messages")
            raise self.failure()


def record_of(index: Index, name: str = "tally", slot: bytes = SERVING) -> ProjectionRecord | None:
    """The note of the index about the rows that serve."""
    with index.snapshot() as snapshot:
        return load_record(snapshot.txn, snapshot.tables, slot, name)


def serving(index: Index, name: str = "tally") -> ProjectionRecord:
    """The same, of a projection that is there."""
    record = record_of(index, name)
    assert record is not None
    return record


def building(index: Index, name: str = "tally") -> ProjectionRecord | None:
    """The rows that are being built."""
    return record_of(index, name, BUILDING)


def custom_rows(index: Index, projection_no: int | None = None) -> list[tuple[bytes, bytes]]:
    """The rows of a projection as they are stored, without its number; of the one that serves, or of all there are."""
    with index.snapshot() as snapshot:
        found = [(bytes(key), bytes(value)) for key, value in snapshot.txn.cursor(snapshot.tables.custom)]
    if projection_no is None:
        return [(key, value) for key, value in found if not key.startswith(number(0))]
    prefix = number(projection_no)
    return [(key[len(prefix) :], value) for key, value in found if key.startswith(prefix)]


def tallied(index: Index) -> list[tuple[bytes, bytes]]:
    """The rows of the tally that serves."""
    return custom_rows(index, serving(index).number)


def catch_up(index: Index, events: Sequence[Recorded], *, page: int = 1000, name: str = "tally") -> ProjectionRecord:
    """Bring an attached projection to the position of the index, building it where it must be."""
    entry = index.custom.get(name)
    assert entry is not None
    record = CatchingUp(index, entry, reader(events, page)).run(can_build=True)
    assert record is not None
    return record


def attach(index: Index, *projections: Projection) -> None:
    """Keep projections up to date with an index from now on."""
    for projection in projections:
        index.custom.add(projection)
