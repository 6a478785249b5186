"""`chatledger explore`: the conversations of a ledger in a browser."""

import threading
import webbrowser

import click

from chatledger.domain.errors import ConfigurationError

from ...ledger.locations import has_ledger
from .options import GlobalOptions, as_user_option, location_option, require_server
from .output import print_note

_MISSING = "the explorer needs the extra `server`: pip install 'chatledger[server]'"
_PORT = 8230


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
@click.pass_obj
def explore_command(settings: GlobalOptions, *, place: str | None, port: int | None, browser: bool) -> None:
    """
    Show the conversations in a browser.

    On this machine only, and only for the browser that opens the link. 'chatledger serve' shows them to others.
    """
    try:
        from ..http.serving import serve
        from ..http.settings import Serving
    except ImportError as error:
        raise ConfigurationError(_MISSING) from error
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
