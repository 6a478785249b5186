"""Where a run takes place: sizes, a folder of its own, and stores filled for several subjects."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

import chatledger
from chatledger import AsyncLedger, Ledger, NewMessage
from chatledger.importers import ImportedBranch, ImportedChat, ImportedMessage
from chatledger.infra.ledger.port import store_of

from .measure import Row, take_turns
from .prose import Prose
from .rebuilding import Rebuild, rebuild_apart
from .sqlite_peer import SqlitePeer, Synchronous

Durability = Literal["always", "fast"]
SYNCHRONOUS: dict[Durability, Synchronous] = {"always": "FULL", "fast": "NORMAL"}
BATCH = 1000
_AT_ONCE: Final = 64
_MOST_COMMITS: Final = 200
"""Of a long chain that others read: each looks up the words it has, in a search index that grows."""

_STORE: Final = """
import sys
from pathlib import Path
from benchmarks import world

world.store(Path(sys.argv[1]), int(sys.argv[2]))
"""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of everything. A sample of a short operation repeats it until it takes `sample_s`."""

    name: str
    repeats: int
    sample_s: float
    chains: tuple[int, ...]
    appends_per_sample: int
    long: int
    branches: int
    branched: int
    chats: int
    rebuilt: int
    imported: int
    import_repeats: int
    transcripts: int
    searched: tuple[int, ...]
    searched_chats: int
    searched_per_chat: int
    small_chats: int
    feed_events: int
    checkpoints: int
    turns: int
    longest: int
    forked: int
    many_chats: int
    writers: int
    scaling: tuple[int, ...]


FULL = Sizes(
    name="full",
    repeats=11,
    sample_s=0.01,
    chains=(1_000, 10_000, 100_000),
    appends_per_sample=40,
    long=100_000,
    branches=20,
    branched=10_000,
    chats=2_000,
    rebuilt=20_000,
    imported=100_000,
    import_repeats=3,
    transcripts=24,
    searched=(10_000, 100_000),
    searched_chats=100,
    searched_per_chat=1_000,
    small_chats=20_000,
    feed_events=200,
    checkpoints=1_000,
    turns=250,
    longest=1_000_000,
    forked=10_000,
    many_chats=100_000,
    writers=64,
    scaling=(100, 1_000, 10_000, 100_000, 1_000_000),
)
QUICK = Sizes(
    name="quick",
    repeats=5,
    sample_s=0.005,
    chains=(1_000, 10_000),
    appends_per_sample=20,
    long=10_000,
    branches=20,
    branched=10_000,
    chats=200,
    rebuilt=2_000,
    imported=2_000,
    import_repeats=3,
    transcripts=6,
    searched=(1_000, 10_000),
    searched_chats=20,
    searched_per_chat=500,
    small_chats=200,
    feed_events=200,
    checkpoints=200,
    turns=50,
    longest=20_000,
    forked=2_000,
    many_chats=5_000,
    writers=16,
    scaling=(100, 1_000, 10_000),
)
SMOKE = Sizes(
    name="smoke",
    repeats=1,
    sample_s=0,
    chains=(60, 130),
    appends_per_sample=2,
    long=130,
    branches=3,
    branched=130,
    chats=8,
    rebuilt=12,
    imported=60,
    import_repeats=1,
    transcripts=1,
    searched=(60, 130),
    searched_chats=3,
    searched_per_chat=40,
    small_chats=4,
    feed_events=3,
    checkpoints=20,
    turns=3,
    longest=200,
    forked=30,
    many_chats=12,
    writers=3,
    scaling=(15, 40),
)


class Pair(NamedTuple):
    """A ledger and its peer with the same content."""

    ledger: Ledger
    peer: SqlitePeer


