import fcntl
import os
import signal
import threading
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import lmdb
import pytest
from tests.support.naive_index import ask, process

from chatledger.domain.errors import CorruptStateError, LedgerClosedError
from chatledger.projections.lmdb import environment
from chatledger.projections.lmdb.environment import Environment, UncleanStopError, drop_prefixed, prefixed
from chatledger.projections.lmdb.keys import number, to_number

TINY = 128 * 1024
OTHER_BOOT = b"00000000-0000-0000-0000-000000000000"
COUNT = b"count"


def note(path: Path) -> bytes:
    return (path / "in-use").read_bytes()


def boot() -> bytes:
    return environment._boot_id()  # pyright: ignore[reportPrivateUsage] (a white-box check)


TABLES: WeakKeyDictionary[Environment, Any] = WeakKeyDictionary()


def table_of(env: Environment) -> Any:
    """The one table, opened once: opening it is a transaction too, which must not meet a growing map."""
    if env not in TABLES:
        TABLES[env] = env.table(b"t")
    return TABLES[env]


def put(env: Environment, count: int, *, size: int = 10_000, first: int = 0) -> None:
    """Rows with numbers as keys, and how many there are, in one transaction."""
    table = table_of(env)

    def change(txn: environment.Transaction) -> None:
        for at in range(first, first + count):
            txn.put(number(at), b"x" * size, db=table)
        txn.put(COUNT, number(first + count), db=table)

    env.update(change)


def counted(env: Environment) -> int:
    """Number of rows, checked against their note."""
    table = table_of(env)
    with env.reading() as txn:
        raw = txn.get(COUNT, db=table)
        found = sum(len(key) == 8 for key, _ in txn.cursor(table))
        assert (0 if raw is None else to_number(raw)) == found
    return found


def last_row(env: Environment) -> int:
    """Number of rows by the note, checked at the last of them only."""
    table = table_of(env)
    with env.reading() as txn:
        count = to_number(txn.get(COUNT, db=table) or number(0))
        assert txn.get(number(count - 1), db=table) is not None
        assert txn.get(number(count), db=table) is None
    return count


def test_the_map_grows_by_itself(tmp_path: Path) -> None:
    """A write of many times the map succeeds, in one transaction or in many; later it is no smaller than the file."""
    env = Environment(tmp_path, map_bytes=TINY)
    put(env, 100)
    for at in range(100, 300):
        put(env, 1, first=at)

    assert 300 == counted(env)
    assert env.map_bytes >= 300 * 10_000
    env.close()
    env = Environment(tmp_path, map_bytes=TINY)
    assert 300 == counted(env)
    env.close()


def test_a_change_that_meets_a_full_map_runs_anew(tmp_path: Path) -> None:
    """What the first attempt wrote is gone before the second begins."""
    env = Environment(tmp_path, map_bytes=TINY)
    table = table_of(env)
    attempts: list[bool] = []

    def change(txn: environment.Transaction) -> int:
        attempts.append(txn.get(b"first", db=table) is None)
        txn.put(b"first", b"", db=table)
        for at in range(100):
            txn.put(number(at), b"x" * 10_000, db=table)
        return len(attempts)

    assert env.update(change) > 1
    assert all(attempts)
    env.close()


def test_an_exception_leaves_all_as_it_was(tmp_path: Path) -> None:
    """A change that fails writes nothing, and the next one works."""
    env = Environment(tmp_path, map_bytes=TINY)
    put(env, 3)
    table = table_of(env)

    def change(txn: environment.Transaction) -> None:
        txn.put(number(77), b"", db=table)
        msg = "no"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="no"):
        env.update(change)
    assert 3 == counted(env)
    put(env, 3, first=3)
    assert 6 == counted(env)
    env.close()


@pytest.mark.soak
def test_another_process_grows_the_map(tmp_path: Path) -> None:
    """Readers and writers adopt the size that another process gave the file."""
    env = Environment(tmp_path, map_bytes=TINY)
    put(env, 1)
    script = f"""
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.projections.lmdb.test_environment import put, counted
env = Environment(root, map_bytes={TINY})
put(env, 300, first=1)
say("grown")
hear()
say(counted(env))
env.close()
"""
    with process(script, tmp_path) as child:
        grown = ask(child)
        read = counted(env)
        put(env, 600, first=301)
        theirs = ask(child, "go")

    assert ("grown", 301, "901") == (grown, read, theirs)
    assert 901 == counted(env)
    env.close()


