"""The infrastructure factory: settings in the environment of an application, recorders out of it."""

import logging
import ssl
from collections.abc import Callable
from typing import Any, TypeVar, cast, get_args

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    InfrastructureFactoryError,
    ProcessRecorder,
    TrackingRecorder,
)
from eventsourcing.utils import Environment, resolve_topic, strtobool

from ..nats_server.directory import DataDirectory, Durability
from ..nats_server.server import EmbeddedSource
from .client import JetStreamClient
from .endpoint import Endpoint
from .recorders import (
    JetStreamAggregateRecorder,
    JetStreamApplicationRecorder,
    JetStreamProcessRecorder,
    JetStreamTrackingRecorder,
)
from .records import IdType
from .subjects import check_stream_name, stream_name

log = logging.getLogger("chatledger.jetstream")
T = TypeVar("T")

PATH = "JETSTREAM_PATH"
DURABILITY = "JETSTREAM_DURABILITY"
URL = "JETSTREAM_URL"
TOKEN = "JETSTREAM_TOKEN"  # noqa: S105 (the name of a setting)
USER = "JETSTREAM_USER"
PASSWORD = "JETSTREAM_PASSWORD"  # noqa: S105 (the name of a setting)
CREDS = "JETSTREAM_CREDS"
NKEYS_SEED = "JETSTREAM_NKEYS_SEED"
TLS_CA = "JETSTREAM_TLS_CA"
TLS_CERT = "JETSTREAM_TLS_CERT"
TLS_KEY = "JETSTREAM_TLS_KEY"
STREAM = "JETSTREAM_STREAM"
REPLICAS = "JETSTREAM_REPLICAS"
TIMEOUT = "JETSTREAM_TIMEOUT"
ORIGINATOR_ID_TYPE = "ORIGINATOR_ID_TYPE"
CREATE_STREAM = "CREATE_STREAM"


def endpoint_source(env: Environment) -> Callable[[], Endpoint]:
    """
    Return a function that reads the endpoint from the settings of an application.

    Raises:
        InfrastructureFactoryError: There is no JETSTREAM_URL, or the files for TLS cannot be read.
    """
    urls = tuple(url.strip() for url in (env.get(URL) or "").split(",") if url.strip())
    if not urls:
        msg = f"no server is named: set one of {', '.join(env.create_keys(URL) + env.create_keys(PATH))}"
        raise InfrastructureFactoryError(msg)
    endpoint = Endpoint(
        urls=urls,
        token=env.get(TOKEN) or None,
        user=env.get(USER) or None,
        password=env.get(PASSWORD) or None,
        credentials_path=env.get(CREDS) or None,
        nkeys_seed_path=env.get(NKEYS_SEED) or None,
        tls=_tls(env),
    )
    return lambda: endpoint


def _tls(env: Environment) -> ssl.SSLContext | None:
    ca, certificate, key = env.get(TLS_CA), env.get(TLS_CERT), env.get(TLS_KEY)
    if not (ca or certificate):
        return None
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if certificate:
            context.load_cert_chain(certificate, key or None)
    except OSError as error:
        msg = f"TLS cannot be set up from {TLS_CA}, {TLS_CERT} and {TLS_KEY}: {error}"
        raise InfrastructureFactoryError(msg) from error
    return context


