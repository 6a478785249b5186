"""`chatledger serve`: the ledger over HTTP."""

import sys
from typing import Any

import click

from chatledger.domain.errors import ConfigurationError

from ...ledger.locations import absolute_path
from .options import GlobalOptions, WholeNumber, location_option, require_server
from .output import print_text

_MISSING = "serving needs the extra `server`: pip install 'chatledger[server]'"


@click.command("serve")
@location_option()
@click.option("--create", is_flag=True, help="On a NATS server: make the ledger's stream, if this ledger is new.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port",
    default=8230,
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
    help="Let assistants append, fork, set checkpoints and annotate over MCP.",
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
    try:
        from ..http.keys import keys_beside
        from ..http.limits import limits_of
        from ..http.serving import serve
        from ..http.settings import Serving
    except ImportError as error:
        raise ConfigurationError(_MISSING) from error
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
    serve(serving, tell=_tell)


def _tell(line: str) -> None:
    print_text(line)
    sys.stdout.flush()
