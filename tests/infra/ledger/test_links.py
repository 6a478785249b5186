"""Links to chats: who makes them, what they open, and that they open nothing once they are revoked, over, or without their chat."""

from pathlib import Path

import pytest

import chatledger
from chatledger import AccessDeniedError, InvalidValueError, Ledger, user
from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.limits import MAX_LINKS
from chatledger.domain.values import Link
from chatledger.errors import BranchNotFoundError, ChatNotFoundError, MessageNotFoundError


@pytest.fixture
def ledger() -> Ledger:
    """A chat of ada's, with two messages and another branch, which bob reads."""
    ledger = chatledger.open("memory:")
    ledger.create_chat("trip", "ada", members={"bob": "reader", "cy": "writer"})
    ledger.append("trip", [user("one", id="m1"), user("two", id="m2")])
    ledger.create_branch("trip", "side", "m1")
    return ledger


def secret_of(link: Link) -> str:
    """The last part of the path of a new link."""
    assert link.path is not None
    return link.path.rpartition("/")[2]


def test_a_secret_opens_its_link_until_it_is_revoked(ledger: Ledger) -> None:
    made = ledger.create_link("trip", branch="side")
    other = ledger.create_link("trip", until="m1", ttl_seconds=60)
    assert made.path == f"/shared/trip/{secret_of(made)}"
    assert other.expires_at is not None
    assert 59_000 < other.expires_at - other.created_at <= 60_000

    listed = ledger.links("trip")
    assert [(link.id, link.branch, link.until, link.path) for link in listed] == [
        (made.id, "side", None, None),
        (other.id, None, "m1", None),
    ]
    assert ledger.get_link("trip", secret_of(made)) == listed[0]
    ledger.rename_branch("trip", "side", "aside")
    ledger.rebuild()
    opened = ledger.get_link("trip", secret_of(made))
    assert opened is not None
    assert opened.branch == "aside"

    assert ledger.revoke_link("trip", made.id)
    assert not ledger.revoke_link("trip", made.id)
    assert ledger.get_link("trip", secret_of(made)) is None
    assert ledger.get_link("trip", secret_of(other)) == listed[1]
    ledger.verify()


def test_nothing_else_opens_a_link(ledger: Ledger) -> None:
    """Neither its id, nor another chat's secret, nor text of any other kind does."""
    made = ledger.create_link("trip")
    ledger.create_chat("other", "ada")
    for chat_id, secret in (
        *[("trip", made.id), ("trip", ""), ("trip", "\ud800"), ("trip", secret_of(made) + "=")],
        *[("other", secret_of(made)), ("gone", secret_of(made)), ("x" * 5000, secret_of(made))],
    ):
        assert ledger.get_link(chat_id, secret) is None


def test_links_end_with_their_time_their_branch_and_their_chat(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    brief, of_branch, forever = (
        ledger.create_link("trip", ttl_seconds=60),
        ledger.create_link("trip", branch="side"),
        ledger.create_link("trip"),
    )
    ledger.delete_branch("trip", "side")
    assert ledger.get_link("trip", secret_of(of_branch)) is None
    assert [link.id for link in ledger.links("trip")] == [brief.id, forever.id]

    monkeypatch.setattr("chatledger.infra.ledger.links.clock_ms", lambda: brief.expires_at)
    assert ledger.get_link("trip", secret_of(brief)) is None
    assert [link.id for link in ledger.links("trip")] == [forever.id]

    ledger.hold("chat", "trip")
    assert ledger.get_link("trip", secret_of(forever)) is not None
    ledger.release("chat", "trip")
    ledger.delete_chat("trip")
    ledger.create_chat("trip", "ada")
    assert ledger.get_link("trip", secret_of(forever)) is None
    assert not ledger.links("trip")


def test_only_the_owner_makes_and_revokes_links(ledger: Ledger) -> None:
    made = ledger.for_user("ada").create_link("trip")
    for name in ("bob", "cy"):
        view = ledger.for_user(name)
        with pytest.raises(AccessDeniedError, match="share it by links"):
            view.create_link("trip")
        with pytest.raises(AccessDeniedError, match="share it by links"):
            view.revoke_link("trip", made.id)
        assert [link.id for link in view.links("trip")] == [made.id]
    stranger = ledger.for_user("eve")
    with pytest.raises(ChatNotFoundError):
        stranger.create_link("trip")
    assert not stranger.revoke_link("trip", made.id)
    assert not stranger.links("trip")
    assert stranger.get_link("trip", secret_of(made)) is None


def test_links_that_make_no_sense_are_refused(ledger: Ledger) -> None:
    with pytest.raises(ChatNotFoundError):
        ledger.create_link("gone")
    with pytest.raises(BranchNotFoundError):
        ledger.create_link("trip", branch="gone")
    with pytest.raises(MessageNotFoundError):
        ledger.create_link("trip", until="gone")
    with pytest.raises(InvalidValueError, match="either branch or until"):
        ledger.create_link("trip", branch="main", until="m1")
    with pytest.raises(InvalidValueError, match="would open nothing"):
        ledger.create_link("trip", expires_at=1)
    assert not ledger.links("trip")


def test_a_chat_has_so_many_links_that_hold(ledger: Ledger) -> None:
    """One that is over makes room for another one."""
    brief = ledger.create_link("trip", ttl_seconds=0.001)
    for _ in range(MAX_LINKS):
        ledger.create_link("trip")
    with pytest.raises(InvalidValueError, match="revoke one first"):
        ledger.create_link("trip")
    assert len(ledger.links("trip")) == MAX_LINKS
    assert brief.id not in {link.id for link in ledger.links("trip")}


def test_the_secret_is_in_no_file(tmp_path: Path) -> None:
    """Who gets the log opens nothing by it."""
    with chatledger.open(tmp_path) as ledger:
        ledger.create_chat("trip", "ada")
        made = ledger.create_link("trip")
    contents = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(made.id.encode() in content for content in contents)
    assert not any(secret_of(made).encode() in content for content in contents)


def test_a_copy_of_a_chat_has_no_links(ledger: Ledger) -> None:
    made = ledger.create_link("trip")
    (exported,) = ledger.export_all()
    assert isinstance(exported, ImportedChat)
    with chatledger.open("memory:") as elsewhere:
        elsewhere.import_chat(exported)
        assert not elsewhere.links("trip")
        assert elsewhere.get_link("trip", secret_of(made)) is None
    ledger.fork_chat("trip", "m2", new_chat_id="fork")
    assert not ledger.links("fork")
