"""`serve`, `explore`, `mcp` and `keys`: the ledger for programs, browsers and assistants, and who may use a server."""

import sys
import threading
import webbrowser
from typing import Any, Final, get_args

import click
from rich.text import Text

from chatledger.domain.draw.escaping import escaped
from chatledger.domain.errors import ConfigurationError
from chatledger.domain.extras import needing

from ...ledger.environment import absolute_path, has_ledger
from ..http.access import Scope
from ..http.keys import KeyFile, keys_beside
from .options import (
    ID,
    GlobalOptions,
    WholeNumber,
    as_user_option,
    kept_option,
    ledger_options,
    location_option,
    place_options,
    require_made,
    require_server,
)
from .output import format_time, print_json, print_lines, print_note, print_text

_PORT: Final = 8230
_SCOPES: Final = get_args(Scope)
_file_option = click.option(
    "--keys", "path", metavar="FILE", help="The file of API keys; beside the ledger by default, as <ledger>.keys."
)


@click.command("serve")
@location_option()
@click.option("--create", is_flag=True, help="On a NATS server: make the ledger's stream, if this ledger is new.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port",
    default=_PORT,
    show_default=True,
    envvar="CHATLEDGER_PORT",
    type=click.IntRange(0, 65535),
    help="The port, also CHATLEDGER_PORT in the environment; 0 for a free one.",
)
@click.option(
    "--graph",
    "graphs",
    multiple=True,
    metavar="NAME=MODULE:ATTRIBUTE",
    help="A graph for LangGraph's clients; may be repeated.",
)
@click.option(
    "--anchor-key", metavar="FILE", help="The Ed25519 private key (PEM) that signs the anchors that admins ask for."
)
@click.option(
    "--mcp-allow-write",
    "mcp_can_write",
    is_flag=True,
    help="Let assistants append, fork, merge, set checkpoints and annotate over MCP.",
)
@click.option("--workers", default=1, show_default=True, type=WholeNumber(1, 256), help="How many processes answer.")
@click.option(
    "--connections",
    default=1000,
    show_default=True,
    type=WholeNumber(1),
    metavar="N",
    help="How many connections each process holds; fewer where it may open fewer descriptors (ulimit -n).",
)
@click.option(
    "--keys",
    metavar="FILE",
    help="The file of API keys; by default the one that 'chatledger keys' made, if it is there.",
)
@click.option("--jwks", metavar="FILE|URL", help="Take JSON Web Tokens; here are the public keys of who makes them.")
@click.option("--issuer", metavar="NAME", help="The issuer that tokens must name.")
@click.option("--audience", metavar="NAME", help="The audience that tokens must name.")
@click.option("--user-claim", default="sub", show_default=True, metavar="NAME", help="The claim that is the user's id.")
@click.option("--authenticate", metavar="MODULE:FUNCTION", help="Your own function, which says who asks.")
@click.option(
    "--embed",
    metavar="MODULE:NAME",
    help="Embed messages with this chatledger.Embedding, or what a function returns, to search by meaning.",
)
@click.option(
    "--redact-secrets",
    "redacts_secrets",
    is_flag=True,
    help="Take keys and tokens out of what comes in, before it is written.",
)
@click.option(
    "--cors", multiple=True, metavar="ORIGIN", help="Let web pages of this origin use the server; may be repeated."
)
@click.option(
    "--root-path",
    default="",
    metavar="PATH",
    help="Where a proxy shows the server, such as /ledger, if that is not the root.",
)
@click.option("--requests-per-second", type=float, metavar="N", help="Let each user ask so often, on average.")
@click.option("--streams-per-user", type=WholeNumber(1), metavar="N", help="Let each user hold so many streams open.")
@click.option(
    "--max-lag", type=WholeNumber(0), metavar="N", help="Be ready while the index is at most N events behind."
)
@click.option("--access-log/--no-access-log", default=True, help="Print each request as a line of JSON, on stderr.")
@click.option("--insecure", is_flag=True, help="Let others reach it although nobody is asked who they are.")
@click.pass_obj
def serve_command(
    settings: GlobalOptions,
    /,
    *,
    keys: str | None,
    access_log: bool,
    insecure: bool,
    requests_per_second: float | None,
    streams_per_user: int | None,
    max_lag: int | None,
    **options: Any,
) -> None:
    """
    Serve the ledger over HTTP.

    Without keys or tokens only this machine reaches it, and everybody here may do everything. Encryption keys and the login
    at a NATS server are in the environment, as for all verbs: CHATLEDGER_ENCRYPTION_KEY, CHATLEDGER_CREDS and others.

    Strangers cannot hold it up. The headers of a request may take 30 s, and a client that reads nothing for as long is dropped. A
    new connection that is one too many is put in the place of one that waits for a request, else it is answered 503.
    """
    require_server(settings.location)
    with needing("server", "serving"):
        from ..http.guard import limits_of
        from ..http.serving import serve
        from ..http.settings import Serving
    beside = keys_beside(settings.location)
    if keys is None and beside is not None and beside.exists():
        keys = str(beside)
    elif keys is not None and not absolute_path(keys).is_file():
        msg = f"there are no keys in {keys}; 'chatledger keys add NAME --keys {keys}' makes one"
        raise ConfigurationError(msg)
    limits = limits_of(requests_per_second=requests_per_second, streams_per_user=streams_per_user, lag_events=max_lag)
    serving = Serving(
        location=settings.location,
        keys=keys,
        has_access_log=access_log,
        is_insecure=insecure,
        limits=limits,
        **options,
    )

    def tell(line: str) -> None:
        print_text(line)
        sys.stdout.flush()

    def show(link: str) -> None:
        # Whoever keeps or parses stdout is not to keep a link that lets a browser in.
        click.echo(f"explore it at {link}", err=True)

    serve(serving, tell=tell, show=show)


