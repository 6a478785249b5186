"""The page of coding agents' sessions: what is kept, filtered and searched, in pages that cost the same."""

import shlex
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from tests.support.coding_agents import CLAUDE, SESSION, as_bytes, claude_file
from tests.support.explorer_world import pages_of

import chatledger
from chatledger import assistant, user
from chatledger.infra.entrypoints.cli.app import cli
from chatledger.infra.entrypoints.http.access import Principal

AGENTS = ("claude-code", "codex", "pi")


@pytest.fixture(scope="module")
def kept() -> Generator[chatledger.AsyncLedger]:
    """130 sessions of three agents in four folders, every fifth of a subagent, and a chat that is none."""
    ledger = chatledger.open_async("memory:")
    with ledger.blocking() as blocking:
        blocking.create_chat("talk", "ada", title="Fado in Lisbon")
        for number in range(130):
            agent = AGENTS[number % 3]
            told = {"agent": agent, "session": f"s{number}", "cwd": f"/src/trip{number % 4}", "git_branch": "fast"}
            told |= {"parent": "s0"} if number % 5 == 0 else {}
            blocking.create_chat(f"{agent}/s{number}", "ada", title=f"Part {number}", metadata=told)
        blocking.append("codex/s1", [user("Where is fado sung?"), assistant("In Alfama.", id="alfama")])
        blocking.create_chat("pi/bobs", "bob", metadata={"agent": "pi", "session": "bobs", "cwd": "/src/trip1"})
        yield ledger


@pytest.fixture(scope="module")
def pages(kept: chatledger.AsyncLedger) -> Generator[httpx.Client]:
    """A reader of everything."""
    with pages_of(kept) as client:
        yield client


def listed(pages: httpx.Client, **query: str) -> list[str]:
    """The chats of all pages of a list."""
    chats: list[str] = []
    after: str | None = ""
    while after is not None:
        page = pages.get("/sessions.json", params=query | {"after": after}).json()
        chats += [row["chat"]["id"] for row in page["rows"]]
        after = page["next"]
    return chats


def test_sessions_are_listed(kept: chatledger.AsyncLedger, pages: httpx.Client) -> None:
    """Those that went on last first, each once, page by page; no other chats, and subagents where they are asked for."""
    every = [f"{AGENTS[number % 3]}/s{number}" for number in range(130)]
    everybody = listed(pages, subagents="true")

    assert sorted(everybody) == sorted([*every, "pi/bobs"])
    chats = [chat for chat in kept.blocking().list_chats() if chat.id != "talk"]
    assert everybody == [chat.id for chat in sorted(chats, key=lambda chat: (-chat.updated_at, chat.id))]
    assert sorted(listed(pages)) == sorted([*(chat for at, chat in enumerate(every) if at % 5), "pi/bobs"])


def test_sessions_are_filtered(pages: httpx.Client) -> None:
    """By agent, by folder, and by both; an agent that nobody knows is refused."""
    mine = [number for number in range(130) if number % 5]

    assert sorted(listed(pages, agent="codex")) == sorted(f"codex/s{number}" for number in mine if number % 3 == 1)
    assert len(listed(pages, folder="/src/trip2")) == len([number for number in mine if number % 4 == 2])
    both = [number for number in mine if number % 12 == 1]
    assert sorted(listed(pages, agent="codex", folder="/src/trip1")) == sorted(f"codex/s{number}" for number in both)
    assert listed(pages, agent="opencode") == []
    assert pages.get("/sessions?agent=none").status_code == 422
    assert "No session fits" in pages.get("/sessions?agent=opencode").text


def test_sessions_are_searched(pages: httpx.Client) -> None:
    """By titles, folders and branches, and by words in messages, whose row leads to the message; other chats are not found."""
    parts = {f"{AGENTS[number % 3]}/s{number}" for number in (12, 112, *range(121, 130)) if number % 5}
    assert set(listed(pages, q="part 12")) == parts
    assert set(listed(pages, q="trip3 fast", agent="pi")) == set(listed(pages, folder="/src/trip3", agent="pi"))
    assert listed(pages, q="alfama") == ["codex/s1"]
    assert listed(pages, q="fado", folder="/src/trip2") == []
    assert '/c/codex%2Fs1?m=alfama"' in pages.get("/sessions?q=alfama").text


def test_a_session_is_resumed(pages: httpx.Client) -> None:
    """Its command stands in its row, for its own agent or another one."""
    row = pages.get("/sessions.json?q=alfama&target=claude").json()["rows"][0]

    assert shlex.split(row["resume"]) == ["chatledger", "resume", "codex/s1", "--in", "claude-code"]
    assert pages.get("/sessions.json?q=alfama").json()["rows"][0]["resume"] == "chatledger resume codex/s1"


def test_sessions_of_the_past_and_of_one_user(kept: chatledger.AsyncLedger, pages: httpx.Client) -> None:
    """A list is as of its moment, and of what its reader may see."""
    with pages_of(kept, authenticate=lambda _: Principal(user_id="bob")) as bobs:
        assert listed(bobs) == ["pi/bobs"]
        assert listed(bobs, q="alfama") == []
    assert set(listed(pages, at="3", subagents="true")) == {"codex/s1", "claude-code/s0"}


def test_a_page_costs_the_same(
    kept: chatledger.AsyncLedger, pages: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many sessions there are: no list is read beyond the page."""
    limits: list[int | None] = []
    original = chatledger.Ledger.list_chats

    def counted(self: chatledger.Ledger, **options: object) -> object:
        limits.append(options.get("limit"))  # type: ignore[arg-type]
        return original(self, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(chatledger.Ledger, "list_chats", counted)
    pages.get("/sessions").raise_for_status()
    pages.get("/sessions?q=alfama").raise_for_status()

    assert limits == [101] * 5 + [200] * 5


def test_what_keep_keeps_is_there(tmp_path: Path) -> None:
    """A transcript of Claude Code, with its folder; a ledger without any says how sessions come into it."""
    claude_file(tmp_path / "home", as_bytes(CLAUDE))
    environment = {"CHATLEDGER_KEEP": str(tmp_path / "ledger"), "CLAUDE_CONFIG_DIR": ""}
    outcome = CliRunner(env=environment).invoke(cli, ["keep", "--root", str(tmp_path / "home")], standalone_mode=False)
    assert outcome.exception is None, outcome.output
    ledger = chatledger.open_async(tmp_path / "ledger")
    with ledger.blocking(), pages_of(ledger) as pages:
        (row,) = pages.get("/sessions.json").json()["rows"]

    assert (row["agent"], row["chat"]["metadata"]["session"]) == ("claude-code", SESSION)
    assert row["folder"] == "/src/trip"
    empty = chatledger.open_async("memory:")
    with empty.blocking(), pages_of(empty) as pages:
        assert "chatledger explore --kept" in pages.get("/sessions").text
