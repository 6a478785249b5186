"""`chatledger serve`: the ledger over HTTP."""

from typing import Any

import click

from chatledger.domain.errors import ConfigurationError

from .options import Settings, location_option

_MISSING = "serving needs the extra `server`: pip install 'chatledger[server]'"
_NO_GRAPHS = "graphs need the extra `langgraph`: pip install 'chatledger[server,langgraph]'"


@click.command("serve")
@location_option()
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
    "--mcp-allow-write", is_flag=True, help="Let assistants append, fork, set checkpoints and annotate over MCP."
)
@click.option("--insecure", is_flag=True, help="Let others reach it although nobody is asked who they are.")
@click.pass_obj
def serve_command(
    settings: Settings,
    *,
    host: str,
    port: int,
    graphs: tuple[str, ...],
    anchor_key: str | None,
    mcp_allow_write: bool,
    insecure: bool,
) -> None:
    """Serve the ledger over HTTP."""
    try:
        from chatledger.infra.entrypoints.http.serving import serve
    except ImportError as error:
        raise ConfigurationError(_MISSING) from error
    loaded = _loaded(graphs) if graphs else None
    serve(
        settings.location,
        host=host,
        port=port,
        is_insecure=insecure,
        graphs=loaded,
        anchor_key=anchor_key,
        mcp_can_write=mcp_allow_write,
        tell=click.echo,
    )


def _loaded(named: tuple[str, ...]) -> dict[str, Any]:
    try:
        from chatledger.infra.entrypoints.http.langgraph_api.graphs import load_graphs
    except ImportError as error:
        raise ConfigurationError(_NO_GRAPHS) from error
    return load_graphs(named)
