"""Damaged pages are found without LMDB, which they would end the process of; and sound ones raise no alarm."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

from chatledger.domain.errors import CorruptStateError
from chatledger.projections.lmdb.environment import Environment
from chatledger.projections.lmdb.page_check import find_damage, read_snapshots

PAGE = 4096
STEPS = st.lists(st.tuples(st.integers(0, 2**32), st.sampled_from([1, 20, 300]), st.booleans()), min_size=1, max_size=8)


def test_the_layout_that_is_relied_on(tmp_path: Path) -> None:
    """
    Pages are read as LMDB 0.9 lays them out. Of a file with rows of all kinds, each page that is in use is reached.

    Otherwise look at projections/lmdb/page_check.py and page_check.py, then raise the upper bound of lmdb in pyproject.toml.
    """
    look = "LMDB lays out its pages in another way: look at projections/lmdb/page_check.py, then raise the upper bound of lmdb"
    assert lmdb.version()[:2] == (0, 9), look
    with lmdb.open(str(tmp_path), max_dbs=3, map_size=2**26) as environment:
        work(environment, Random(1), 400)
        in_use = environment.info()["last_txnid"], environment.info()["last_pgno"]
        rows = environment.stat()["entries"]
    file = tmp_path / "data.mdb"
    with file.open("rb") as opened:
        newest = max(read_snapshots(opened.fileno()), key=lambda snapshot: snapshot.txn_id)
    assert (newest.txn_id, newest.last_page, newest.main.entries) == (*in_use, rows), look
    assert find_damage(file) is None, look


def work(environment: "lmdb.Environment", random: Random, count: int) -> None:
    """Rows of all kinds that an index has: short, on pages of their own, several to a key; some go again."""
    plain, several, few = (
        environment.open_db(name, dupsort=name == b"several") for name in (b"plain", b"several", b"few")
    )
    with environment.begin(write=True) as txn:
        for _ in range(count):
            key = b"%d" % random.randrange(400) * random.choice([1, 1, 5, 20])
            if random.random() < 0.3:
                for table in (plain, several, few):
                    txn.delete(key, db=table)
                continue
            txn.put(key, bytes(random.choice([0, 3, 100, 2000, 5000, 30000])), db=plain)
            for _ in range(random.choice([1, 3, 60])):
                txn.put(key, random.randbytes(random.choice([1, 16, 20])), db=several)
            txn.put(key, b"x", db=few)


def opened(folder: Path) -> "lmdb.Environment":
    return lmdb.open(str(folder), map_size=2**27, max_dbs=8, sync=False, metasync=False)


@settings(max_examples=examples(25), deadline=None)
@given(steps=STEPS)
def test_no_false_alarm(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool]]) -> None:
    """Whatever was put, replaced and deleted, a snapshot that LMDB wrote hangs together; also while a reader holds another."""
    folder = tmp_path_factory.mktemp("sound")
    environment = opened(folder)
    for seed, count, is_dropped in steps:
        with environment.begin():
            work(environment, Random(seed), count)
        if is_dropped:
            with environment.begin(write=True) as txn:
                txn.drop(environment.open_db(b"few", txn=txn), delete=False)
        assert find_damage(folder / "data.mdb") is None
    environment.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a file with branches, free pages, trees of duplicates, and values on pages of their own."""
    folder = tmp_path_factory.mktemp("made")
    environment = opened(folder)
    random = Random(7)
    for _ in range(12):
        work(environment, random, 150)
    environment.close()
    return (folder / "data.mdb").read_bytes()


