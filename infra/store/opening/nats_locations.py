"""Locations on NATS servers: `nats://[login@]host[:port][,host...][/stream][?replicas=N&share=I/N]`, and how they are shown."""

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import msgspec
from eventsourcing.persistence import ProgrammingError

from chatledger.domain.errors import ConfigurationError
from chatledger.domain.log.shares import Share, check_share

from ...log.nats.endpoint import Endpoint, Login, check_login
from ...log.nats.subjects import check_stream_name

REPLICAS: Final = (1, 3, 5)
_SHARE: Final = re.compile(r"[0-9]{1,2}/[0-9]{1,2}")


class NatsPlace(msgspec.Struct, frozen=True):
    """
    A location on NATS servers, parsed.

    Args:
        connect: Where the servers are and how to log in; reads files anew each time.
        stream: The name of the stream.
        hosts: How many servers are named.
        replicas: How many servers are to keep a copy; None when it is not said.
        share: The share of the chats to hold; None when it is not said.
    """

    connect: Callable[[], Endpoint]
    stream: str
    hosts: int
    replicas: int | None
    share: Share | None = None

    @property
    def new_replicas(self) -> int:
        """The number of replicas of a new stream: three when three servers are named and nothing else is said."""
        return self.replicas or (3 if self.hosts >= 3 else 1)


def read_place(
    location: str, *, stream: str, login: Login | None, replicas: int | None, share: Share | None = None
) -> NatsPlace:
    """
    Read a location, with what else `open` was told about it. `stream` is the name where the location says none.

    Raises:
        ConfigurationError: It names no servers, or says something twice.
        LogRefusedError: Certificates or credentials cannot be read.
    """
    try:
        parts = urlsplit(location)
    except ValueError as error:
        msg = f"the location does not name a server: {error}"
        raise ConfigurationError(msg) from None  # the cause shows the location
    # A slash in a password ends the part of a URL where a login stands: the rest would be taken for the name of a stream.
    if "@" in location and "@" not in parts.netloc:
        msg = "the login in the location is not clear: percent-encode special characters in it, such as / as %2F and @ as %40"
        raise ConfigurationError(msg)
    in_url, _, hosts = parts.netloc.rpartition("@")
    urls = tuple(f"{parts.scheme}://{host}" for host in hosts.split(","))
    for url in urls:
        check_host(url)
    login = _merged(in_url, login)
    try:
        name = check_stream_name(parts.path.strip("/") or stream)
    except ProgrammingError as error:
        raise ConfigurationError(str(error)) from error

    def connect() -> Endpoint:
        return login.endpoint(urls)

    # Files that cannot be read are told now, and not after a time of trying to connect.
    check_login(connect())
    query = _query(parts)
    return NatsPlace(connect, name, len(urls), _replicas(query, replicas), _share(query, share))


def _merged(in_url: str, login: Login | None) -> Login:
    login = login or Login()
    if not in_url:
        return login
    if login.says_who:
        msg = "the location and login= both say who logs in; leave it out of the location"
        raise ConfigurationError(msg)
    if "@" in in_url:
        msg = "the login in the location is not clear: it stands once, before the first host, and an @ in it is written %40"
        raise ConfigurationError(msg)
    user, has_password, password = in_url.partition(":")
    if has_password:
        return msgspec.structs.replace(login, user=unquote(user), password=unquote(password))
    return msgspec.structs.replace(login, token=unquote(user))


def _query(parts: SplitResult) -> dict[str, str]:
    query = parse_qs(parts.query, keep_blank_values=True)
    unknown = sorted(query.keys() - {"replicas", "share"})
    if unknown:
        msg = f"a location on servers takes ?replicas= and ?share=, not {', '.join(unknown)}"
        raise ConfigurationError(msg)
    return {name: values[-1] for name, values in query.items()}


def _share(query: dict[str, str], share: Share | None) -> Share | None:
    in_query = query.get("share")
    if in_query is None:
        return share
    if not _SHARE.fullmatch(in_query):
        msg = f"a share in a location is a number and how many there are, such as ?share=0/3, not {in_query!r}"
        raise ConfigurationError(msg)
    number, total = in_query.split("/")
    parsed = check_share((int(number), int(total)))
    if share not in {None, parsed}:
        msg = f"the location says share={in_query}, the argument {share}; say it once"
        raise ConfigurationError(msg)
    return parsed


def _replicas(query: dict[str, str], replicas: int | None) -> int | None:
    in_query = query.get("replicas")
    if in_query is not None and in_query not in map(str, REPLICAS):
        msg = f"replicas must be 1, 3 or 5, not {in_query!r}"
        raise ConfigurationError(msg)
    if in_query is not None and replicas is not None and int(in_query) != replicas:
        msg = f"the location says replicas={in_query}, the argument {replicas}; say it once"
        raise ConfigurationError(msg)
    return replicas if in_query is None else int(in_query)


def check_replicas(replicas: int | None) -> int | None:
    """The argument itself. Raises `ConfigurationError` when it is none of 1, 3 and 5."""
    if replicas is not None and (type(replicas) is not int or replicas not in REPLICAS):
        msg = f"replicas must be 1, 3 or 5, not {replicas!r}"
        raise ConfigurationError(msg)
    return replicas


def check_host(url: str) -> None:
    """Raise `ConfigurationError` unless the URL names a host, and a port that can be one if any."""
    host = ""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_right = bool(host) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right:
        # Not what stands for the port: it is the password where the host was forgotten.
        msg = (
            f"the location does not name a server: expected host or host:port, with a port up to 65535, after {host!r}"
        )
        raise ConfigurationError(msg)
