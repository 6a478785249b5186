"""The acceptance scenarios of the requirements (SM 2.7, PS 3.9) that need size, threads or files, on the embedded default."""

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.store_world import together
from tests.support.ledger_world import check_chat, check_lists, ids, internals, length, snapshot, text, texts

import chatledger
from chatledger import Ledger
from chatledger.domain.log.large_data import MAX_MESSAGE_BYTES
from chatledger.errors import PayloadTooLargeError, UpdateConflictError

CHUNK = 10_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "u")
        yield ledger


def test_fork_names_from_two_threads(ledger: Ledger) -> None:
    """Forks made at once all succeed, with different names; the rule steps over a name that is taken (SM 8)."""
    ledger.append("c", [text("root", id="root")])
    ledger.create_branch("c", "main-v3", None)

    assert ledger.fork("c", "root", activate=False).name == "main-v4"
    for _ in range(10):
        made = together(2, lambda _: ledger.fork("c", "root", activate=False).name)
        assert len(set(made)) == 2
    check_chat(ledger, "c")


@pytest.mark.soak
def test_a_chain_of_250_000_messages(ledger: Ledger) -> None:
    """It is read as a whole, root first, and counted; its tail and pages too (SM 6)."""
    total = 250_000
    for start in range(0, total, CHUNK):
        ledger.append("c", [text(str(number), id=f"m{number}") for number in range(start, start + CHUNK)])
    chain = ledger.get_messages("c")

    assert len(chain) == total
    assert [message.text for message in chain] == [str(number) for number in range(total)]
    assert all(message.parent_id == previous.id for previous, message in pairwise(chain))
    assert ledger.get_messages("c", limit=50) == chain[-50:]
    assert ledger.get_chain("m1000", limit=2) == chain[999:1001]
    chat, (branch,) = ledger.get_chat("c"), ledger.list_branches("c")
    assert chat is not None
    assert chat.message_count == branch.message_count == total