def pages_of(raw: bytes, kind: int) -> list[int]:
    """The numbers of pages that say they are of a kind, and are in use or were."""
    return [
        number
        for number in range(2, len(raw) // PAGE)
        if raw[number * PAGE + 10 : number * PAGE + 12] == kind.to_bytes(2, "little")
        and int.from_bytes(raw[number * PAGE : number * PAGE + 8], "little") == number
    ]


USE = """
import sys, lmdb
environment = lmdb.open(sys.argv[1], map_size=2**27, max_dbs=8, sync=False)
try:
    tables = [environment.open_db(name, dupsort=name == b"several") for name in (b"plain", b"several", b"few")]
    with environment.begin() as txn:
        for table in tables:
            for _, value in txn.cursor(table):
                bytes(value)
    with environment.begin(write=True) as txn:
        for number in range(300):
            txn.put(b"%d" % number, b"y" * 300, db=tables[0])
            txn.delete(b"%d" % number, db=tables[2])
except (lmdb.Error, MemoryError):
    sys.exit(3)
"""


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_whatever_ends_the_process_is_found(sound: bytes, tmp_path: Path, seed: int) -> None:
    """Bits flip where the pages describe themselves. What LMDB dies of, or refuses, is named before."""
    random = Random(seed)
    for number in range(12):
        raw = bytearray(sound)
        page = random.choice([0, 1, random.choice(pages_of(sound, 1)), random.choice(pages_of(sound, 2))])
        at = random.randrange(8, 136) if page < 2 else random.choice([random.randrange(16), random.randrange(16, 40)])
        raw[page * PAGE + at] ^= 1 << random.randrange(8)
        folder = tmp_path / f"{number}"
        folder.mkdir()
        (folder / "data.mdb").write_bytes(raw)
        found = find_damage(folder / "data.mdb")
        used = subprocess.run([sys.executable, "-c", USE, str(folder)], capture_output=True, check=False)
        assert used.returncode in {0, 3} or found is not None, f"byte {at} of page {page}: {used.stderr.decode()}"


WRITE = """
import sys
from pathlib import Path
from random import Random
from tests.projections.lmdb.test_page_check import opened, work
environment, random = opened(Path(sys.argv[1])), Random(int(sys.argv[2]))
while True:
    work(environment, random, 30)
    print("written", flush=True)
"""


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_kill_9_damages_nothing(tmp_path: Path, seed: int) -> None:
    """A process that dies while it writes leaves a snapshot that hangs together: there is no alarm, and no rebuild."""
    writer = subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path), str(seed)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    with writer.stdout as written:
        for _ in range(3 + seed * 3):
            assert written.readline() == b"written\n"
        time.sleep(Random(seed).uniform(0, 0.02))
        writer.kill()
    writer.wait(30)
    assert find_damage(tmp_path / "data.mdb") is None


DIE = """
import os, sys
from pathlib import Path
from chatledger.projections.lmdb.environment import Environment
environment = Environment(Path(sys.argv[1]))  # asks it nothing
os.kill(os.getpid(), 9)
"""


def cut(raw: bytearray) -> None:
    del raw[len(raw) // 2 :]


def empty_meta(raw: bytearray) -> None:
    raw[16:40] = bytes(24)


def branch_elsewhere(raw: bytearray) -> None:
    """The first child of each branch is far behind the end of the file: LMDB would touch it, and die."""
    for page in pages_of(bytes(raw), 1):
        node = page * PAGE + int.from_bytes(raw[page * PAGE + 16 : page * PAGE + 18], "little")
        raw[node + 3] = 0x7F


def swapped(raw: bytearray) -> None:
    """Rows of a leaf are not in order."""
    for page in pages_of(bytes(raw), 2):
        at = page * PAGE + 16
        raw[at : at + 4] = raw[at + 2 : at + 4] + raw[at : at + 2]


DAMAGES: dict[str, Callable[[bytearray], None]] = {
    "cut short": cut,
    "no meta page": empty_meta,
    "a branch into nowhere": branch_elsewhere,
    "out of order": swapped,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(sound: bytes, tmp_path: Path, name: str) -> None:
    raw = bytearray(sound)
    DAMAGES[name](raw)
    (tmp_path / "data.mdb").write_bytes(raw)
    assert find_damage(tmp_path / "data.mdb") is not None


def test_a_file_that_was_just_made(tmp_path: Path) -> None:
    """Its maker died before it wrote anything: there is nothing wrong."""
    (tmp_path / "data.mdb").touch()
    assert find_damage(tmp_path / "data.mdb") is None


@pytest.mark.soak
def test_what_a_killed_process_left_is_looked_at(sound: bytes, tmp_path: Path) -> None:
    """After a death the pages are checked before LMDB touches them; after a clean end they are not read."""
    Environment(tmp_path).close()
    raw = bytearray(sound)
    branch_elsewhere(raw)
    (tmp_path / "data.mdb").write_bytes(raw)
    assert subprocess.run([sys.executable, "-c", DIE, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    with pytest.raises(CorruptStateError, match="is damaged: page"):
        Environment(tmp_path)
    (tmp_path / "data.mdb").write_bytes(sound)
    Environment(tmp_path).close()
