"""Pulls: what one ledger has and another lacks, taken over event by event, or merged where both went on; all come to have the same."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import count, permutations
from pathlib import Path
from typing import IO

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.proof_world import fill
from tests.support.soak import examples
from tests.support.sync_world import EDITS, LEDGERS, begin, edit, heads, pull_until_quiet, what_is_told

import chatledger
from chatledger import ANY, Ledger, Message, assistant, user
from chatledger.admin import PullReport
from chatledger.domain.proof.head_sums import bucket_sums, rows_below, sums_under
from chatledger.errors import (
    AccessDeniedError,
    ChatledgerError,
    HeldError,
    InvalidValueError,
    LogUnavailableError,
)
from chatledger.importers import ImportedBranch, ImportedChat
from chatledger.infra.ledger import sync
from chatledger.infra.ledger.peers import ChatStanding, Heads, HeadSums, LedgerPeer, Settlement

LARGE = "leeks " * 60_000


@pytest.fixture
def laptop() -> Iterator[Ledger]:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada", title="Lisbon")
        ledger.append("trip", [user("Where?", id="m1"), assistant("Lisbon.", id="m2")])
        yield ledger


@pytest.fixture
def office(laptop: Ledger) -> Iterator[Ledger]:
    """A ledger that has what the laptop has."""
    with chatledger.open("memory:") as ledger:
        ledger.pull(laptop, name="laptop")
        yield ledger


def outcomes(pulled: PullReport) -> dict[str, str]:
    return {chat.chat_id: chat.outcome for chat in pulled.chats}


def message_of(ledger: Ledger, message_id: str) -> Message:
    message = ledger.get_message(message_id)
    assert message is not None
    return message


def chain(ledger: Ledger, chat_id: str = "trip") -> list[tuple[int, bytes]]:
    return [(event.version, event.hash) for event in ledger.history(chat_id)]


def test_chats_of_all_kinds_come_with_ids_times_and_hashes() -> None:
    """Also one that was begun anew, redacted messages and large data; a repeated pull has nothing to do."""
    with chatledger.open("memory:") as laptop, chatledger.open("memory:") as office:
        fill(laptop, chats="ab", messages=3)
        laptop.create_chat("big", "ada")
        laptop.append("big", [user(LARGE, id="l1"), user("secret", id="l2")])
        laptop.redact("l2")
        pulled = office.pull(laptop, name="laptop")
        assert outcomes(pulled) == dict.fromkeys(["a", "b", "big", "gone", "last"], "new")
        assert pulled.compared == 5
        for chat_id in outcomes(pulled):
            assert office.export_chat(chat_id) == laptop.export_chat(chat_id)
            assert chain(office, chat_id) == chain(laptop, chat_id)
        office.verify()
        assert office.pull(laptop, name="laptop").chats == ()
        assert laptop.pull(office, name="office").chats == ()


def test_a_chat_that_only_the_other_went_on_with_is_continued(laptop: Ledger, office: Ledger) -> None:
    laptop.append("trip", [user("When?", id="m3")])
    (planned,) = office.pull(laptop, name="laptop", dry_run=True).chats
    assert (planned.outcome, planned.events) == ("continued", 1)
    assert len(office.get_messages("trip")) == 2
    (chat,) = office.pull(laptop, name="laptop").chats
    assert (chat.outcome, chat.events, chat.messages) == ("continued", 1, 1)
    assert chat.tip == list(laptop.history("trip"))[-1].hash.hex()
    assert chain(office) == chain(laptop)
    assert laptop.pull(office, name="office").chats == ()


def test_where_both_went_on_nothing_is_lost_and_nobody_wins(laptop: Ledger, office: Ledger) -> None:
    laptop.append("trip", [user("By train?", id="l1")])
    laptop.set_checkpoint("trip", "asked", "l1")
    laptop.create_branch("trip", "cheap", "m2")
    laptop.append("trip", [user("By bus?", id="l2")], branch="cheap")
    office.append("trip", [user("By plane?", id="o1")])
    (chat,) = office.pull(laptop, name="laptop").chats
    assert (chat.outcome, chat.messages, set(chat.branches)) == ("merged", 2, {"laptop/main", "cheap"})
    assert heads(office) == {"main": "o1", "laptop/main": "l1", "cheap": "l2"}
    assert [checkpoint.message_id for checkpoint in office.graph("trip").checkpoints] == ["l1"]
    assert outcomes(laptop.pull(office, name="office")) == {"trip": "merged"}
    assert heads(laptop) == {"main": "l1", "office/main": "o1", "cheap": "l2"}
    assert (office.pull(laptop, name="laptop").chats, laptop.pull(office, name="office").chats) == ((), ())

    laptop.append("trip", [assistant("Yes.", id="l3")])
    (chat,) = office.pull(laptop, name="laptop").chats
    assert (chat.messages, chat.branches) == (1, ("laptop/main",)), "it goes on where it was"
    assert heads(office)["laptop/main"] == "l3"
    office.verify()


def test_a_branch_that_only_the_other_went_on_with_moves_on(laptop: Ledger, office: Ledger) -> None:
    laptop.update_chat("trip", title="Porto")
    office.append("trip", [user("When?", id="o1")])
    (chat,) = laptop.pull(office, name="office").chats
    assert (chat.outcome, chat.branches) == ("merged", ("main",))
    assert heads(laptop) == {"main": "o1"}
    assert laptop.export_chat("trip").title == "Porto", "what is here stays"


def test_what_the_other_merged_with_its_own_is_gone_on_with(laptop: Ledger, office: Ledger) -> None:
    """The other's branch came as another one, as chains follow first parents, and the merge had to be done here again."""
    laptop.append("trip", [user("By train?", id="l1")])
    office.append("trip", [user("By plane?", id="o1")])
    office.pull(laptop, name="laptop")
    merged = office.merge("trip", "laptop/main", summary="By train, then.").messages[-1].id
    office.append("trip", [user("When?", id="o2")])
    (chat,) = laptop.pull(office, name="office").chats
    assert (chat.outcome, chat.branches) == ("merged", ("main",))
    assert heads(laptop) == {"main": "o2"}
    assert message_of(laptop, merged).merged_from == ("l1",)
    assert (office.pull(laptop, name="laptop").chats, laptop.pull(office, name="office").chats) == ((), ())
    assert what_is_told(laptop, "trip") == what_is_told(office, "trip")

    office.append("trip", [user("In May.", id="o3")])
    laptop.append("trip", [user("In June.", id="l2")])
    laptop.pull(office, name="office")
    laptop.merge("trip", "office/main", how="rebase")
    office.pull(laptop, name="laptop")
    assert heads(office)["main"] == heads(laptop)["main"], "also where only the tail travels, with the merge in it"
    for ledger in (laptop, office):
        ledger.verify()


