"""`chatledger verify` and `chatledger anchor`."""

import json
from pathlib import Path

import pytest
from tests.support.cli_world import ask, fails, run
from tests.support.proof_world import KEY, OTHER, SqliteFile, fill, pem_of, public_pem_of

import chatledger
from chatledger import user


@pytest.fixture
def file(tmp_path: Path) -> SqliteFile:
    found = SqliteFile(tmp_path)
    with chatledger.open(found.location, compression="none") as ledger:
        fill(ledger)
    (tmp_path / "anchor.key").write_bytes(pem_of(KEY))
    (tmp_path / "anchor.pub").write_bytes(public_pem_of(KEY))
    (tmp_path / "other.pub").write_bytes(public_pem_of(OTHER))
    return found


def at(file: SqliteFile, *args: object) -> tuple[int, str, str]:
    result = run("--location", file.location, *map(str, args))
    return result.exit_code, result.stdout, result.stderr


def test_verify_reports(file: SqliteFile) -> None:
    """A few lines for people, an object for programs, exit code 0."""
    code, out, err = at(file, "verify")
    assert (code, err) == (0, "")
    assert "The log is sound:" in out
    assert "1 deletion" in out
    assert "5 chats" in out
    code, out, _ = at(file, "verify", "--json")
    found = json.loads(out)
    assert (code, found["ok"], found["chat_count"], found["deletion_count"]) == (0, True, 5, 1)


def test_verify_names_what_is_wrong(file: SqliteFile) -> None:
    """Exit code 1, one line on stderr; with --json the facts on stdout too."""
    file.rewrite("b", b"leeks", b"peaks")
    said = fails(1, "--location", file.location, "verify")
    assert "chat 'b'" in said
    code, out, err = at(file, "verify", "--json")
    found = json.loads(out)
    assert (code, found["ok"], found["chat_id"], found["error"]) == (1, False, "b", "ChainIntegrityError")
    assert found["message"] in err


def test_anchor_and_verify_with_it(file: SqliteFile, tmp_path: Path) -> None:
    """Written to a file or printed; an existing file stays."""
    key, out_file = tmp_path / "anchor.key", tmp_path / "anchor.json"
    code, out, _ = at(file, "anchor", "--key", key, "--out", out_file)
    assert code == 0
    assert "Anchored 5 streams" in out
    code, printed, _ = at(file, "anchor", "--key", key)
    assert json.loads(printed)["root"] == json.loads(out_file.read_text())["root"]
    assert "exists" in fails(1, "--location", file.location, "anchor", "--key", key, "--out", out_file)

    code, out, err = at(file, "verify", "--anchor", out_file, "--public-key", tmp_path / "anchor.pub")
    assert (code, err) == (0, "")
    assert "It has all that was anchored" in out
    code, out, err = at(file, "verify", "--anchor", out_file)
    assert code == 0
    assert "--public-key" in err
    with chatledger.open(file.location) as ledger:
        ledger.delete_chat("b")
    code, out, _ = at(file, "verify", "--anchor", out_file, "--json")
    assert json.loads(out)["erased_since_anchor"] == ["b"]
    assert json.loads(out)["anchor"]["is_key_given"] is False

    file.rewrite("a", b"leeks", b"peaks")
    file.drop_index()
    assert at(file, "verify")[0] == 0
    said = fails(1, "--location", file.location, "verify", "--anchor", out_file)
    assert "chat 'a' is not as it was" in said


def test_mistakes(file: SqliteFile, tmp_path: Path) -> None:
    """Missing files, wrong keys, options that do not go together."""
    place = ("--location", file.location)
    at(file, "anchor", "--key", tmp_path / "anchor.key", "--out", tmp_path / "anchor.json")
    assert "--anchor" in fails(2, *place, "verify", "--public-key", tmp_path / "anchor.pub")
    assert "cannot be read" in fails(1, *place, "verify", "--anchor", tmp_path / "none.json")
    assert "no anchor" in fails(1, *place, "verify", "--anchor", tmp_path / "anchor.key")
    other = ("--public-key", tmp_path / "other.pub")
    assert "another key" in fails(1, *place, "verify", "--anchor", tmp_path / "anchor.json", *other)
    assert "openssl" in fails(1, *place, "anchor", "--key", tmp_path / "none.key")
    assert "Missing option" in fails(2, *place, "anchor")
    into = tmp_path / "no folder" / "anchor.json"
    assert "cannot be written" in fails(1, *place, "anchor", "--key", tmp_path / "anchor.key", "--out", into)