class World:
    """
    A run. Stores that several subjects read are made once, by whom comes first.

    Args:
        root: An empty folder; the files of the run.
        sizes: How much of everything.
        report: Told what goes on.
    """

    def __init__(self, root: Path, sizes: Sizes, report: Callable[[str], None] = lambda _: None) -> None:
        self.root, self.sizes, self.report = root, sizes, report
        self._exit = ExitStack()
        self._pairs: dict[Durability, Pair] = {}
        self._chains: set[tuple[Durability, int]] = set()
        self._events: dict[int, Pair] = {}
        self._stored: dict[int, Path] = {}
        self._rebuilt: dict[int, Rebuild] = {}
        self._count = 0

    def folder(self) -> Path:
        """A new folder."""
        self._count += 1
        folder = self.root / str(self._count)
        folder.mkdir()
        return folder

    @contextmanager
    def fresh(self, durability: Durability, *, search: bool = False) -> Generator[Pair]:
        """An empty pair, closed at the end."""
        folder = self.folder()
        with (
            chatledger.open(folder / "ledger", durability=durability) as ledger,
            SqlitePeer(folder / "peer.db", synchronous=SYNCHRONOUS[durability], search=search) as peer,
        ):
            yield Pair(ledger, peer)

    def pair(self, durability: Durability) -> Pair:
        """The shared pair of that durability."""
        if durability not in self._pairs:
            self._pairs[durability] = self._exit.enter_context(self.fresh(durability))
        return self._pairs[durability]

    def chain(self, length: int, durability: Durability = "always") -> tuple[Pair, str]:
        """The shared pair, with a chat that is one chain of so many messages. Only to be added to, on both sides."""
        pair, chat_id = self.pair(durability), f"chain-{length}"
        if (durability, length) not in self._chains:
            self.report(f"storing a chain of {length:,} messages")
            fill(pair, chat_id, length, seed=length)
            self._chains.add((durability, length))
        return pair, chat_id

    def events(self, per_event: int) -> Pair:
        """A shared pair, with a chat that is one chain of `rebuilt` messages, so many in a commit. Not to be changed."""
        if per_event not in self._events:
            count, talk = self.sizes.rebuilt, Prose(5)
            self.report(f"storing {count:,} messages, {per_event} in an event")
            pair = self._exit.enter_context(self.fresh("fast"))
            fill(pair, "chat", count, talk=talk, per_commit=per_event)
            self._events[per_event] = pair
        return self._events[per_event]

    def stored(self, length: int) -> Path:
        """The folder of a ledger that is closed, with one chain of prose of so many messages in `chat`. The longest one may be added to; the others by who comes last."""
        if length not in self._stored:
            self._stored[length] = self.folder() / "ledger"
            self.report(f"storing {length:,} messages")
            store(self._stored[length], length)
        return self._stored[length]

    @contextmanager
    def storing(self, length: int) -> Generator[None]:
        """Do what `stored` does in another process, while the caller fills something else."""
        if length in self._stored:
            yield
            return
        folder = self.folder() / "ledger"
        self.report(f"storing {length:,} messages, in two processes")
        child = subprocess.Popen(
            [sys.executable, "-c", _STORE, str(folder), str(length)], cwd=Path(__file__).parents[1]
        )
        try:
            yield
            if child.wait():
                raise subprocess.CalledProcessError(child.returncode, child.args)
        finally:
            child.terminate()
            child.wait()
        self._stored[length] = folder

    def rebuilt(self, length: int) -> Rebuild:
        """The costs of a rebuild of `stored`, which is done once."""
        if length not in self._rebuilt:
            folder = self.stored(length)
            self.report(f"rebuild of {length:,} messages")
            self._rebuilt[length] = rebuild_apart(folder)
        return self._rebuilt[length]

    def compare(
        self,
        ours: Callable[[], object],
        theirs: Callable[[], object],
        *,
        subject: str,
        name: str,
        note: str,
        peer: str = "SQLite",
        few: bool = False,
    ) -> Row:
        """
        A row of two calls that change nothing, warm.

        Args:
            few: For calls of seconds, which were made before: few samples.
        """
        self.report(name)
        repeats = self.sizes.import_repeats if few else self.sizes.repeats
        samples = take_turns(
            {"ours": ours, "theirs": theirs}, repeats=repeats, sample_s=self.sizes.sample_s, is_warm=not few
        )
        return Row(subject=subject, name=name, peer=peer, ours=samples["ours"], theirs=samples["theirs"], note=note)

    def close(self) -> None:
        """Close the shared stores."""
        self._exit.close()


