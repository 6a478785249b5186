"""Sessions of OpenCode, which are rows of a database: kept as `opencode export` has them, whenever they are looked at."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.coding_agents import OPENCODE, OPENCODE_SESSION, opencode_file, opencode_message, opencode_text

import chatledger
from chatledger import Ledger
from chatledger.domain.forms.reading import items_of
from chatledger.infra.exchange.agents.every import AGENTS
from chatledger.infra.exchange.agents.following import exported
from chatledger.infra.exchange.agents.keeping import AgentFiles, Keeper, Round

CHAT = f"opencode/{OPENCODE_SESSION}"
AGENT = AGENTS["opencode"]


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
        yield opened


def keep(ledger: Ledger, home: Path, *, at_end: bool = True) -> Round:
    keeper = Keeper([AgentFiles(AGENT, AGENT.roots({}, home))], lambda: contextlib.nullcontext(ledger), user="ada")
    return keeper._keep(ledger, list(keeper._files()), at_end=at_end)


def texts(ledger: Ledger, branch: str | None = None) -> list[str]:
    return [message.text for message in ledger.get_messages(CHAT, branch=branch) if message.text]


def printed(ledger: Ledger) -> dict[str, Any]:
    chat = ledger.get_chat(CHAT)
    assert chat is not None
    document: dict[str, Any] = json.loads(exported(ledger, chat, AGENT))
    return document


def as_exported(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as the client prints them: its rows, each with ids at the end."""
    return [
        {
            "info": {**message["info"], "id": message["id"], "sessionID": OPENCODE_SESSION},
            "parts": [
                {
                    **part,
                    "id": f"p{message['id']}-{number}",
                    "sessionID": OPENCODE_SESSION,
                    "messageID": message["id"],
                }
                for number, part in enumerate(message["parts"])
            ],
        }
        for message in messages
    ]


def test_a_session_is_kept_as_it_is_exported_and_once(ledger: Ledger, tmp_path: Path) -> None:
    path = opencode_file(tmp_path, OPENCODE, 5)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    outcome = keep(ledger, tmp_path)
    chat, position = ledger.get_chat(CHAT), ledger.position
    items = [
        type(item.what).__name__
        for message in ledger.get_messages(CHAT)
        for item in items_of(message.form, message.data)
    ]
    found = ledger.search("alfama")

    assert (outcome.counts["opencode", "new"], outcome.failures) == (1, [])
    assert chat is not None
    told = chat.metadata or {}
    assert (chat.title, told["cwd"], told["model"], chat.user_id) == (
        "Music in Lisbon",
        "/src/trip",
        "open-test",
        "ada",
    )
    assert texts(ledger) == ["Where is fado sung?", "In Alfama.", "And opera?", "In Chiado."]
    assert items == ["Text", "Reasoning", "Call", "Result", "Text", "Text", "Text"]
    assert found
    assert printed(ledger)["messages"] == as_exported(OPENCODE)
    assert printed(ledger)["info"] == {
        "id": OPENCODE_SESSION,
        "slug": "misty-lagoon",
        "projectID": "global",
        "directory": "/src/trip",
        "title": "Music in Lisbon",
        "version": "1.18.33",
        "summary": {"additions": 0, "deletions": 0, "files": 0},
        "cost": 0,
        "tokens": {"input": 3, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "time": {"created": 1_795_000_000_000, "updated": 5},
    }
    keep(ledger, tmp_path)
    assert ledger.position == position, "nothing is new"
    opencode_file(tmp_path, OPENCODE, 6)
    keep(ledger, tmp_path)
    assert ledger.position == position + 1, "its time only"
    assert before.keys() == {file.name for file in path.parent.iterdir()}, "no file is made beside it"


@pytest.mark.parametrize("at_end", [True, False])
def test_what_is_looked_at_while_an_answer_grows_is_one_branch(ledger: Ledger, tmp_path: Path, *, at_end: bool) -> None:
    """A watcher waits for the answer to be complete; rows of before that change, but say what they said, stay where they are."""
    noted = opencode_message("m04", "user", opencode_text("And opera?"), summary={"diffs": []})
    growing = opencode_message("m05", "assistant", opencode_text("In"), time={"created": 1_795_000_000_005})
    opencode_file(tmp_path, [*OPENCODE[:4], growing], 5)
    keep(ledger, tmp_path, at_end=at_end)
    assert texts(ledger)[-1] == ("In" if at_end else "And opera?")
    pruned = json.loads(json.dumps(OPENCODE[1]))
    pruned["parts"][2]["state"]["time"] = {"compacted": 5}
    whole = [OPENCODE[0], pruned, OPENCODE[2], noted, OPENCODE[4]]
    opencode_file(tmp_path, whole, 6)
    keep(ledger, tmp_path, at_end=at_end)

    assert texts(ledger) == ["Where is fado sung?", "In Alfama.", "And opera?", "In Chiado."]
    assert printed(ledger)["messages"] == as_exported(whole)
    assert len(ledger.list_branches(CHAT)) == (2 if at_end else 1)
    position = ledger.position
    keep(ledger, tmp_path)
    assert ledger.position == position


def test_a_turn_that_was_taken_back_is_a_branch_that_is_left(ledger: Ledger, tmp_path: Path) -> None:
    opencode_file(tmp_path, OPENCODE, 5)
    keep(ledger, tmp_path)
    anew = [
        *OPENCODE[:3],
        opencode_message("m06", "user", opencode_text("And jazz?")),
        opencode_message("m07", "assistant", opencode_text("In Baixa.")),
    ]
    opencode_file(tmp_path, anew, 7)
    keep(ledger, tmp_path)
    anew.append(opencode_message("m08", "user", opencode_text("And theatre?")))
    opencode_file(tmp_path, anew, 8)
    keep(ledger, tmp_path)

    assert texts(ledger)[1:] == ["In Alfama.", "And jazz?", "In Baixa.", "And theatre?"]
    assert texts(ledger, "main")[-2:] == ["And opera?", "In Chiado."]
    assert printed(ledger)["messages"] == as_exported(anew)
    opencode_file(tmp_path, OPENCODE[3:], 9)
    keep(ledger, tmp_path)
    assert ledger.search("theatre"), "nothing that was kept is removed"


def test_a_database_that_cannot_be_read_is_told_and_others_are_kept(ledger: Ledger, tmp_path: Path) -> None:
    path = AGENT.roots({}, tmp_path)[0]
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database, though there is a file" * 100)
    outcome = keep(ledger, tmp_path)

    assert [failure.partition(" cannot be read: ")[0] for failure in outcome.failures] == [str(path)]
    assert keep(ledger, tmp_path / "elsewhere").failures == []
