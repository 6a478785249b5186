"""`chatledger keys`: who may use a server."""

from pathlib import Path
from typing import Any, Final, get_args

import click
from rich.text import Text

from chatledger.domain.draw.outline import escaped
from chatledger.domain.errors import ConfigurationError

from ..http.access import Scope
from ..http.keys import KeyFile, keys_beside
from .options import GlobalOptions, json_option, location_option
from .output import format_time, print_json, print_lines, print_note, print_text

_SCOPES: Final = get_args(Scope)
_file_option = click.option(
    "--keys", "path", metavar="FILE", help="The file of API keys; beside the ledger by default, as <ledger>.keys."
)


def _key_file(settings: GlobalOptions, path: str | None) -> KeyFile:
    if path is not None:
        return KeyFile(path)
    beside = keys_beside(settings.location)
    if beside is None:
        msg = f"{settings.location} is no directory or file that keys could lie beside; name a file with --keys"
        raise ConfigurationError(msg)
    return KeyFile(beside)


@click.group("keys", subcommand_metavar="add|list|remove [ARGS]...")
def keys_command() -> None:
    """
    Make, list and remove the API keys of 'chatledger serve'.

    \b
    For example:
        chatledger keys add ada-laptop --user ada
        chatledger keys add monitoring --all-users --scope read
        chatledger keys list
        chatledger keys remove ada-laptop

    Only hashes of keys are kept, in a file beside the ledger. A change counts at once, also in servers that run.
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines


@keys_command.command("add")
@click.argument("name")
@click.option("--user", "user_id", metavar="ID", help="Whose chats the key opens.")
@click.option("--all-users", is_flag=True, help="The key opens the chats of all users.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    help="What the key allows, each including the one before; write by default. May be repeated.",
)
@_file_option
@location_option()
@click.pass_obj
def add_command(
    settings: GlobalOptions,
    *,
    name: str,
    user_id: str | None,
    all_users: bool,
    scopes: tuple[Any, ...],
    path: str | None,
) -> None:
    """Make a key and print it. It is shown this once."""
    if (user_id is None) != all_users:
        msg = "say whose chats the key opens: --user ID, or --all-users"
        raise click.UsageError(msg, click.get_current_context())
    file = _key_file(settings, path)
    secret = file.add(name, user_id=user_id, scopes=frozenset(scopes or ("write",)))
    print_text(secret)
    print_note(f"this is the only time that it is shown; {file.path} has its hash")


@keys_command.command("list")
@_file_option
@json_option
@location_option()
@click.pass_obj
def list_command(settings: GlobalOptions, *, path: str | None, as_json: bool) -> None:
    """List the keys: names, users, scopes and when they were made."""
    keys = _key_file(settings, path).read()
    if as_json:
        print_json(
            [
                {
                    "name": key.name,
                    "user_id": key.user_id,
                    "scopes": sorted(key.scopes),
                    "created_at": format_time(key.created_at),
                }
                for key in keys
            ]
        )
    elif not keys:
        print_note("there are no keys yet: 'chatledger keys add NAME --user ID' makes one")
    else:
        print_lines(
            Text(
                f"{escaped(key.name)}  {'all users' if key.user_id is None else escaped(key.user_id)}"
                f"  {' '.join(sorted(key.scopes))}  {format_time(key.created_at)}"
            )
            for key in keys
        )


@keys_command.command("remove")
@click.argument("name")
@_file_option
@location_option()
@click.pass_obj
def remove_command(settings: GlobalOptions, *, name: str, path: str | None) -> None:
    """Remove a key: servers refuse it at once."""
    file = _key_file(settings, path)
    file.remove(name)
    print_note(f"removed {name} from {Path(file.path)}")