def test_readers_read_while_the_map_grows(tmp_path: Path) -> None:
    """Each read is one moment, and none fails, however often the map grows in between."""
    env = Environment(tmp_path, map_bytes=TINY)
    put(env, 1)
    seen: list[list[int]] = [[] for _ in range(2)]
    faults: list[BaseException] = []
    is_over = threading.Event()

    def read(mine: list[int]) -> None:
        try:
            while not is_over.wait(0.0001):
                mine.append(last_row(env))
        except BaseException as error:  # noqa: BLE001 (a thread hands its error over)
            faults.append(error)

    threads = [threading.Thread(target=read, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for at in range(1, 60):
        put(env, 1, first=at, size=60_000)
    is_over.set()
    for thread in threads:
        thread.join()

    assert [] == faults
    assert all(mine == sorted(mine) for mine in seen)
    assert env.map_bytes >= 60 * 60_000
    env.close()


def test_a_snapshot_does_not_move(tmp_path: Path) -> None:
    """A read transaction shows the moment of its beginning while others write."""
    env = Environment(tmp_path)
    put(env, 1)
    table = table_of(env)
    with env.reading() as txn:
        writer = threading.Thread(target=put, args=(env, 5), kwargs={"first": 1})
        writer.start()
        writer.join()

        assert number(1) == txn.get(COUNT, db=table)
    assert 6 == counted(env)
    env.close()


@pytest.mark.soak
def test_the_last_one_leaves_it_clean(tmp_path: Path) -> None:
    """In use, the note says which run of the machine; after the last close, that all is on disk."""
    env = Environment(tmp_path)
    put(env, 1)
    in_use = note(tmp_path)
    with process("env = Environment(root); say('open'); hear(); env.close(); say('closed'); hear()", tmp_path) as child:
        ask(child)
        env.close()
        one_left = note(tmp_path)
        ask(child, "close")

    assert (boot(), boot(), b"clean") == (in_use, one_left, note(tmp_path))


def test_an_unclean_stop_is_refused(tmp_path: Path) -> None:
    """The machine went down in between: the file is not trusted, now or later."""
    env = Environment(tmp_path)
    put(env, 1)
    env.close()
    (tmp_path / "in-use").write_bytes(OTHER_BOOT)
    for _ in range(2):
        with pytest.raises(UncleanStopError):
            Environment(tmp_path)

    assert OTHER_BOOT == note(tmp_path)


@pytest.mark.parametrize("text", [b"clean", b""])
def test_a_clean_or_new_note_is_trusted(tmp_path: Path, text: bytes) -> None:
    """A synced file is opened whatever run of the machine it is."""
    Environment(tmp_path).close()
    (tmp_path / "in-use").write_bytes(text)
    env = Environment(tmp_path)

    assert boot() == note(tmp_path)
    env.close()


class Meeting:
    """Lets an opener find the file locked by another process, which finishes just before the opener gets its share."""

    def __init__(self, path: Path, *, leaves: bytes) -> None:
        self._path, self._leaves = path, leaves
        self._flock = fcntl.flock
        self._is_first = True

    def __call__(self, fd: int, operation: int) -> None:
        if self._is_first and operation == fcntl.LOCK_EX | fcntl.LOCK_NB:
            self._is_first = False
            (self._path / "in-use").write_bytes(self._leaves)
            raise BlockingIOError
        self._flock(fd, operation)


def test_opening_while_the_last_one_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gets in just after another wrote `clean` marks the file as in use again: a crash must not find it `clean`."""
    Environment(tmp_path).close()
    monkeypatch.setattr(fcntl, "flock", Meeting(tmp_path, leaves=b"clean"))
    env = Environment(tmp_path)
    found = note(tmp_path)
    env.close()

    assert boot() == found


def test_opening_while_another_one_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that open at once after an unclean stop, both refuse: also the one that had to wait for the other."""
    Environment(tmp_path).close()
    monkeypatch.setattr(fcntl, "flock", Meeting(tmp_path, leaves=OTHER_BOOT))
    with pytest.raises(UncleanStopError):
        Environment(tmp_path).close()


@pytest.mark.soak
def test_a_killed_process_keeps_it_usable(tmp_path: Path) -> None:
    """Killed in the middle of a transaction: what was committed is there, the rest is not, and others go on."""
    script = """
env = Environment(root)
table = env.table(b"t")
def change(txn):
    for at in range(50, 90):
        txn.put(at.to_bytes(8, "big"), b"x" * 10000, db=table)
    say("half")
    hear()
env.update(change)
"""
    env = Environment(tmp_path)
    put(env, 50)
    with process(script, tmp_path) as child:
        ask(child)
        before = counted(env)
        child.send_signal(signal.SIGKILL)
        child.wait()
        put(env, 10, first=50)

    assert (50, 60) == (before, counted(env))
    env.close()
    assert b"clean" == note(tmp_path)


@pytest.mark.soak
def test_all_killed_is_trusted_in_the_same_run(tmp_path: Path) -> None:
    """The kernel keeps what processes wrote; without a reboot nothing is lost."""
    script = f"""
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.projections.lmdb.test_environment import put
env = Environment(root)
put(env, 50)
say("written")
hear()
"""
    with process(script, tmp_path) as child:
        ask(child)
        child.send_signal(signal.SIGKILL)
        child.wait()
    left = note(tmp_path)
    env = Environment(tmp_path)

    assert boot() == left
    assert 50 == counted(env)
    env.close()


def test_closed_is_closed(tmp_path: Path) -> None:
    """Reading and writing raise; closing again does nothing."""
    env = Environment(tmp_path)
    env.close()
    env.close()
    with pytest.raises(LedgerClosedError), env.reading():
        pass
    with pytest.raises(LedgerClosedError):
        env.update(lambda txn: None)


def is_shut(env: Environment) -> bool:
    return env._is_closed  # pyright: ignore[reportPrivateUsage] (a white-box check)


def test_closing_waits_for_readers(tmp_path: Path) -> None:
    """A transaction that is under way ends undisturbed."""
    env = Environment(tmp_path)
    put(env, 3)
    table = table_of(env)
    reading = env.reading()
    txn = reading.__enter__()
    closer = threading.Thread(target=env.close)
    closer.start()
    while not is_shut(env):
        closer.join(0.001)
    with pytest.raises(LedgerClosedError):
        env.begin()
    found = txn.get(COUNT, db=table)
    is_waiting = closer.is_alive()
    reading.__exit__(None, None, None)
    closer.join()

    assert (number(3), True) == (found, is_waiting)
    assert b"clean" == note(tmp_path)


def test_a_file_that_ends_before_pages_that_are_free_is_whole(tmp_path: Path) -> None:
    """What was freed in the transaction that made it is never written: reading a ledger at rest took that for damage."""
    env = Environment(tmp_path)
    put(env, 1)
    table = table_of(env)

    def change(txn: environment.Transaction) -> None:
        txn.put(b"large", bytes(400_000), db=table)
        txn.delete(b"large", db=table)

    env.update(change)
    env.close()
    with lmdb.open(str(tmp_path), readonly=True, lock=False) as plain:
        assert (tmp_path / "data.mdb").stat().st_size < plain.info()["last_pgno"] * plain.stat()["psize"]
    again = Environment(tmp_path)
    assert counted(again) == 1
    again.close()


def test_a_forked_child_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fork the child may neither use the environment nor close it for its parent."""
    env = Environment(tmp_path)
    put(env, 1)
    pid = os.getpid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: pid + 1)
        with pytest.raises(LedgerClosedError, match="fork"), env.reading():
            pass
        env.close()

    assert 1 == counted(env)
    env.close()


@pytest.mark.parametrize("damage", ["cut", "one page", "noise", "zeros"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    """A file that is no environment, or ends early, raises `CorruptStateError`, and never kills the process."""
    env = Environment(tmp_path)
    put(env, 100)
    env.close()
    path = tmp_path / "data.mdb"
    whole = path.read_bytes()
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "one page": whole[:4096],
            "noise": bytes(range(256)) * (len(whole) // 256),
            "zeros": bytes(len(whole)),
        }[damage]
    )
    with pytest.raises(CorruptStateError, match="cannot be opened"):
        Environment(tmp_path)


@pytest.mark.parametrize("rest", [0, 1, 1000])
def test_rows_with_a_prefix(tmp_path: Path, rest: int) -> None:
    """They are found in order and deleted, and their neighbours are not."""
    env = Environment(tmp_path)
    table = table_of(env)
    keys = [b"a", b"b", *(b"b%04d" % at for at in range(rest)), b"c", b"\xff", b"\xff\xff"]

    def change(txn: environment.Transaction) -> Any:
        for key in keys:
            txn.put(key, b"v" + key, db=table)
        found = [key for key, _ in prefixed(txn, table, b"b")]
        drop_prefixed(txn, table, b"b")
        none = list(prefixed(txn, table, b"bb"))
        kept = [bytes(key) for key, _ in txn.cursor(table)]
        drop_prefixed(txn, table, b"\xff")
        return found, none, kept, [bytes(key) for key, _ in txn.cursor(table)]

    found, none, kept, last = env.update(change)
    env.close()

    assert keys[1:-3] == found
    assert [] == none
    assert [b"a", b"c", b"\xff", b"\xff\xff"] == kept
    assert [b"a", b"c"] == last
