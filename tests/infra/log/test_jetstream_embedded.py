"""Any eventsourcing application on an embedded server: a directory is all it needs."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import InfrastructureFactoryError


class Dog(Aggregate):
    """An aggregate as in the library's own documentation."""

    @event("Registered")
    def __init__(self, name: str) -> None:
        self.name = name
        self.tricks: list[str] = []

    @event("TrickAdded")
    def add_trick(self, trick: str) -> None:
        """Learn one."""
        self.tricks.append(trick)


def _environment(path: Path, **more: str) -> dict[str, str]:
    return {
        "PERSISTENCE_MODULE": "chatledger.jetstream",
        "JETSTREAM_PATH": str(path),
        "JETSTREAM_DURABILITY": "fast",
        "CREATE_STREAM": "yes",
        **more,
    }


def test_application_survives_reopening(tmp_path: Path) -> None:
    """What one application object saved, the next one finds; the server ends with it."""
    with Application[UUID](env=_environment(tmp_path)) as app:
        dog = Dog("Fido")
        dog.add_trick("roll over")
        app.save(dog)
    with Application[UUID](env=_environment(tmp_path)) as app:
        found: Dog = app.repository.get(dog.id)

        assert ("Fido", ["roll over"]) == (found.name, found.tricks)
        assert 2 == app.recorder.max_notification_id()


def test_two_applications_share_a_server(tmp_path: Path) -> None:
    """A second application on the same directory attaches to the server of the first."""
    with Application[UUID](env=_environment(tmp_path)) as one, Application[UUID](env=_environment(tmp_path)) as other:
        dog = Dog("Fido")
        one.save(dog)
        found: Dog = other.repository.get(dog.id)

        assert "Fido" == found.name


def test_unknown_durability_is_refused(tmp_path: Path) -> None:
    """A misspelt setting does not weaken anything silently."""
    with pytest.raises(InfrastructureFactoryError, match="JETSTREAM_DURABILITY"):
        Application[UUID](env=_environment(tmp_path / str(uuid4()), JETSTREAM_DURABILITY="allways"))
