"""Streams: creating one on request only, opening one, and checking that it can be trusted with a ledger."""

import secrets
from typing import Any

import msgspec
from eventsourcing.persistence import InterfaceError

from chatledger.domain.wire import Value

from .client import JetStreamClient
from .errors import NAME_IN_USE, NOT_FOUND, ApiError, StreamAbsentError
from .subjects import check_stream_name
from .transport import Transport, ask_api

LOG_ID = "chatledger_log_id"
DUPLICATE_WINDOW_S = 120


class StreamState(Value, frozen=True):
    """
    The state of a stream: first and last position, number of messages.

    Args:
        first: The position of the oldest message; after the last one when there is none.
        last: The position of the newest message that was ever stored, 0 when there was none.
        messages: How many there are.
        num_deleted: How many between `first` and `last` are missing.
    """

    first: int = msgspec.field(name="first_seq", default=0)
    last: int = msgspec.field(name="last_seq", default=0)
    messages: int = 0
    num_deleted: int = 0


class StreamConfig(msgspec.Struct):
    """The settings of a stream that decide whether it can be trusted."""

    retention: str = ""
    storage: str = ""
    discard: str = ""
    num_replicas: int = 1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    max_consumers: int = -1
    no_ack: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    allow_msg_ttl: bool = False
    subject_transform: dict[str, Any] | None = None
    allow_atomic: bool = False
    allow_direct: bool = False
    sealed: bool = False
    persist_mode: str = ""
    subjects: list[str] = []
    metadata: dict[str, str] = {}
    mirror: dict[str, Any] | None = None
    sources: list[dict[str, Any]] | None = None


class PeerInfo(msgspec.Struct, rename={"is_current": "current", "is_offline": "offline"}):
    """
    A server that keeps a copy and does not lead, as the leader sees it.

    `active` is how many ns ago the leader heard from it; 0 when it never did.
    """

    name: str
    is_current: bool = False
    is_offline: bool = False
    active: int = 0


class ClusterInfo(msgspec.Struct):
    """The servers that keep a copy of a stream, and their Raft group."""

    leader: str = ""
    raft_group: str = ""
    replicas: list[PeerInfo] = []


class StreamInfo(msgspec.Struct):
    """The reply to `STREAM.INFO` and `STREAM.CREATE`."""

    config: StreamConfig
    created: str
    state: StreamState
    cluster: ClusterInfo = msgspec.field(default_factory=ClusterInfo)

    @property
    def identity(self) -> str:
        """The identity of the stream, different for another one of the same name: a random id and the time of its creation."""
        return f"{self.config.metadata.get(LOG_ID, '')}@{self.created}"


class PurgeReply(msgspec.Struct):
    """The reply to `STREAM.PURGE`."""

    success: bool = False


def event_prefix(stream: str) -> str:
    return f"{stream}.e."


def shared_prefix(stream: str) -> str:
    """Return the prefix of the subjects of events in a stream that is held in shares; see `subjects.place_of`."""
    return f"{stream}.s."


def tracking_prefix(stream: str) -> str:
    return f"{stream}.t."


def open_stream(
    client: JetStreamClient,
    name: str,
    *,
    create: bool,
    replicas: int,
    is_shared: bool = False,
    may_be_shared: bool = False,
) -> StreamInfo:
    """
    The stream of that name, checked. One that is created now can be held in shares if it `is_shared`.

    Raises:
        StreamAbsentError: There is none, and `create` is False.
        InterfaceError: Its configuration would lose events, or the login was refused.
        OperationalError: The server does not answer.
    """
    check_stream_name(name)
    deadline = client.deadline()

    def find(transport: Transport, ends_at: float) -> StreamInfo | None:
        try:
            return ask_api(transport, f"STREAM.INFO.{name}", b"", StreamInfo, ends_at)
        except ApiError as error:
            if error.fault.err_code != NOT_FOUND:
                raise
        # An absent stream may be one that this key does not open. To create it then would delete what is stored, for good.
        if not create:
            msg = (
                f"there is no stream {name!r}. A new one has to be asked for (CREATE_STREAM=yes); if it existed before, "
                "do not: its encryption key may be wrong, and creating it would delete what is stored"
            )
            raise StreamAbsentError(msg)
        request = msgspec.json.encode(new_config(name, replicas, is_shared=is_shared))
        try:
            info = ask_api(transport, f"STREAM.CREATE.{name}", request, StreamInfo, ends_at)
        except ApiError as error:
            # Somebody else was faster, whose stream has another random id: look at it again.
            if error.fault.err_code != NAME_IN_USE:
                raise
            return None
        # nats-server leaves it to the system: after a power cut in its first half minute the ledger would not open.
        client.sync_stream(name)
        return info

    info = None
    while info is None:
        info = client.retry(find, deadline, doing=f"opening the stream {name}")
    wrong = faults(name, info.config, may_be_shared=may_be_shared)
    if wrong:
        msg = f"the stream {name!r} cannot hold a ledger: {'; '.join(wrong)}"
        raise InterfaceError(msg)
    return info


