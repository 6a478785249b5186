"""Refusals of the operating system are raised as errors of ours, and pass when the cause does."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.contracts.store_world import each_raises

import chatledger
from chatledger import ConfigurationError, Ledger, admin, user
from chatledger.errors import ResourceError

Call = Callable[[Ledger, Path], object]
CALLS: dict[str, Call] = {
    "search": lambda ledger, _: ledger.search("hello"),
    "verify": lambda ledger, _: ledger.verify(),
    "anchor": lambda ledger, path: ledger.anchor(path / "key.pem"),
    "rebuild": lambda ledger, _: ledger.rebuild(),
    "rebuild search": lambda ledger, _: ledger.rebuild(only="search"),
    "backup": lambda ledger, path: ledger.backup(path / "backup"),
    "as_of": lambda ledger, _: read(ledger),
    "append": lambda ledger, _: ledger.append("c", [user("more")]),
    "delete": lambda ledger, _: ledger.delete_chat("gone"),
    "export": lambda ledger, _: ledger.export_chat("c"),
    "import": lambda ledger, _: ledger.import_chat(ledger.export_chat("c")),
    "history": lambda ledger, _: list(ledger.history()),
    "feed": lambda ledger, _: list(ledger.feed(0, follow=False)),
    "sweep": lambda ledger, _: ledger.sweep(),
    "open again": lambda _, path: chatledger.open(path / "data", index=path / "other").close(),
    "open another": lambda _, path: chatledger.open(path / "new").close(),
    "open memory": lambda _, __: chatledger.open("memory:").close(),
    "open sqlite": lambda _, path: chatledger.open(f"sqlite:///{path}/log.db").close(),
    "check backup": lambda _, path: admin.check_backup(path / "kept"),
    "restore": lambda _, path: admin.restore(path / "kept", path / "restored"),
    "diagnose": lambda _, path: admin.diagnose(path / "data"),
}


def read(ledger: Ledger) -> object:
    with ledger.as_of(1) as view:
        return view.get_messages("c")


@pytest.mark.soak
def test_calls_without_descriptors(tmp_path: Path) -> None:
    """In a process that has read nothing yet, so that also the modules of a call cannot be read. Afterwards all work."""
    command = [sys.executable, __file__, str(tmp_path)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)

    assert done.stderr == ""
    assert done.stdout.splitlines() == ["search: refused, then done"]


def show_calls(path: Path) -> None:
    """Make each call with all descriptors taken, and again without; show those that do not go as they should, and one that does."""
    key = Ed25519PrivateKey.generate()
    (path / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with chatledger.open(path / "data", timeout_s=3) as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("hello world")])
        ledger.backup(path / "kept")
        outcomes: dict[str, str] = {}
        with no_descriptors():
            for name, call in CALLS.items():
                outcomes[name] = outcome(call, ledger, path)
        for name, call in CALLS.items():
            again = outcome(call, ledger, path)
            is_right = outcomes[name] in {"refused", "done"} and again == "done"
            if name == "search" or not is_right:
                print(f"{name}: {outcomes[name]}, then {again}")


def outcome(call: Call, ledger: Ledger, path: Path) -> str:
    try:
        call(ledger, path)
    except ResourceError:
        return "refused"
    except ConfigurationError as error:
        return "refused" if "Too many open files" in str(error) else repr(error)
    except Exception as error:  # noqa: BLE001 - it is shown
        return repr(error)
    return "done"


@contextmanager
def no_descriptors() -> Generator[None]:
    """Take all that this process may have."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, limits[1]))
    taken: list[int] = []
    with suppress(OSError):
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    try:
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.soak
@pytest.mark.parametrize("count", [8, 10, 12, 14, 16, 18, 20])
def test_opening_with_few_descriptors(tmp_path: Path, count: int) -> None:
    """It works or says so; nobody is sent to a backup."""
    with chatledger.open(tmp_path / "data") as ledger:
        ledger.create_chat("c", "ada")
    program = (
        "import sys, resource, chatledger, chatledger.infra.log.sql\n"
        "from chatledger import ChatledgerError, CorruptStateError\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)\n"
        "try:\n"
        "    with chatledger.open(sys.argv[1], timeout_s=3) as ledger:\n"
        "        assert ledger.get_chat('c')\n"
        "except CorruptStateError:\n"
        "    raise\n"
        "except ChatledgerError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "data"), str(count)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    with chatledger.open(tmp_path / "data") as ledger:
        assert ledger.get_chat("c") is not None


def test_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tempfile` finds none, or the one there was is gone."""
    with chatledger.open(tmp_path / "data") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("hello world")])
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
        acts = (lambda: read(ledger), ledger.verify, lambda: chatledger.open("memory:"))
        each_raises(ResourceError, *acts, match=r"temporary folder.*TMPDIR")


OPENED: dict[str, Callable[[Path], Ledger]] = {
    "location": chatledger.open,
    "index": lambda path: chatledger.open(path.with_name("data"), index=path),
    "sqlite": lambda path: chatledger.open(f"sqlite:///{path}"),
}


@pytest.mark.parametrize("place", OPENED)
def test_a_path_that_is_not_utf_8(tmp_path: Path, place: str) -> None:
    """LMDB takes none; it is refused in words, and nothing is made."""
    path = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        OPENED[place](path)

    assert list(tmp_path.iterdir()) == []


if __name__ == "__main__":
    show_calls(Path(sys.argv[1]))
