"""`chatledger mcp`: conversations for an assistant, over stdin and stdout."""

import click

from chatledger.domain.errors import ConfigurationError

from .options import GlobalOptions, as_user_option, location_option, require_made, require_server

_MISSING = "MCP needs the extra `mcp`: pip install 'chatledger[mcp]'"


@click.command("mcp")
@location_option()
@as_user_option
@click.option("--allow-write", is_flag=True, help="Let the assistant append, fork, set checkpoints and annotate.")
@click.pass_obj
def mcp_command(settings: GlobalOptions, *, allow_write: bool) -> None:
    """
    Serve conversations to an assistant (MCP).

    For the assistant to start; it speaks with it over stdin and stdout. It can search and read, and with --allow-write write,
    but never delete.
    """
    # An assistant that only reads would find nothing in a new ledger.
    (require_server if allow_write else require_made)(settings.location)
    try:
        from chatledger.infra.entrypoints.mcp.stdio import serve_stdio
    except ImportError as error:
        raise ConfigurationError(_MISSING) from error
    serve_stdio(settings.location, user_id=settings.user_id, can_write=allow_write)