@pytest.mark.soak
def test_rebuild_of_random_chats_gives_the_same_answers(ledger: Ledger, path: Path) -> None:
    """After random operations on 100 chats an index built anew, and one of a reopened ledger, say the same (PS 2)."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    chats = [f"chat {number}" for number in range(100)]
    for chat in chats:
        ledger.create_chat(chat, dice.choice("abc"), metadata={"n": dice.randrange(3)})
    for number in range(600):
        chat = dice.choice(chats)
        known = [node.id for node in ledger.graph(chat).nodes]
        action = dice.randrange(8)
        if action == 0 and number % 10 == 0:
            ledger.delete_chat(chat)
            ledger.create_chat(chat, "d")
        elif action == 1 and known:
            ledger.fork(chat, dice.choice(known))
        elif action == 2 and known:
            ledger.set_checkpoint(chat, dice.choice("xy"), dice.choice(known))
        elif action == 3 and known:
            ledger.move_head(chat, "main", dice.choice(known), expected=chatledger.ANY)
        elif action == 4:
            ledger.add_messages(chat, [text("side", parent_id=dice.choice([None, *known]))])
        elif action == 5:
            ledger.update_chat(chat, title=str(number))
        else:
            ledger.append(chat, [text(str(number)) for _ in range(dice.randrange(1, 5))])
    before = snapshot(ledger, chats), ledger.list_chats(), ledger.position
    ledger.rebuild()
    after = snapshot(ledger, chats), ledger.list_chats(), ledger.position
    ledger.close()
    with chatledger.open(path, durability="fast") as again:
        reopened = snapshot(again, chats), again.list_chats(), again.position
        for user in "abcd":
            check_lists(again, user, {chat.id for chat in before[1] if chat.user_id == user})
    with chatledger.open(path, index=path.with_name("new"), durability="fast") as again:
        fresh = snapshot(again, chats), again.list_chats(), again.position

    assert after == before
    assert reopened == before
    assert fresh == before


def test_deleted_text_is_in_no_file(ledger: Ledger, path: Path) -> None:
    """After deletion and `rebuild` no text of the chat is in any file of the data directory (PS 4)."""
    count = 2_000
    secret = "velocipede"
    ledger.create_chat("secret", "u", title=f"{secret} title", metadata={"k": f"{secret} metadata"})
    for start in range(0, count, 100):
        ledger.append("secret", [text(f"{secret} {number}") for number in range(start, start + 100)])
    ledger.append("secret", [text(f"{secret} alone")])
    ledger.create_branch("secret", f"{secret} branch", None)
    ledger.append("c", [text("kept")])
    assert any(secret.encode() in file.read_bytes() for file in files(path))
    assert ledger.delete_chat("secret") is True
    assert ledger.delete_chat("secret") is False
    ledger.rebuild()
    assert [file for file in files(path) if secret.encode() in file.read_bytes()] == []
    assert [event.type for event in ledger.history("secret")] == ["chat_deleted"]
    assert list(ledger.feed(0, chat_id="secret", follow=False)) == list(ledger.history("secret"))
    ledger.close()

    assert [file for file in files(path) if secret.encode() in file.read_bytes()] == []
    with chatledger.open(path, durability="fast") as again:
        assert again.get_chat("secret") is None
        assert texts(again, "c") == ["kept"]
        check_chat(again, "c")


def files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()]


@pytest.mark.soak
def test_deleting_50_000_messages(ledger: Ledger) -> None:
    """A large chat is deleted by one call (PS 4)."""
    for _ in range(5):
        ledger.append("c", [text("x") for _ in range(CHUNK)])

    assert ledger.delete_chat("c") is True
    assert ledger.delete_chat("c") is False
    assert ledger.get_chat("c") is None
    assert length(ledger) == 1


def test_an_updater_gives_up_at_its_deadline(ledger: Ledger) -> None:
    """When others are always faster, the update ends with `UpdateConflictError` and writes nothing."""

    def overtaken(chat: chatledger.Chat) -> dict[str, object]:
        ledger.append("c", [text("faster")])
        return {"title": "never"}

    with pytest.raises(UpdateConflictError, match="'c'"):
        ledger.update_chat("c", updater=overtaken, timeout_s=0.2)
    chat = ledger.get_chat("c")
    assert chat is not None
    assert chat.title is None


# Size


@pytest.mark.soak
def test_10_000_messages_are_one_commit(ledger: Ledger) -> None:
    """One append of 10,000 messages is one commit, whatever its number of events (PS-25)."""
    ledger.append("c", [text("x" * 300, id=f"m{number}") for number in range(CHUNK)])
    events = [event for event in ledger.history("c") if event.type == "message_appended"]

    assert len(events) > 1
    assert [event.event.rest for event in events] == list(range(len(events) - 1, -1, -1))
    assert ids(ledger.get_messages("c")) == [f"m{number}" for number in range(CHUNK)]


@pytest.mark.soak
def test_a_reader_sees_a_large_commit_as_a_whole(ledger: Ledger, path: Path) -> None:
    """While large commits are written, no index, history or feed shows a part of one."""
    size, sizes = 30, set[int]()
    with chatledger.open(path, index=path.with_name("reader"), durability="fast") as reader:
        reader.sync()

        def write() -> None:
            for _ in range(5):
                ledger.append("c", [text("x" * 200_000) for _ in range(size)])

        def read() -> None:
            while not sizes or max(sizes) < 5 * size:
                chat = reader.get_chat("c")
                assert chat is not None
                sizes.add(chat.message_count)
                assert len(reader.get_messages("c")) % size == 0
                history = list(reader.history())
                assert not history or history[-1].event.rest == 0
                reader.sync()

        together(2, lambda number: write() if number else read())
        feed = list(reader.feed(0, follow=False))

    assert {count % size for count in sizes} == {0}
    assert sum(event.event.rest == 0 for event in feed if event.type == "message_appended") == 5


@pytest.mark.soak
def test_a_message_over_the_limit(ledger: Ledger) -> None:
    """A message over 64 MiB is refused with its size, whatever comes with it; a title and metadata much earlier."""
    with pytest.raises(PayloadTooLargeError, match="'c'") as too_long:
        ledger.append("c", [text("small"), text("x" * MAX_MESSAGE_BYTES)])
    with pytest.raises(chatledger.InvalidValueError, match="metadata"):
        ledger.update_chat("c", metadata={"large": "x" * 1024 * 1024})
    with pytest.raises(chatledger.InvalidValueError, match="title"):
        ledger.create_chat("large", "u", title="x" * 1024 * 1024)
    assert too_long.value.size_bytes > too_long.value.limit_bytes == MAX_MESSAGE_BYTES
    assert length(ledger) == 1

    ledger.append("c", [text("x" * 1_040_000)])
    ledger.append("c", [text("x" * 1_030_000), text("y" * 1_130_000)])
    check_chat(ledger, "c")


@pytest.mark.guard
def test_a_commit_over_the_number_of_events(ledger: Ledger) -> None:
    """A call that takes more events than a commit may have is refused, and nothing is written."""
    large = "x" * 600_000
    with pytest.raises(chatledger.InvalidValueError, match="split it"):
        ledger.append("c", [text(large) for _ in range(1001)])

    assert length(ledger) == 1


@pytest.mark.parametrize("was_there", [True, False])
def test_upsert_chat_that_is_deleted_meanwhile(was_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """Whoever asks for a chat that is to be there gets one, also when somebody deletes it before it can be read."""
    with chatledger.open("memory:") as ledger:
        if was_there:
            ledger.create_chat("c", "u", title="old")
        store = internals(ledger)
        execute, is_first = store.execute, True

        def outrun(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_first
            answer = execute(*args, **kwargs)
            if is_first:
                is_first = False
                ledger.delete_chat("c")
            return answer

        monkeypatch.setattr(store, "execute", outrun)
        chat = ledger.upsert_chat("c", "u", title="new")

        assert (chat.id, chat.title) == ("c", "new")
        assert (ledger.get_chat("c") is not None) == was_there


@pytest.mark.parametrize("by", ["values", "an updater", "values that are there"])
def test_update_chat_that_is_deleted_meanwhile(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The update has happened, so it is answered, and not with an error that says that there is no such chat."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "u", title="old", metadata={"a": 1})
        store = internals(ledger)
        execute = store.execute

        def outrun(*args: Any, **kwargs: Any) -> Any:
            answer = execute(*args, **kwargs)
            if answer or by == "values that are there":
                monkeypatch.undo()
                ledger.delete_chat("c")
            return answer

        monkeypatch.setattr(store, "execute", outrun)
        if by == "an updater":
            chat = ledger.update_chat("c", updater=lambda _: {"title": "new"})
        else:
            chat = ledger.update_chat("c", title="new" if by == "values" else "old")

        assert (chat.title, chat.metadata) == ("old" if by == "values that are there" else "new", {"a": 1})
        assert ledger.get_chat("c") is None