@click.command("explore")
@click.argument("place", required=False, metavar="[LOCATION]")
@location_option()
@as_user_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help=f"The port; {_PORT} by default, or a free one where that is in use.",
)
@click.option("--browser/--no-browser", default=True, help="Open a browser, or only print the link.")
@kept_option
@click.pass_obj
def explore_command(settings: GlobalOptions, *, place: str | None, port: int | None, browser: bool) -> None:
    """
    Show the conversations in a browser.

    On this machine only, and only for the browser that opens the link. 'chatledger serve' shows them to others.
    """
    with needing("server", "the explorer"):
        from ..http.serving import serve
        from ..http.settings import Serving
    location = settings.location if place is None else place
    if not has_ledger(location):
        msg = f"there is no ledger at {location}; 'chatledger demo --location {location}' makes one to look around in"
        raise ConfigurationError(msg)
    require_server(location)
    serving = Serving(
        location=location,
        port=_PORT if port is None else port,
        is_port_free_to_choose=port is None,
        contracts=("api", "explorer"),
        is_by_link_only=True,
        user_id=settings.user_id,
    )

    def show(link: str) -> None:
        click.echo(f"explore it at {link}")
        if browser:
            # A browser for terminals would keep the server from answering it.
            threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()

    print_note("Ctrl-C ends it")
    serve(serving, tell=click.echo, show=show)


@click.command("mcp")
@location_option()
@as_user_option
@click.option(
    "--allow-write", is_flag=True, help="Let the assistant append, fork, merge, set checkpoints and annotate."
)
@kept_option
@click.pass_obj
def mcp_command(settings: GlobalOptions, *, allow_write: bool) -> None:
    """
    Serve conversations to an assistant (MCP).

    For the assistant to start; it speaks with it over stdin and stdout. It can search and read, and with --allow-write write,
    but never delete.
    """
    # An assistant that only reads would find nothing in a new ledger.
    (require_server if allow_write else require_made)(settings.location)
    with needing("mcp", "MCP"):
        from ..mcp.server import serve_stdio
    serve_stdio(settings.location, user_id=settings.user_id, can_write=allow_write)


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
@click.option("--user", "user_id", type=ID, help="Whose chats the key opens.")
@click.option("--all-users", is_flag=True, help="The key opens the chats of all users.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    help="What the key allows, each including the one before; write by default. May be repeated.",
)
@_file_option
@place_options
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
        click.get_current_context().fail("say whose chats the key opens: --user ID, or --all-users")
    file = _key_file(settings, path)
    secret = file.add(name, user_id=user_id, scopes=frozenset(scopes or ("write",)))
    print_text(secret)
    print_note(f"this is the only time that it is shown; {file.path} has its hash")


@keys_command.command("list")
@_file_option
@ledger_options
def list_command(settings: GlobalOptions, *, path: str | None) -> None:
    """List the keys: names, users, scopes and when they were made."""
    keys = _key_file(settings, path).read()
    if settings.as_json:
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
        return
    if not keys:
        print_note("there are no keys yet: 'chatledger keys add NAME --user ID' makes one")
    for key in keys:
        user = "all users" if key.user_id is None else escaped(key.user_id)
        scopes = " ".join(sorted(key.scopes))
        print_lines([Text(f"{escaped(key.name)}  {user}  {scopes}  {format_time(key.created_at)}")])


@keys_command.command("remove")
@click.argument("name")
@_file_option
@place_options
def remove_command(settings: GlobalOptions, *, name: str, path: str | None) -> None:
    """Remove a key: servers refuse it at once."""
    file = _key_file(settings, path)
    file.remove(name)
    print_note(f"removed {name} from {file.path}")


def _key_file(settings: GlobalOptions, path: str | None) -> KeyFile:
    if path is not None:
        return KeyFile(path)
    beside = keys_beside(settings.location)
    if beside is None:
        msg = f"{settings.location} is no directory or file that keys could lie beside; name a file with --keys"
        raise ConfigurationError(msg)
    return KeyFile(beside)