def test_a_branch_that_was_set_back_after_it_came_keeps_both_ends(laptop: Ledger, office: Ledger) -> None:
    office.append("trip", [user("o", id="o1")])
    laptop.append("trip", [user("l", id="l1")])
    office.pull(laptop, name="laptop")
    laptop.move_head("trip", "main", "m2", expected=ANY)
    laptop.append("trip", [user("another", id="l2")])
    (chat,) = office.pull(laptop, name="laptop").chats
    assert chat.branches == ("laptop/main-2",)
    assert heads(office) == {"main": "o1", "laptop/main": "l1", "laptop/main-2": "l2"}


@pytest.mark.parametrize("goes_on", [False, True], ids=["continued", "merged"])
@pytest.mark.parametrize("keep", [None, "gone"])
def test_what_was_redacted_there_is_redacted_here(
    laptop: Ledger, tmp_path: Path, *, goes_on: bool, keep: str | None
) -> None:
    location = f"sqlite:///{tmp_path}/office.db"
    with chatledger.open(location) as office:
        laptop.append("trip", [user("my card is 4711", id="m3")])
        office.pull(laptop, name="laptop")
        if goes_on:
            office.append("trip", [user("o", id="o1")])
        laptop.redact("m3", keep=keep, reason="a card")
        assert outcomes(office.pull(laptop, name="laptop")) == {"trip": "merged" if goes_on else "continued"}
        message = message_of(office, "m3")
        assert message.redacted is not None
        assert (message.redacted.reason, message.text) == ("a card", keep or "[redacted]")
        assert office.pull(laptop, name="laptop").chats == ()
        office.wait_erased()
        office.verify()
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"card is 4711" not in path.read_bytes(), path