class JetStreamFactory(InfrastructureFactory[TrackingRecorder]):
    """
    Recorders on JetStream; `PERSISTENCE_MODULE=chatledger.jetstream` selects it.

    Each setting is looked up as `<NAME OF THE APPLICATION>_<SETTING>` first:

    - JETSTREAM_URL: one server or several, separated by commas; or
    - JETSTREAM_PATH: a directory, where an embedded server runs while the application does, and JETSTREAM_DURABILITY,
      `always` (default: synced before it is acknowledged) or `fast` (within a second).
    - JETSTREAM_TOKEN, JETSTREAM_USER and JETSTREAM_PASSWORD, JETSTREAM_CREDS or JETSTREAM_NKEYS_SEED (paths): the login.
    - JETSTREAM_TLS_CA, JETSTREAM_TLS_CERT, JETSTREAM_TLS_KEY: paths.
    - JETSTREAM_STREAM: the stream, by default the application's name. Never share one between applications.
    - JETSTREAM_REPLICAS: of a stream that is created, by default 1.
    - JETSTREAM_TIMEOUT: seconds for one operation with all its retries, by default 15.
    - ORIGINATOR_ID_TYPE: `uuid` (default) or `text`.
    - CREATE_STREAM: `yes` creates what is absent; by default nothing is ever created.

    Raises:
        InfrastructureFactoryError: A setting is missing or wrong.
    """

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        timeout_s = self._number(TIMEOUT, 15.0, float)
        path = self.env.get(PATH)
        if not path:
            self._embedded = None
            self._client = JetStreamClient(endpoint_source(self.env), timeout_s=timeout_s)
            return
        durability = self.env.get(DURABILITY) or "always"
        if durability not in get_args(Durability):
            msg = f"{DURABILITY} is 'always' or 'fast', not {durability!r}"
            raise InfrastructureFactoryError(msg)
        source = self._embedded = EmbeddedSource(
            DataDirectory(path), durability=cast("Durability", durability), stream=self._stream(), timeout_s=timeout_s
        )
        self._client = JetStreamClient(
            source,
            timeout_s=timeout_s,
            erasing=source.erasing,
            why_full=source.directory.why_full,
            erasable=source.directory.erasable,
            sync_stream=source.directory.sync_stream,
            sync_messages=source.sync_messages,
        )

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        """A recorder of events, or of snapshots: those have a stream of their own, `<stream>_snapshots`."""
        # Versions of snapshots have gaps, and those of events must not: they share no stream.
        return self._recorder(JetStreamAggregateRecorder, suffix="" if purpose == "events" else f"_{purpose}")

    def application_recorder(self) -> ApplicationRecorder:
        """The recorder of the application's events, of the class that APPLICATION_RECORDER_TOPIC names."""
        return self._recorder(JetStreamApplicationRecorder, topic=self.env.get(self.APPLICATION_RECORDER_TOPIC))

    def tracking_recorder(self, tracking_recorder_class: type[TrackingRecorder] | None = None) -> TrackingRecorder:
        """A view, of the class in the argument or in TRACKING_RECORDER_TOPIC."""
        if tracking_recorder_class is not None:
            return self._recorder(tracking_recorder_class)
        return self._recorder(JetStreamTrackingRecorder, topic=self.env.get(self.TRACKING_RECORDER_TOPIC))

    def process_recorder(self) -> ProcessRecorder:
        """The recorder of an event-processing application, of the class that PROCESS_RECORDER_TOPIC names."""
        return self._recorder(JetStreamProcessRecorder, topic=self.env.get(self.PROCESS_RECORDER_TOPIC))

    def _recorder(self, kind: type[T], *, topic: str | None = None, suffix: str = "") -> T:
        chosen: Any = resolve_topic(topic) if topic else kind
        return cast("T", chosen(self._client, self._stream() + suffix, **self._options()))

    def close(self) -> None:
        """End the connection. May be called again, and never raises: applications call it from their finaliser."""
        try:
            self._client.close()
            if self._embedded is not None:
                self._embedded.close()
        except Exception:
            log.warning("the connection could not be closed", exc_info=True)

    def _stream(self) -> str:
        name = self.env.get(STREAM)
        return check_stream_name(name) if name else stream_name(self.env.name or "chatledger")

    def _options(self) -> dict[str, Any]:
        id_type = (self.env.get(ORIGINATOR_ID_TYPE) or "uuid").lower()
        if id_type not in {"uuid", "text"}:
            msg = f"{ORIGINATOR_ID_TYPE} is 'uuid' or 'text', not {id_type!r}"
            raise InfrastructureFactoryError(msg)
        return {
            "id_type": cast("IdType", id_type),
            # Never by default: where the key of a server is wrong, its streams seem absent, and creating one deletes what is stored.
            "create": strtobool(self.env.get(CREATE_STREAM) or "no"),
            "replicas": self._number(REPLICAS, 1, int),
        }

    def _number(self, setting: str, default: Any, kind: Callable[[str], Any]) -> Any:
        text = self.env.get(setting)
        if not text:
            return default
        try:
            number = kind(text)
        except ValueError as error:
            msg = f"{setting} is not a number: {text!r}"
            raise InfrastructureFactoryError(msg) from error
        if not number > 0:
            msg = f"{setting} must be above 0, not {text}"
            raise InfrastructureFactoryError(msg)
        return number
