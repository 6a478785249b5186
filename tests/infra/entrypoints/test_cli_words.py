"""Errors on the command line name verbs and options, and no methods or arguments of the library."""

import re
from pathlib import Path

import pytest
from tests.support.cli_world import fails, run

import chatledger
from chatledger import Encryption, user
from chatledger.admin import check_backup
from chatledger.domain.errors import ChatledgerError, OtherShareError
from chatledger.infra.entrypoints.cli.output import print_error
from chatledger.infra.log.nats.errors import StreamAbsentError, special_error

PYTHON = re.compile(r"\w+\([^)]*\)|\b[a-z_]+=(?!/)")


def is_of_python(message: str) -> bool:
    """Whether a message names a call or an argument; `?share=` of a location is none."""
    return PYTHON.search(message.replace("?share=", "")) is not None


def test_a_feed_of_other_shares_is_forgotten_by_a_verb(samples: Path) -> None:
    assert run("watch", "--name", "n", "--share", "0/2", "--after", "0", "-n", "1", at=samples).exit_code == 0

    message = fails(1, "watch", "--name", "n", "--share", "0/3", "-n", "1", at=samples)

    assert "run 'chatledger feeds --forget NAME', and begin all new ones with --after " in message
    assert not is_of_python(message)


def test_a_key_is_given_in_the_environment(tmp_path: Path) -> None:
    """Of an encrypted ledger, and of a backup of one."""
    with chatledger.open(tmp_path / "data", encryption=Encryption(Encryption.new_key())) as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("Riga?")])
        ledger.backup(tmp_path / "backup")

    of_ledger = fails(1, "chats", at=tmp_path / "data")
    of_backup = fails(1, "backup", "--check", tmp_path / "backup")

    assert "CHATLEDGER_ENCRYPTION_KEY in the environment" in of_ledger
    assert "check its files only (--files-only)" in of_backup
    assert not is_of_python(of_ledger)
    assert not is_of_python(of_backup)
    with pytest.raises(ChatledgerError, match="files_only=True"):  # as a program is told
        check_backup(tmp_path / "backup")


def test_a_key_is_made_by_a_command(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATLEDGER_ENCRYPTION_KEY", "c2hvcnQ=")

    message = fails(1, "chats", at=samples)

    assert message.endswith("make one with 'openssl rand -base64 32'")
    assert not is_of_python(message)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OtherShareError("chat 'c'", (0, 3)), "ask a node that has it open with ?share=0/3 in its location"),
        (OtherShareError("the feed", None), "open without ?share= in its location"),
        (special_error(StreamAbsentError("no stream"), "stream 'x'"), "ask for it: 'chatledger import --create'."),
    ],
    ids=["share", "no share", "stream"],
)
def test_what_a_cluster_answers(error: Exception, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert is_of_python(str(error))

    print_error(str(error))

    message = capsys.readouterr().err
    assert advice in message
    assert not is_of_python(message)


def test_what_the_system_refuses_is_said_without_its_numbers(tmp_path: Path) -> None:
    """A folder of others, and a place below a file."""
    (tmp_path / "file").touch()

    message = fails(1, "demo", at=tmp_path / "file" / "data")

    assert message == f"the folder {tmp_path / 'file' / 'data'} cannot be used: File exists: {tmp_path / 'file'}"


def test_a_rule_is_told_in_options(samples: Path) -> None:
    message = fails(1, "retention", "set", "old", "--days", "-1", at=samples)

    assert message == "--days must be a number of days above 0 and up to 36,600, not -1.0"


def test_only_sessions_of_coding_agents_are_gone_on_with(samples: Path) -> None:
    """Other chats of a ledger are none, whatever is asked for."""
    assert fails(1, "resume", "", at=samples) == "no session '' is kept; 'chatledger sessions' lists them"
    assert fails(1, "resume", "riga", at=samples).endswith(
        "comes from no coding agent: say which is to go on, with --in"
    )