def test_what_was_redacted_here_stays_redacted(laptop: Ledger, office: Ledger) -> None:
    office.redact("m1")
    laptop.append("trip", [user("l", id="l1")])
    assert outcomes(office.pull(laptop, name="laptop")) == {"trip": "merged"}
    assert message_of(office, "m1").data is None
    assert heads(office) == {"main": "l1"}


def test_deletions_travel_and_win(laptop: Ledger, office: Ledger) -> None:
    office.append("trip", [user("o", id="o1")])
    laptop.delete_chat("trip")
    assert outcomes(laptop.pull(office, name="office")) == {"trip": "left"}
    assert laptop.get_chat("trip") is None
    assert outcomes(office.pull(laptop, name="laptop")) == {"trip": "deleted"}
    assert office.get_chat("trip") is None
    assert (office.pull(laptop, name="laptop").chats, laptop.pull(office, name="office").chats) == ((), ())


def test_a_chat_of_the_same_id_that_was_begun_after_the_deletion_is_another_one(laptop: Ledger, office: Ledger) -> None:
    laptop.delete_chat("trip")
    with chatledger.open("memory:") as other:
        other.create_chat("trip", "ben")
        assert other.pull(laptop, name="laptop").chats == ()
        assert other.get_chat("trip") is not None
    laptop.create_chat("trip", "ada", title="Anew")
    laptop.append("trip", [user("again", id="n1")])
    office.append("trip", [user("o", id="o1")])
    assert outcomes(laptop.pull(office, name="office")) == {"trip": "left"}
    assert outcomes(office.pull(laptop, name="laptop")) == {"trip": "replaced"}
    assert [message.id for message in office.get_messages("trip")] == ["n1"]
    assert (office.pull(laptop, name="laptop").chats, laptop.pull(office, name="office").chats) == ((), ())


class _Unreachable(LedgerPeer):
    """A ledger whose chats cannot be read any more."""

    def export_chat(self, chat_id: str, after: int = 0) -> ImportedChat:
        raise LogUnavailableError(chat_id)


def test_a_chat_stays_until_what_takes_its_place_is_here(laptop: Ledger, office: Ledger) -> None:
    """It was deleted first, and of what the other side did not answer nothing was left."""
    laptop.delete_chat("trip")
    laptop.create_chat("trip", "ada", title="Anew")
    laptop.create_branch("trip", "side", None, activate=True)
    laptop.append("trip", [user("again", id="n1")])
    office.append("trip", [user("o", id="o1")])
    with pytest.raises(LogUnavailableError):
        office.pull(_Unreachable(laptop), name="laptop")
    assert [message.id for message in office.get_messages("trip")] == ["m1", "m2", "o1"]
    assert outcomes(office.pull(laptop, name="laptop")) == {"trip": "replaced"}
    assert office.export_chat("trip").branches == laptop.export_chat("trip").branches


def test_a_legal_hold_keeps_what_was_deleted_there(laptop: Ledger, office: Ledger) -> None:
    office.hold("chat", "trip", reason="a case")
    laptop.delete_chat("trip")
    assert outcomes(office.pull(laptop, name="laptop")) == {"trip": "held"}
    assert office.get_chat("trip") is not None


def test_what_a_user_may_not_see_does_not_travel(laptop: Ledger) -> None:
    laptop.create_chat("secret", "ben")
    with chatledger.open("memory:") as office:
        assert outcomes(office.pull(laptop.for_user("ada"), name="laptop")) == {"trip": "new"}
        office.create_chat("mine", "ada")
        assert office.pull(laptop.for_user("ada"), name="laptop").chats == ()
        with pytest.raises(AccessDeniedError):
            office.for_user("ada").pull(laptop, name="laptop")


