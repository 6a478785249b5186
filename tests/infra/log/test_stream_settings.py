"""A stream whose settings would lose events, or keep readers out, is refused, and each wrong setting is named."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.jetstream_world import new_name
from tests.support.secure_world import serving

import chatledger
from chatledger import ConfigurationError
from chatledger.infra.log.nats.stream import new_config
from chatledger.jetstream import Endpoint, JetStreamClient

pytestmark = pytest.mark.timeout(60)
WRONG: dict[str, dict[str, Any]] = {
    "retention": {"retention": "interest"},
    "storage": {"storage": "memory"},
    "discard": {"discard": "old"},
    "max_age": {"max_age": 10**15},
    "max_msgs": {"max_msgs": 10**9},
    "max_bytes": {"max_bytes": 10**9},
    "max_msgs_per_subject": {"max_msgs_per_subject": 10**6},
    "max_msg_size": {"max_msg_size": 10**6},
    "max_consumers": {"max_consumers": 10},
    "no_ack": {"no_ack": True, "allow_atomic": False},
    "deny_delete": {"deny_delete": True},
    "deny_purge": {"deny_purge": True},
    "allow_rollup_hdrs": {"allow_rollup_hdrs": True},
    "allow_msg_ttl": {"allow_msg_ttl": True},
    "subject_transform": {"subject_transform": {"src": "a.>", "dest": "b.>"}},
    "allow_atomic": {"allow_atomic": False},
    "allow_direct": {"allow_direct": False},
    "persist_mode": {"persist_mode": "async", "allow_atomic": False},
    "subjects": {"subjects": ["something.else"]},
    "mirror": {"mirror": {"name": "Other"}, "subjects": None, "discard": None, "allow_atomic": None},
    "storage.*discard.*max_age.*max_msgs": {"max_age": 10**15, "max_msgs": 10, "discard": "old", "storage": "memory"},
}
"""The name of a fault of a stream, and its settings."""


class Created(msgspec.Struct):
    did_create: bool = False


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("server"), "") as address:
        yield address


def make(address: str, name: str, **settings: Any) -> None:
    endpoint = Endpoint(urls=(f"nats://{address}",))
    client = JetStreamClient(lambda: endpoint)
    config = {key: value for key, value in {**new_config(name, 1), **settings}.items() if value is not None}
    try:
        client.api(f"STREAM.CREATE.{name}", config, Created, client.deadline())
    finally:
        client.close()


@pytest.mark.parametrize("setting", WRONG)
def test_a_wrong_setting_is_named(setting: str, address: str, tmp_path: Path) -> None:
    name = new_name()
    make(address, name, **WRONG[setting])
    with pytest.raises(ConfigurationError, match=f"cannot hold a ledger.*{setting}"):
        chatledger.open(f"nats://{address}/{name}", index=tmp_path)


def test_settings_that_do_no_harm(address: str, tmp_path: Path) -> None:
    """The window for duplicates does not matter: an append is stored once because of the position that it expects."""
    name = new_name()
    make(address, name, duplicate_window=10**8, compression="s2", description="ours")
    with chatledger.open(f"nats://{address}/{name}", index=tmp_path) as ledger:
        ledger.create_chat("c", "u")


def test_replicas_without_a_cluster(address: str, tmp_path: Path) -> None:
    """It is a wrong setting, not a server that is away."""
    with pytest.raises(ConfigurationError, match="replicas"):
        chatledger.open(f"nats://{address}/{new_name()}", create=True, replicas=3, index=tmp_path, timeout_s=60)