def test_proof_of_messages(file: SqliteFile, tmp_path: Path) -> None:
    """`prove` writes a file, and `check-proof` needs nothing else; both refuse what is wrong in one line."""
    anchor, proof, key = tmp_path / "anchor.json", tmp_path / "proof.txt", tmp_path / "anchor.key"
    public = ("--public-key", str(tmp_path / "anchor.pub"))
    at(file, "anchor", "--key", key, "--out", anchor)
    with chatledger.open(file.location) as ledger:
        first, second = ledger.get_messages("a")[:2]
    code, out, _ = at(file, "prove", first.id, second.id, "--key", key, "--audience", "bob", "--out", proof)
    assert (code, "check-proof" in out) == (0, True)

    checked = run("check-proof", str(proof), *public, "--audience", "bob")
    assert (checked.exit_code, checked.stderr) == (0, "")
    assert first.text in checked.stdout
    assert second.text in checked.stdout
    told = json.loads(run("check-proof", str(proof), "--json", "--audience", "bob").stdout)
    assert (told["ok"], told["chat_id"], told["audience"], told["standing"]) == (True, "a", "bob", None)
    assert [message["id"] for message in told["messages"]] == [first.id, second.id]

    place = ("--location", file.location)
    asked = ("check-proof", str(proof), *public, "--audience", "bob", "--still-valid")
    assert run(*place, *asked).exit_code == 0
    with chatledger.open(file.location) as ledger:
        ledger.annotate("a", second.id, hidden=True)
    left = run(*place, *asked)
    assert (left.exit_code, f"revoked: {second.id}" in left.stdout) == (1, True)
    assert json.loads(run(*place, *asked, "--json").stdout)["standing"]["revoked"] == [second.id]

    over, anchored = tmp_path / "over.txt", tmp_path / "anchored.txt"
    at(file, "prove", first.id, "--anchor", anchor, "--out", anchored)
    assert "anchored at position" in run("check-proof", anchored, *public).stdout
    at(file, "prove", first.id, "--key", key, "--ttl", "0.001", "--out", over)
    assert "expired" in fails(1, "check-proof", over)
    assert "is for 'bob'" in fails(1, "check-proof", str(proof))
    assert "another key" in fails(1, "check-proof", str(proof), "--public-key", str(tmp_path / "other.pub"))
    assert "no excerpt" in fails(1, "check-proof", str(key))
    assert "cannot be read" in fails(1, "check-proof", str(tmp_path / "none.txt"))
    assert "exists" in fails(1, *place, "prove", first.id, "--key", key, "--out", proof)
    assert "none" in fails(1, *place, "prove", "none", "--key", key)
    assert "neither a time" in fails(2, *place, "prove", first.id, "--key", key, "--expires", "soon")
    proof.write_text(proof.read_text().replace("A", "B"))
    assert "check-proof" not in fails(1, "check-proof", str(proof))


def test_bundles(file: SqliteFile, tmp_path: Path) -> None:
    """`bundle create` writes a file, `bundle verify` needs nothing else, `bundle import` takes it in; what is wrong is one line."""
    bundle, other = tmp_path / "two.clb", tmp_path / "other"
    code, out, _ = at(file, "bundle", "create", "a", "b", "-o", bundle, "--key", tmp_path / "anchor.key")
    assert (code, "bundle verify" in out) == (0, True)
    assert "chat" in run("bundle", "verify", bundle, "--public-key", tmp_path / "anchor.pub").stdout
    told = json.loads(run("bundle", "verify", bundle, "--json").stdout)
    assert [chat["chat_id"] for chat in told["chats"]] == ["a", "b"]
    assert "new events" in run("bundle", "import", bundle, at=other).stdout
    assert [chat["added"] for chat in ask("bundle", "import", bundle, at=other)["chats"]] == [0, 0]
    with chatledger.open(file.location) as source, chatledger.open(other) as copy:
        assert source.export_chat("a") == copy.export_chat("a")

    place, shown = ("--location", file.location), tmp_path / "shown.clb"
    at(file, "bundle", "create", "a", "-o", shown, "--redact", "role:user")
    assert "kept back" in run("bundle", "verify", shown).stdout
    assert "kept back" in fails(1, "bundle", "import", shown, at=tmp_path / "absent")
    assert not (tmp_path / "absent").exists()
    assert "role:ROLE" in fails(2, *place, "bundle", "create", "a", "-o", tmp_path / "c.clb", "--redact", "tool")
    assert "exists" in fails(1, *place, "bundle", "create", "a", "-o", bundle)
    assert "none" in fails(1, *place, "bundle", "create", "none", "-o", tmp_path / "none.clb")
    assert "another key" in fails(1, "bundle", "verify", bundle, "--public-key", tmp_path / "other.pub")
    assert "nobody signed" in fails(1, "bundle", "verify", shown, "--public-key", tmp_path / "other.pub")
    bundle.write_bytes(bundle.read_bytes()[:-9])
    assert "cut off" in fails(1, "bundle", "verify", bundle)


