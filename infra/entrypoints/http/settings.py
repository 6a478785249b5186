"""Settings of `chatledger serve`, as plain values: each of its processes makes the application from them."""

import logging
import secrets
import sys
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from starlette.applications import Starlette

from chatledger.domain.errors import ConfigurationError

from ...ledger.environment import open_given_async, secret_patterns
from ..explorer.links import EntryLinks
from ..named import embedding_named, object_named
from .access import Authenticate, any_of
from .app import create_app, is_served
from .guard import Limits
from .health import Metrics
from .keys import KeyFile, keys_beside
from .observing import access_log

CONNECTIONS: Final = 1000
_LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_NO_GRAPHS: Final = "graphs need the extra `langgraph`: pip install 'chatledger[server,langgraph]'"
_MISSING: Final = "tokens need the extra `jwt`: pip install 'chatledger[server,jwt]'"


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """
    Settings of a server; `chatledger serve --help` says what most of them mean.

    Args:
        metrics_folder: The folder in which the processes write their counts, and which links were used, for each other.
        contracts: What is served; all that is installed when None.
        session_key: Seals the cookies of the explorer; they end with the process when None.
        explorer: The address of the explorer; None where it is not served.
        link_secret: What the links are made from that let browsers in; without it they need none.
        is_by_link_only: Whether only browsers that came by such a link may ask for anything.
        is_port_free_to_choose: Whether another port is taken where this one is in use.
    """

    location: str
    create: bool = False
    host: str = "127.0.0.1"
    port: int = 8230
    workers: int = 1
    connections: int = CONNECTIONS
    is_insecure: bool = False
    keys: str | None = None
    jwks: str | None = None
    issuer: str | None = None
    audience: str | None = None
    user_claim: str = "sub"
    authenticate: str | None = None
    cors: tuple[str, ...] = ()
    graphs: tuple[str, ...] = ()
    embed: str | None = None
    redacts_secrets: bool = False
    anchor_key: str | None = None
    mcp_can_write: bool = False
    limits: Limits = Limits()
    has_access_log: bool = False
    metrics_folder: str | None = None
    contracts: tuple[str, ...] | None = None
    session_key: bytes | None = None
    explorer: str | None = None
    link_secret: bytes | None = None
    is_by_link_only: bool = False
    user_id: str | None = None
    root_path: str = ""
    is_port_free_to_choose: bool = False

    @property
    def has_access(self) -> bool:
        return self.is_by_link_only or any((self.keys, self.jwks, self.authenticate))

    def check(self) -> None:
        """Refuse to let others in where callers do not authenticate, and what is named and not there."""
        self.authentication()
        if self.embed is not None:
            embedding_named(self.embed)
        if self.redacts_secrets:
            secret_patterns()
        is_local = self.host in _LOCAL_HOSTS or self.host.startswith("127.")
        if not (self.has_access or self.is_insecure or is_local):
            msg = f"{self.host} lets others reach the ledger, and nobody is asked who they are: make keys (chatledger keys), or say --insecure"
            raise ConfigurationError(msg)
        if self.workers > 1 and self.location == "memory:":
            msg = "a ledger in memory belongs to one process; leave out --workers, or serve a directory"
            raise ConfigurationError(msg)

    def application(self) -> Starlette:
        """Return the application, which opens the ledger when it starts."""
        if self.has_access_log and not access_log.handlers:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter("%(message)s"))
            access_log.addHandler(handler)
            access_log.setLevel(logging.INFO)
            access_log.propagate = False
        return create_app(
            open_given_async(
                self.location,
                create=self.create,
                embed=None if self.embed is None else embedding_named(self.embed),
                redact=secret_patterns() if self.redacts_secrets else None,
            ),
            closes_ledger=True,
            enable=self.contracts,
            authenticate=self.authentication(),
            graphs=self.named_graphs(),
            anchor_key=self.anchor_key,
            mcp_can_write=self.mcp_can_write,
            limits=self.limits,
            cors=self.cors,
            # Where callers authenticate, a page that calls us by a name of its own lacks a key all the same.
            hosts=None if self.has_access or self.is_insecure else _LOCAL_HOSTS,
            metrics=Metrics(None if self.metrics_folder is None else Path(self.metrics_folder)),
            session_key=self.session_key,
            root_path=self.root_path,
            links=self.links(),
        )

    def for_browsers(self, address: str) -> "Serving":
        """Return these settings with what the explorer needs at an address, if it is served."""
        if not is_served("explorer", self.contracts):
            return self
        from ..explorer.sessions import kept_session_key

        is_asked = self.has_access and not self.is_by_link_only
        # Of a ledger on a server, beside the keys: where several servers share these, each knows the sessions of the others.
        beside = keys_beside(self.location) or (None if self.keys is None else Path(self.keys))
        return msgspec.structs.replace(
            self,
            explorer=address + "/",
            session_key=kept_session_key(beside),
            link_secret=None if is_asked else secrets.token_bytes(32),
        )

    def links(self) -> EntryLinks | None:
        """Return the links that let browsers in; None where they need none."""
        if self.link_secret is None or self.explorer is None:
            return None
        return EntryLinks(
            self.link_secret, self.explorer, folder=self.metrics_folder, tell=_print_link, user_id=self.user_id
        )

    def authentication(self) -> Authenticate | None:
        """Return how callers authenticate: by one of the keys, a token, or the user's function."""
        if self.is_by_link_only:
            return lambda _: None  # sessions only let in
        ways: list[Authenticate] = []
        if self.keys is not None:
            keys = KeyFile(self.keys)
            keys.read()  # a broken file is an error of the start; later it would only let nobody in
            ways.append(keys)
        if self.jwks is not None:
            if self.issuer is None:
                msg = "say who makes the tokens, with --issuer: the claim `iss` of each"
                raise ConfigurationError(msg)
            try:
                from .tokens import JsonWebTokens
            except ImportError as error:
                raise ConfigurationError(_MISSING) from error
            ways.append(
                JsonWebTokens(self.jwks, issuer=self.issuer, audience=self.audience, user_claim=self.user_claim)
            )
        if self.authenticate is not None:
            function = object_named(
                self.authenticate, "is no function that can be imported, such as 'my_auth:who_asks'"
            )
            if not callable(function):
                msg = f"{self.authenticate!r} is no function"
                raise ConfigurationError(msg)
            ways.append(cast("Authenticate", function))
        return any_of(*ways) if ways else None

    def named_graphs(self) -> dict[str, Any] | None:
        """Import the graphs that LangGraph's clients find here; None where none are named."""
        if not self.graphs:
            return None
        try:
            from .langgraph_api.graphs import load_graphs
        except ImportError as error:
            raise ConfigurationError(_NO_GRAPHS) from error
        return load_graphs(self.graphs)


def _print_link(link: str) -> None:
    sys.stderr.write(f"the next browser: {link}\n")
    sys.stderr.flush()
