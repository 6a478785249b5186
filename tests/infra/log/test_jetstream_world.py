"""A real nats-server, and a proxy that swallows replies, for the tests of the JetStream module."""

from tests.support.jetstream_world import eventually


def test_eventually_returns_the_first_true_value() -> None:
    values = iter([0, 0, 3])

    assert eventually(lambda: next(values)) == 3
