"""Live streams under fire: writers, readers and the server are killed, and of two who take a stream over one wins."""

import contextlib
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Generator
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.jetstream_world import eventually

import chatledger
from chatledger import AlreadyExistsError, ChatledgerError, Ledger
from chatledger.domain.chat import live
from chatledger.errors import LiveConflictError, LiveStreamNotFoundError
from chatledger.infra.ledger.live import methods, pump
from chatledger.infra.ledger.live import writer as live_writer
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.live import LiveStream

ROUNDS: Final = 200
AT_ONCE: Final = 4
WAIT_S: Final = 60.0
BEAT_S: Final = 0.15
SILENCE_S: Final = 0.6


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Let the writers of this process beat, and be taken for dead, sooner than they would."""
    for module in (live, live_writer, methods):
        patch.setattr(module, "SILENCE_S", SILENCE_S)
    patch.setattr(pump, "BEAT_S", BEAT_S)


@contextlib.contextmanager
def opened(folder: str) -> Generator[Ledger]:
    hurry(pytest.MonkeyPatch())
    with chatledger.open(folder, durability="fast") as ledger:
        yield ledger


def insist(call: Any) -> Any:
    """The answer of a call, through restarts of the server."""
    ends_at = time.monotonic() + WAIT_S
    while True:
        try:
            return call()
        except (AlreadyExistsError, LiveConflictError, LiveStreamNotFoundError):
            raise
        except ChatledgerError as error:
            print(f"{os.getpid()}: {error!r}")
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.05)


def write(folder: str, stream_id: str, total: int, seed: int) -> None:
    """Start a stream and write to it."""
    with opened(folder) as ledger:
        try:
            answer = insist(lambda: ledger.live("c", id=stream_id))
        except AlreadyExistsError:
            return  # it was made by an attempt without an answer, and is interrupted
        go_on(answer, total, seed)


def go_on(answer: Any, total: int, seed: int) -> None:
    draw = random.Random(seed)
    with contextlib.suppress(LiveConflictError):  # taken over, as this one seemed dead
        while answer.chunk_count < total:
            for _ in range(min(draw.randrange(1, 30), total - answer.chunk_count)):
                insist(lambda: answer.write(f"{answer.chunk_count},"))
            time.sleep(draw.choice((0, 0, 0.001, 0.01)))
        insist(answer.commit)


def note(path: str, text: str) -> None:
    """Leave a result for the test, whole or not at all: a killed process would leave a queue locked."""
    Path(f"{path}.new").write_text(text)
    Path(f"{path}.new").rename(path)


def take_over(folder: str, stream: LiveStream, total: int, seed: int, won: str) -> None:
    """Take the stream over if nobody is faster, and write it to its end."""
    with opened(folder) as ledger:
        try:
            answer = insist(lambda: ledger.take_over_live(stream))
        except LiveConflictError:
            return
        note(won, str(answer.epoch))
        go_on(answer, total, seed)


def read(folder: str, stream_id: str, found: str) -> None:
    """Read a stream to its end, through all interruptions: how many chunks it has, or what is wrong."""
    with opened(folder) as ledger:
        count = 0
        while True:
            try:
                with ledger.read_live("c", stream_id, after=count) as chunks:
                    for chunk in chunks:
                        if (count + 1, f"{count},") != (chunk.number, chunk.data):
                            note(found, f"{chunk} follows {count}")
                            return
                        count += 1
                    if chunks.status == "committed":
                        note(found, str(count))
                        return
            except ChatledgerError:
                time.sleep(0.05)


class Round:
    """One stream, its writers and its readers."""

    def __init__(self, folder: Path, number: int, draw: random.Random) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.folder, self.draw = str(folder), draw
        self.id, self.total = f"s{number}", 300 + AT_ONCE * draw.randrange(400) + number
        self.notes = folder.parent / f"notes-{draw.randrange(2**63)}"
        self.notes.mkdir()
        self.won: list[str] = []
        self.processes: list[ForkServerProcess] = []
        self.writers = [self.start(write, self.id, self.total, draw.random())]
        self.readers = [self.start_reader() for _ in range(2)]

    def note_file(self) -> str:
        return str(self.notes / str(self.draw.randrange(2**63)))

    def start_reader(self) -> tuple[str, ForkServerProcess]:
        found = self.note_file()
        return found, self.start(read, self.id, found)

    def start(self, work: Any, *args: Any) -> ForkServerProcess:
        process = self.context.Process(target=work, args=(self.folder, *args), daemon=True)
        process.start()
        self.processes.append(process)
        return process

    def kill_writers(self) -> None:
        for writer in self.writers:
            writer.kill()

    def replace_writers(self, ledger: Ledger) -> None:
        """Two take the stream over at the same moment, unless it has ended."""
        stream = eventually(lambda: self.interrupted_or_ended(ledger), within_s=WAIT_S)
        if stream.status == "interrupted":
            files = self.note_file(), self.note_file()
            self.won += files
            self.writers = [self.start(take_over, stream, self.total, self.draw.random(), won) for won in files]

    def interrupted_or_ended(self, ledger: Ledger) -> LiveStream | None:
        with contextlib.suppress(ChatledgerError):
            found = ledger.get_live("c", self.id)
            if found is None:  # the first writer died before it began
                self.writers = [self.start(write, self.id, self.total, 0)]
                time.sleep(0.5)
            elif found.status == "committing":
                ledger.sweep()
            elif found.status != "writing":
                return found
        return None

    def check(self, ledger: Ledger) -> None:
        """Every reader has read everything; there is one message, and each epoch had one winner."""
        counts = [eventually(partial(_noted, found), within_s=WAIT_S) for found, _ in self.readers]
        text = "".join(f"{number}," for number in range(self.total))
        epochs = [epoch for epoch in map(_noted, self.won) if epoch is not None]
        for process in self.processes:
            process.join(WAIT_S)

        assert [str(self.total)] * 2 == counts
        assert len(epochs) == len(set(epochs))
        messages = [message for message in ledger.get_messages("c") if message.data["parts"][0]["text"] == text]
        assert 1 == len(messages), [(message.id, message.created_at) for message in messages]

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join(WAIT_S)


def _noted(path: str) -> str | None:
    return Path(path).read_text() if Path(path).exists() else None


def kill_server(folder: Path) -> None:
    endpoint = DataDirectory(folder).read_endpoint()
    if endpoint is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(endpoint.server_pid, signal.SIGKILL)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_chunk_is_lost_doubled_or_out_of_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed, all readers read everything in order, and the stream becomes one message."""
    hurry(monkeypatch)
    multiprocessing.get_context("forkserver").set_forkserver_preload(["chatledger._facade", __name__])
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw, folder = random.Random(seed), tmp_path / "data"
    rounds_left = int(os.environ.get("CHATLEDGER_LIVE_ROUNDS", ROUNDS))
    with chatledger.open(folder, durability="fast") as ledger:
        while rounds_left > 0:
            chat = f"{rounds_left} rounds left"
            ledger.delete_chat("c")
            ledger.create_chat("c", "ada", title=chat)
            rounds = [Round(folder, number, draw) for number in range(AT_ONCE)]
            try:
                for _ in range(2):
                    time.sleep(draw.uniform(0.3, 0.9))
                    if draw.random() < 0.4:
                        kill_server(folder)
                    for one in rounds:
                        one.kill_writers()
                        if draw.random() < 0.5:
                            one.readers[0][1].kill()
                            one.readers[0] = one.start_reader()
                        one.replace_writers(ledger)
                for one in rounds:
                    one.check(ledger)
            finally:
                for one in rounds:
                    one.end()
            rounds_left -= AT_ONCE
