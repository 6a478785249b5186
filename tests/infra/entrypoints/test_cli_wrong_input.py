"""Wrong input of each verb, made from what its parser takes: an error in words, never a traceback or a hang."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.support.cli_world import fails, run

import chatledger
from chatledger import user
from chatledger.infra.entrypoints.cli.app import OK, VERBS, cli

FAILURES = (1, 2)
SERVES = {"serve", "explore", "mcp", "watch"}
"""Verbs that go on until they are stopped: they get a place that cannot be opened, and no other one."""


def commands(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command that is no group, with the words that name it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from commands(inner, *path, name)


def right(parameter: click.Parameter, file: Path) -> list[str]:
    """Something that the parser takes for a parameter."""
    if isinstance(parameter.type, click.Choice):
        text = str(parameter.type.choices[0])
    else:
        text = str(file) if isinstance(parameter.type, click.Path) else "c"
    return [text] * max(parameter.nargs, 1)


def wrong_calls(command: click.Command, file: Path) -> Iterator[list[str]]:
    """Yield the arguments of calls that are right but for one parameter, whose value is missing, empty, no text, too large or no file."""
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    options = [one for one in command.params if isinstance(one, click.Option) and not one.is_flag]
    if command.name in SERVES:
        options = [one for one in options if "--location" not in one.opts]
    required = [text for one in options if one.required for text in (one.opts[-1], *right(one, file))]
    values = ("", "-1", "9" * 30, "\udcff", str(file), "/dev/full")
    for option in options:
        rest = [*required, *(text for one in arguments for text in right(one, file)), option.opts[-1]]
        yield rest
        for value in values:
            yield [*rest, *[value] * option.nargs]
    for place in range(len(arguments)):
        for value in values:
            given = [[value] if number == place else right(one, file) for number, one in enumerate(arguments)]
            yield [*required, "--", *(text for texts in given for text in texts)]


def test_an_option_without_its_value_leads_to_the_help_of_its_command() -> None:
    """Also where a verb has verbs of its own, and where the option is not of them."""
    for words in (["show", "--branch"], ["remote", "add", "--key-env"], ["keys", "add", "--user"], ["--location"]):
        path = " ".join(["chatledger", *words[:-1]])
        assert fails(2, *words) == f"Option '{words[-1]}' requires an argument; see '{path} --help'"


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of JSON that is nested too deeply, in a folder that is the home and the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    file = tmp_path / "deep"
    file.write_text("[" * 100_000)
    return file


@pytest.mark.guard
@pytest.mark.parametrize("verb", VERBS)
def test_wrong_input_of_each_verb(verb: str, deep: Path) -> None:
    place = "foo://nowhere" if verb in SERVES else f"sqlite:///{deep.parent}/chats.db"
    if verb not in SERVES:
        with chatledger.open(place) as ledger:
            ledger.create_chat("c", "ada")
            ledger.append("c", [user("hello")])
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    for words, inner in commands(command, verb):
        for arguments in wrong_calls(inner, deep):
            result = run("--location", place, *words, *arguments)  # which raises what is no exit

            assert result.exit_code in {OK, *FAILURES}, (words, arguments)
            assert result.exit_code == OK or result.output, (words, arguments)


def test_a_file_without_an_end(deep: Path) -> None:
    """Of a key or an anchor: devices are not read until the memory is full."""
    place = f"sqlite:///{deep.parent}/chats.db"
    with chatledger.open(place) as ledger:
        ledger.create_chat("c", "ada")

    assert "larger than 4 MiB" in fails(1, "-l", place, "anchor", "--key", "/dev/full")
    assert "is a device" in fails(1, "check-receipt", "/dev/full")
    assert "no file of API keys" in fails(1, "keys", "remove", "c", "--keys", "/dev/full")


def test_what_is_no_text(deep: Path) -> None:
    """An argument may hold any bytes: as an id it is nobody's, and a folder may be called so."""
    place = f"sqlite:///{deep.parent}/chats.db"
    with chatledger.open(place) as ledger:
        ledger.create_chat("c", "ada")

    assert run("-l", place, "threads", "--user", "\udcff").exit_code == OK
    assert run("-l", place, "backup", deep.parent / "\udcff").exit_code == OK


def test_a_receipt_that_is_nested_too_deeply(deep: Path) -> None:
    assert "no receipt" in fails(1, "check-receipt", deep)