def test_a_directory_at_rest_proves(tmp_path: Path) -> None:
    """Nobody has it open: its log is asked after its index was."""
    data, key = tmp_path / "data", tmp_path / "anchor.key"
    key.write_bytes(pem_of(KEY))
    with chatledger.open(data) as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("to Riga", id="m1"), user("x" * 300_000, id="m2")])
    assert run("anchor", "--key", key, "--out", tmp_path / "anchor.json", at=data).exit_code == 0
    for out in (
        ("prove", "m1", "--anchor", tmp_path / "anchor.json"),
        ("bundle", "create", "trip", "-o", tmp_path / "t.clb"),
    ):
        result = run(*out, at=data)
        assert result.exit_code == 0, result.stderr


def test_chats_travel(file: SqliteFile, tmp_path: Path) -> None:
    """`push`, `pull` and `sync` between two locations; the second time there is nothing to do."""
    place, other = ("--location", file.location), tmp_path / "office"
    code, out, _ = at(file, "push", other, "a", "b")
    assert (code, out.splitlines()[0]) == (0, "pushed: 2 chats compared, 2 differences.")
    with chatledger.open(file.location) as here, chatledger.open(other) as there:
        assert here.export_chat("a") == there.export_chat("a")
        here.append("a", [user("here")])
        there.append("a", [user("there")])
    planned = ask("pull", file.location, "a", "--dry-run", at=other)["pulled"]["chats"]
    assert [(chat["chat_id"], chat["outcome"]) for chat in planned] == [("a", "merged")]
    assert "log/main" in run("pull", file.location, at=other).stdout
    assert "1 difference." in run("sync", file.location, "--name", "home", "--own-name", "work", at=other).stdout
    told = ask("sync", file.location, "--name", "home", "--own-name", "work", at=other)
    assert (told["pulled"]["chats"], told["pushed"]["chats"]) == ([], [])
    with chatledger.open(file.location) as here:
        assert "work/main" in {branch.name for branch in here.list_branches("a")}
    assert "same ledger" in fails(1, *place, "pull", file.location)
    assert "no ledger" in fails(1, *place, "pull", tmp_path / "absent")
    assert "all users" in fails(2, *place, "--as-user", "ada", "pull", str(other))
    assert "does not answer" in fails(1, "pull", "http://127.0.0.1:9", at=other)
    assert "does not answer" in fails(1, *place, "push", "http://127.0.0.1:9")


@pytest.mark.guard
def test_other_ledgers_have_names(file: SqliteFile, tmp_path: Path) -> None:
    """The names are those of branches; a bundle is pulled from as a ledger is."""
    place, other = ("--location", file.location), tmp_path / "office"
    assert at(file, "push", other, "a", "b")[0] == 0
    assert ask("remote", "add", "home", file.location, "--own-name", "work", at=other)["name"] == "home"
    assert "home" in run("remote", "list", at=other).stdout
    with chatledger.open(file.location) as here, chatledger.open(other) as there:
        here.append("a", [user("here")])
        there.append("a", [user("there")])
    for verb in ("sync", "push", "pull"):
        assert "did you mean 'home'?" in fails(2, verb, "hom", at=other)
    assert run("sync", "home", at=other).exit_code == 0
    for ledger in (file.location, other):
        with chatledger.open(ledger) as opened:
            names = {branch.name for branch in opened.list_branches("a")}
            assert names & {"home/main", "work/main"} == {"home/main" if ledger is other else "work/main"}
    bundle = tmp_path / "b.clb"
    assert at(file, "bundle", "create", "b", "-o", bundle)[0] == 0
    with chatledger.open(other) as there:
        there.delete_chat("a")
        there.append("b", [user("there", id="on")])
    assert [chat["outcome"] for chat in ask("pull", str(bundle), "b", at=other)["pulled"]["chats"]] == []
    assert run("pull", str(bundle), "--name", "x", at=tmp_path / "third").stdout.startswith(
        "pulled: 1 chat compared, 1 d"
    )
    assert "only pulled from" in fails(2, *place, "push", str(bundle))
    assert "secret" in fails(1, *place, "remote", "add", "x", "nats://ada:pw@host/office")
    moved = run("remote", "add", "home", "sqlite:///moved.db", at=other).stdout
    assert moved == f"home is sqlite:///moved.db; it was {file.location}.\n"
    assert ask("remote", "remove", "home", at=other) == {"removed": True}
    assert ask("remote", "remove", "home", at=other) == {"removed": False}
    assert "no ledger" in fails(1, *place, "pull", "home")