def test_only_the_named_chats_are_pulled(laptop: Ledger) -> None:
    laptop.create_chat("other", "ada")
    with chatledger.open("memory:") as office:
        assert outcomes(office.pull(laptop, name="laptop", chat_ids=["trip", "absent"])) == {"trip": "new"}
        assert office.get_chat("other") is None


def test_a_ledger_does_not_pull_from_itself_or_without_a_name(laptop: Ledger, office: Ledger) -> None:
    with pytest.raises(InvalidValueError, match="the same ledger"):
        laptop.pull(laptop.for_user("ada"), name="me")
    with pytest.raises(InvalidValueError):
        office.pull(laptop, name="")
    with pytest.raises(InvalidValueError, match="an open ledger"):
        office.pull("sqlite:///laptop.db", name="laptop")  # type: ignore[arg-type]


def test_a_chat_that_cannot_be_here_is_named_and_the_others_come(laptop: Ledger) -> None:
    """The whole pull failed, each time again, because of one chat."""
    laptop.create_chat("other", "ada")
    with chatledger.open("memory:") as office:
        office.create_chat("else", "ada")
        office.append("else", [user("mine", id="m2")])
        pulled = office.pull(laptop, name="laptop")
        assert outcomes(pulled) == {"other": "new", "trip": "refused"}
        assert "m2" in str(pulled.chats[1].why)
        assert office.get_chat("trip") is None
        office.delete_chat("else")
        assert outcomes(office.pull(laptop, name="laptop")) == {"trip": "new"}


def test_what_is_held_here_is_not_redacted_or_deleted_by_a_pull(laptop: Ledger, office: Ledger) -> None:
    """An error said that nothing was redacted, and the chats after it did not come. Events that delete came though it was held."""
    laptop.redact("m1", reason="a card")
    laptop.create_chat("zoo", "ada")
    office.append("trip", [user("o", id="o1")])
    office.hold("user", "ada", reason="a case")
    pulled = office.pull(laptop, name="laptop")
    assert outcomes(pulled) == {"trip": "held", "zoo": "new"}
    assert "put on its owner" in str(pulled.chats[0].why)
    assert message_of(office, "m1").text == "Where?"
    laptop.delete_chat("zoo")
    assert outcomes(office.pull(laptop, name="laptop")) == {"trip": "held", "zoo": "held"}
    assert office.get_chat("zoo") is not None
    assert office.verify().broken_holds == ()
    office.release("user", "ada")
    assert outcomes(office.pull(laptop, name="laptop")) == {"trip": "merged", "zoo": "deleted"}
    assert message_of(office, "m1").redacted is not None


def test_legal_holds_come_and_are_released_by_each(laptop: Ledger, office: Ledger) -> None:
    """What is held there is not deleted here, also where it was not held when it came, or comes only now."""
    laptop.create_chat("new", "eve")
    laptop.hold("chat", "new", reason="a case")
    laptop.hold("user", "ada")
    pulled = office.pull(laptop, name="laptop")
    assert {(hold.kind, hold.id) for hold in pulled.holds} == {("chat", "new"), ("user", "ada")}
    assert set(office.holds()) == set(laptop.holds())
    assert (chain(office), chain(office, "new")) == (chain(laptop), chain(laptop, "new"))
    for chat_id in ("trip", "new"):
        with pytest.raises(HeldError):
            office.delete_chat(chat_id)
    assert office.pull(laptop, name="laptop") == PullReport(compared=2, chats=())
    office.release("chat", "new")
    assert office.pull(laptop, name="laptop").holds == ()
    assert [hold.id for hold in office.holds()] == ["ada"], "it was released here after it was put there"
    laptop.release("chat", "new")
    laptop.hold("chat", "new", reason="another case")
    assert [hold.reason for hold in office.pull(laptop, name="laptop").holds] == ["another case"]
    assert laptop.pull(office.for_user("ada"), name="office").holds == ()
    office.verify()


