"""Costs of noticing every loss: the witness at each append, the check of all blocks before a server starts."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import structs

import chatledger
from chatledger import Ledger
from chatledger.infra.ledger.port import store_of
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.log.nats_server.preflight import check_store
from chatledger.infra.log.nats_server.seals import read_seals, write_seals
from chatledger.infra.store.opening import STREAM

from ..measure import Row, take_turns
from ..prose import Prose
from ..world import SYNCHRONOUS, World


def vouching(world: World) -> Iterator[Row]:
    """Appends with the witness and without; opening after the machine went down, with seals of the blocks and without."""
    for durability in SYNCHRONOUS:
        folder = world.folder()
        with (
            chatledger.open(folder / "with", durability=durability) as witnessed,
            chatledger.open(folder / "without", durability=durability) as bare,
        ):
            store_of(bare).whole("verify")._witness = None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - users cannot do without
            world.report(f"append, {durability}, with the witness")
            count = world.sizes.appends_per_sample
            runs = {"ours": _appends(witnessed, count), "theirs": _appends(bare, count)}
            samples = take_turns(runs, repeats=3 * world.sizes.repeats, are_all_needed=True)
        yield Row(
            subject="vouching",
            name=f"append, {durability}, noted by the witness",
            peer="ours, without",
            ours=[seconds / count for seconds in samples["ours"]],
            theirs=[seconds / count for seconds in samples["theirs"]],
            note="one message per commit; three times as many samples as elsewhere, as the difference is small",
        )
    length = world.sizes.longest
    rebuilt = world.rebuilt(length).seconds
    for state, prepare in {"sealed blocks": _forget_stop, "blocks without seals": _forget_seals}.items():
        world.report(f"check of {length:,} messages, {state}")
        checks = [_check(world.stored(length), prepare) for _ in range(world.sizes.import_repeats)]
        yield Row(
            subject="vouching",
            name=f"open {length:,} messages after the machine went down, {state}",
            peer="ours, rebuild alone",
            ours=[rebuilt + seconds for seconds in checks],
            theirs=[rebuilt] * len(checks),
            note="what the check adds to building the index anew; the system's file cache is warm",
        )


def _appends(ledger: Ledger, count: int) -> Callable[[], None]:
    talk = Prose(2)
    ledger.create_chat("chat", "ada")

    def run() -> None:
        for message in list(talk.messages(count)):
            ledger.append("chat", [message])

    run()  # warm
    return run


def _check(folder: Path, prepare: Callable[[DataDirectory], None]) -> float:
    """How long the check takes, with the files as `prepare` leaves them, which are put back."""
    directory = DataDirectory(folder)
    kept = directory.seals_file.read_bytes()
    prepare(directory)
    try:
        begun = time.perf_counter()
        check_store(directory, STREAM)
        return time.perf_counter() - begun
    finally:
        directory.seals_file.write_bytes(kept)


def _forget_stop(directory: DataDirectory) -> None:
    seals = read_seals(directory)
    assert seals is not None, "it was closed"
    write_seals(directory, structs.replace(seals, boot=b"", is_clean=False))


def _forget_seals(directory: DataDirectory) -> None:
    directory.seals_file.unlink()