def stream_info(client: JetStreamClient, name: str) -> StreamInfo:
    """Return the info of a stream, from its leader, or from one that does not know yet that it was replaced; see `Barrier`."""
    return client.api(f"STREAM.INFO.{name}", None, StreamInfo, client.deadline())


class _Subjects(msgspec.Struct):
    subjects: dict[str, int] = {}


class _SubjectsPage(msgspec.Struct):
    state: _Subjects
    total: int = 0


def list_subjects(client: JetStreamClient, name: str, which: str) -> list[str]:
    """Return the subjects of a stream's messages that a filter matches; none where there is no such stream."""
    subjects: list[str] = []
    while True:
        # The server gives at most 100,000 of them at once.
        request = {"subjects_filter": which, "offset": len(subjects)}
        try:
            page = client.api(f"STREAM.INFO.{name}", request, _SubjectsPage, client.deadline())
        except StreamAbsentError:
            return []
        subjects += page.state.subjects
        if not page.state.subjects or len(subjects) >= page.total:
            return subjects


def delete_stream(client: JetStreamClient, name: str) -> None:
    """Delete the stream and all it holds; nothing happens when there is none."""

    def delete(transport: Transport, ends_at: float) -> None:
        try:
            ask_api(transport, f"STREAM.DELETE.{name}", b"", dict, ends_at)
        except ApiError as error:
            if error.fault.err_code != NOT_FOUND:
                raise

    client.retry(delete, client.deadline(), doing=f"deleting the stream {name}")


def faults(name: str, config: StreamConfig, *, may_be_shared: bool = False) -> list[str]:
    checks = (
        (config.retention == "limits", f"retention is {config.retention!r}, not 'limits'"),
        (config.storage == "file", f"storage is {config.storage!r}, not 'file'"),
        (config.discard == "new", f"discard is {config.discard!r}, so a full stream would drop its oldest events"),
        (config.max_age == 0, "max_age is set, so events would expire"),
        (config.max_msgs <= 0, "max_msgs is set, so a full stream would refuse appends"),
        (config.max_bytes <= 0, "max_bytes is set; limit the account or the server instead"),
        (config.max_msgs_per_subject <= 0, "max_msgs_per_subject is set, so long chats would lose their beginning"),
        (config.max_msg_size <= 0, "max_msg_size is set; max_payload of the server is the limit"),
        (config.max_consumers <= 0, "max_consumers is set, so readers would be kept out"),
        (not config.no_ack, "no_ack is on, so nobody would know what is stored"),
        (
            not config.deny_delete,
            "deny_delete is on, so deleted chats could not be erased; deny that to logins instead",
        ),
        (not config.deny_purge, "deny_purge is on, so backups could not be restored; deny that to logins instead"),
        (not config.allow_rollup_hdrs, "allow_rollup_hdrs is on, so one message could replace all others"),
        (not config.allow_msg_ttl, "allow_msg_ttl is on, so events could expire"),
        (config.subject_transform is None, "subject_transform is set, so events would not be where they belong"),
        (config.allow_atomic, "allow_atomic is off, so several events could not be written at once"),
        (config.allow_direct, "allow_direct is off, so pages could not be read"),
        (config.persist_mode != "async", "persist_mode is 'async', so events are acknowledged before they are written"),
        (config.mirror is None and not config.sources, "it is a mirror, or has sources"),
        (not config.sealed, "it is sealed"),
        (
            event_prefix(name) + ">" in config.subjects or (may_be_shared and is_shared(name, config)),
            f"its subjects {config.subjects} lack {event_prefix(name)}>",
        ),
        (
            tracking_prefix(name) + ">" in config.subjects,
            f"its subjects {config.subjects} lack {tracking_prefix(name)}>",
        ),
    )
    return [text for is_right, text in checks if not is_right]


def is_shared(name: str, config: StreamConfig) -> bool:
    """Whether a stream can be held in shares."""
    return shared_prefix(name) + ">" in config.subjects


def new_config(name: str, replicas: int, *, is_shared: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "subjects": [(shared_prefix if is_shared else event_prefix)(name) + ">", tracking_prefix(name) + ">"],
        "retention": "limits",
        "storage": "file",
        # A full stream refuses, instead of dropping its oldest events.
        "discard": "new",
        "num_replicas": replicas,
        "duplicate_window": DUPLICATE_WINDOW_S * 10**9,
        # For commits of several events, and of several chats.
        "allow_atomic": True,
        "allow_direct": True,
        "metadata": {LOG_ID: secrets.token_hex(16)},
    }