def test_a_pull_that_was_killed_after_a_deletion_brings_what_takes_its_place(laptop: Ledger, office: Ledger) -> None:
    """It had deleted the chat as of now, which was after the other had begun: for ever, and everywhere."""
    with chatledger.open("memory:") as phone:
        laptop.delete_chat("trip")
        laptop.create_chat("trip", "ada", title="Anew")
        laptop.append("trip", [user("again", id="n1")])
        phone.pull(laptop, name="laptop")
        ended = LedgerPeer(laptop).standings({"trip": 0})["trip"].ended
        office.append("trip", [user("o", id="o1")])
        half = Settlement(chat_id="trip", outcome="deleted", name="laptop", tip="", ended=ended)
        assert LedgerPeer(office).settle(half, None) is not None
        assert office.get_chat("trip") is None
        assert phone.pull(office, name="office").chats == ()
        assert outcomes(office.pull(laptop, name="laptop")) == {"trip": "new"}
        for ledger in (office, phone):
            assert [message.id for message in ledger.get_messages("trip")] == ["n1"]
        assert phone.pull(office, name="office").chats == ()
        office.verify()


class _Watched(LedgerPeer):
    """A ledger that knows what it was asked for, and that a link to it breaks after some bundles."""

    def __init__(self, ledger: Ledger, bundles: int = 1_000) -> None:
        super().__init__(ledger)
        self.asked_standings: list[str] = []
        self.exported: list[list[str]] = []
        self._left = bundles

    def standings(self, versions: Mapping[str, int]) -> dict[str, ChatStanding]:
        self.asked_standings += versions
        return super().standings(versions)

    def export_chat(self, chat_id: str, after: int = 0) -> ImportedChat:
        chat = super().export_chat(chat_id, after)
        self.exported.append([message.id for message in chat.messages])
        return chat

    def write_bundle(self, known: Mapping[str, int], stream: IO[bytes], most: int) -> bool:
        self._left -= 1
        if self._left < 0:
            msg = "the link"
            raise LogUnavailableError(msg)
        return super().write_bundle(known, stream, most)