def settle(ledger: Ledger) -> None:
    """Merge the search index as far as a process does that has nothing else to do."""
    store: Any = store_of(ledger)  # the whole one, which has an index
    while store.index.merge_search():
        pass


def store(folder: Path, length: int) -> None:
    """Make a ledger with one chain of prose, in `chat`."""
    with chatledger.open(folder, durability="fast") as ledger:
        talk, per_commit = Prose(length, length=length), max(BATCH, length // _MOST_COMMITS)
        make_chain(ledger, "chat", length, talk=talk, per_commit=per_commit)


def make_chain(
    ledger: Ledger,
    chat_id: str,
    length: int,
    *,
    seed: int = 0,
    talk: Prose | None = None,
    per_commit: int = BATCH,
) -> list[str]:
    """Make a chat that is one chain, of messages by `talk`, in our ledger alone; returns their ids."""
    talk = talk or Prose(seed)
    ledger.create_chat(chat_id, "ada")
    ids: list[str] = []
    for start in range(0, length, per_commit):
        stored = ledger.append(chat_id, list(talk.messages(min(per_commit, length - start))))
        ids.extend(message.id for message in stored)
    return ids


def fill(
    pair: Pair,
    chat_id: str,
    length: int,
    *,
    seed: int = 0,
    talk: Prose | None = None,
    per_commit: int = BATCH,
) -> list[str]:
    """Make a chat that is one chain, of messages by `talk`; returns their ids."""
    talk = talk or Prose(seed)
    ids: list[str] = []
    pair.ledger.create_chat(chat_id, "ada")
    pair.peer.create_chat(chat_id, "ada")
    for start in range(0, length, per_commit):
        batch = list(talk.messages(min(per_commit, length - start)))
        pair.ledger.append(chat_id, batch)
        pair.peer.append(chat_id, batch)
        ids.extend(message.id for message in batch if message.id is not None)
    return ids


def append_singly(folder: Path, chat_ids: Sequence[str], count: int, talk: Prose) -> int:
    """
    Chain so many messages by `talk` to each chat of our ledger in a folder, one in each commit, many chats at a time.

    Chats, and the ledger, are made if absent. Returns the position of the last event.
    """

    async def write(ledger: AsyncLedger, chat_id: str) -> None:
        await ledger.upsert_chat(chat_id, "ada")
        for message in list(talk.messages(count)):
            await ledger.append(chat_id, [message])

    async def run() -> int:
        async with chatledger.open_async(folder, durability="fast") as ledger:
            for start in range(0, len(chat_ids), _AT_ONCE):
                await asyncio.gather(*(write(ledger, chat_id) for chat_id in chat_ids[start : start + _AT_ONCE]))
            return await ledger.get_position()

    return asyncio.run(run())


def one_chain(chat_id: str, user_id: str, messages: Sequence[NewMessage]) -> ImportedChat:
    """A chat to import that is one chain of these messages, on `main`."""
    parents = (None, *(message.id for message in messages))
    return ImportedChat(
        id=chat_id,
        user_id=user_id,
        title=None,
        metadata=None,
        messages=tuple(
            ImportedMessage(
                id=str(message.id),
                parent_id=parent_id,
                name=message.name,
                data=message.data,
                created_at=message.created_at,
            )
            for message, parent_id in zip(messages, parents, strict=False)
        ),
        branches=(ImportedBranch(name="main", head_message_id=messages[-1].id, is_active=True),),
    )