class _Asked(LedgerPeer):
    """A ledger that knows of how many chats it was asked for the last events, and how often for sums."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.places: list[int] = []
        self.shown: list[str] = []

    def sums(self, under: Sequence[str]) -> HeadSums:
        self.places.append(len(under))
        return super().sums(under)

    def heads(self, chat_ids: Sequence[str], buckets: Sequence[str] = ()) -> Heads:
        heads = super().heads(chat_ids, buckets)
        self.shown += heads
        return heads


def test_ledgers_that_are_equal_are_compared_once_and_others_where_they_differ() -> None:
    """A row of each chat was compared, whatever had changed."""
    with chatledger.open("memory:") as laptop, chatledger.open("memory:") as office:
        for number in range(300):
            laptop.create_chat(f"chat {number}", "ada" if number % 3 else "ben")
        office.pull(laptop, name="laptop")
        asked = _Asked(laptop)
        assert office.pull(asked, name="laptop") == PullReport(compared=300, chats=())
        assert (asked.places, asked.shown) == ([0], [])

        laptop.append("chat 7", [user("7")])
        office.append("chat 8", [user("8")])
        laptop.delete_chat("chat 9")
        laptop.create_chat("chat 300", "ada")
        assert outcomes(office.pull(asked, name="laptop")) == {
            "chat 7": "continued",
            "chat 9": "deleted",
            "chat 300": "new",
        }
        assert asked.places == [0, 0, 1, 4]
        assert {"chat 7", "chat 8", "chat 300"} <= set(asked.shown)
        assert len(asked.shown) < 10, "and what lies beside them"

        of_ada = _Asked(laptop.for_user("ada"))
        with chatledger.open("memory:") as phone:
            assert len(phone.pull(of_ada, name="laptop").chats) == 201
            assert phone.pull(of_ada, name="laptop") == PullReport(compared=201, chats=())
            assert of_ada.places[-1] == 0
        laptop.verify()
        office.verify()


def test_the_index_has_the_sums_of_what_it_has(laptop: Ledger) -> None:
    """Through all kinds of changes, and after it was built anew."""
    laptop.create_chat("other", "ben")
    laptop.append("other", [user("o", id="o1")])
    laptop.create_branch("trip", "side", "m1")
    laptop.redact("m1")
    laptop.delete_chat("other")
    laptop.create_chat("other", "ben")
    peer = LedgerPeer(laptop)
    kept = peer.sums([""])
    shown = {chat.id: list(laptop.history(chat.id))[-1] for chat in laptop.list_chats()}
    heads = {chat_id: (event.version, event.hash.hex()) for chat_id, event in shown.items()}
    assert peer.heads((), list(peer.sums(list(kept.sums)).sums)) == heads
    assert kept.chats == len(heads)
    assert kept.sums == sums_under(partial(rows_below, bucket_sums(heads)), [""])
    laptop.rebuild()
    assert peer.sums([""]) == kept


@pytest.mark.parametrize("both_went_on", [False, True])
def test_copies_that_only_this_ledger_made_are_redacted_too(
    laptop: Ledger,
    office: Ledger,
    both_went_on: bool,  # noqa: FBT001 - a parameter
) -> None:
    """They kept what was redacted."""
    laptop.fork_chat("trip", "m2", new_chat_id="both", user_id="ada")
    office.pull(laptop, name="laptop")
    office.fork_chat("trip", "m2", new_chat_id="own", user_id="ada")
    office.fork_chat("own", office.get_messages("own")[-1].id, new_chat_id="own of own", user_id="ada")
    if both_went_on:
        office.create_branch("trip", "side", "m1")
        office.append("trip", [user("more", id="s1")], branch="side")
        laptop.append("trip", [user("l", id="l1")])
    laptop.redact("m2", reason="a request", copies=False)
    pulled = office.pull(laptop, name="laptop")
    assert outcomes(pulled) == {"trip": "merged" if both_went_on else "continued"}
    for chat_id in ("own", "own of own"):
        first, second = office.get_messages(chat_id)
        assert first.text == "Where?"
        assert second.redacted is not None
        assert (second.redacted.reason, second.data) == ("a request", None)
    copies = {office.get_messages(chat_id)[1].id: chat_id for chat_id in ("own", "own of own")}
    assert [chat.copies for chat in pulled.chats] == [copies]
    assert [message.text for message in office.get_messages("both")] == ["Where?", "Lisbon."], (
        "as the laptop let it stay"
    )
    assert office.pull(laptop, name="laptop").chats == ()
    office.verify()


def test_copies_in_one_chat_of_what_was_redacted_in_several_steps(
    laptop: Ledger, office: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the last step took the place of the others, which kept what was redacted."""
    office.fork_chat("trip", "m2", new_chat_id="own", user_id="ada")
    laptop.redact("m1", reason="first")
    laptop.redact("m2", reason="second", keep="[taken out]")
    monkeypatch.setattr(sync, "EVENTS_TOGETHER", 1)
    (pulled,) = office.pull(laptop, name="laptop").chats
    copies = office.get_messages("own")
    assert pulled.copies == {message.id: "own" for message in copies}
    assert [(message.data, message.redacted and message.redacted.reason) for message in copies] == [
        (None, "first"),
        ("[taken out]", "second"),
    ]


def test_a_copy_that_is_held_stays(laptop: Ledger, office: Ledger) -> None:
    office.fork_chat("trip", "m2", new_chat_id="own", user_id="ada")
    office.hold("chat", "own", reason="a case")
    laptop.redact("m2")
    pulled = office.pull(laptop, name="laptop")
    assert [chat.copies for chat in pulled.chats] == [{}]
    assert office.get_messages("own")[1].text == "Lisbon."


def test_of_a_merged_chat_only_what_is_new_is_read(laptop: Ledger, office: Ledger) -> None:
    """It was read whole each time."""
    laptop.append("trip", [user("l", id="l1")])
    office.append("trip", [user("o", id="o1")])
    office.pull(laptop, name="laptop")
    watched = _Watched(laptop)
    assert office.pull(watched, name="laptop").chats == ()
    assert (watched.asked_standings, watched.exported) == ([], [])

    laptop.append("trip", [user("l", id="l2"), assistant("l", id="l3")])
    laptop.create_branch("trip", "side", "m1")
    laptop.append("trip", [user("s", id="s1")], branch="side")
    laptop.redact("m2")
    laptop.annotate("trip", "m1", metadata={"seen": True})
    laptop.record_run("trip", thread_id="t", assistant_id="a", trigger_message_id="l1", run_id="r1")
    assert outcomes(office.pull(watched, name="laptop")) == {"trip": "merged"}
    assert watched.exported == [["m1", "m2", "l1", "l2", "l3", "s1"]]
    laptop.append("trip", [assistant("l", id="l4")])
    office.pull(watched, name="laptop")
    assert sorted(watched.exported[1]) == ["l4", "s1"]
    assert heads(office) == {"main": "o1", "laptop/main": "l4", "side": "s1"}
    assert message_of(office, "m2").redacted is not None
    assert [run.run_id for run in office.export_chat("trip").runs] == ["r1"]
    assert office.pull(watched, name="laptop").chats == ()
    office.verify()


def test_a_long_chat_comes_in_steps_and_goes_on_where_it_was_cut(
    laptop: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "EVENTS_TOGETHER", 4)
    for number in range(10):
        laptop.append("trip", [user("l", id=f"l{number}")])
    branches = [ImportedBranch(name=f"b{number}", head_message_id="m1") for number in range(9)]
    exported = laptop.export_chat("trip")
    laptop.import_chat(msgspec.structs.replace(exported, branches=(*exported.branches, *branches)))  # one commit
    laptop.update_chat("trip", title="at last")
    done: list[tuple[int, int]] = []
    with chatledger.open("memory:") as office:
        with pytest.raises(LogUnavailableError):
            office.pull(_Watched(laptop, bundles=2), name="laptop")
        assert chain(office) == chain(laptop)[:8]
        (chat,) = office.pull(laptop, name="laptop", progress=lambda *at: done.append(at)).chats
        assert (chat.outcome, chat.events, chat.messages) == ("continued", 14, 4)
        assert done == [(0, 1), (1, 1)]
        assert chain(office) == chain(laptop)
        office.verify()


def test_a_ledger_at_rest_has_no_events_to_pull(tmp_path: Path) -> None:
    location = f"sqlite:///{tmp_path}/a.db"
    with chatledger.open(location) as laptop:
        laptop.create_chat("trip", "ada")
        laptop.append("trip", [user(LARGE, id="m1")])
    with chatledger.open(location, read_only=True) as laptop, chatledger.open("memory:") as office:
        with pytest.raises(AccessDeniedError, match="read_only"):
            office.pull(laptop, name="laptop")
        assert office.list_chats() == []


@pytest.mark.anyio
async def test_an_async_ledger_pulls(laptop: Ledger) -> None:
    async with chatledger.open_async("memory:") as office:
        assert outcomes(await office.pull(laptop, name="laptop")) == {"trip": "new"}


steps = st.lists(
    st.tuples(
        st.sampled_from(LEDGERS),
        st.sampled_from(EDITS),
        st.integers(0, 9),
    ),
    max_size=14,
)


@settings(max_examples=examples(200), deadline=None)
@given(steps, st.permutations(list(permutations(LEDGERS, 2))))
def test_all_come_to_have_the_same(steps: list[tuple[str, str, int]], order: list[tuple[str, str]]) -> None:
    """Any edits of three ledgers, and any pulls between; then pulls until nothing changes: the same messages, and the same ends."""
    with ExitStack() as stack:
        ledgers = {name: stack.enter_context(closing(chatledger.open("memory:"))) for name in LEDGERS}
        begin(ledgers)
        numbers = count(1)
        for name, step, number in steps:
            edit(ledgers, name, step, number, lambda: str(next(numbers)))
        pull_until_quiet(ledgers, order)


def test_errors_are_of_the_ledger(laptop: Ledger) -> None:
    """A closed source is said in words."""
    with chatledger.open("memory:") as office:
        other = chatledger.open("memory:")
        other.close()
        with pytest.raises(ChatledgerError, match="closed"):
            office.pull(other, name="other")
