"""Actions on the pages: forms that work without scripts, for those who may write, sent by our own pages only."""

import re
import shutil
import subprocess
from collections.abc import Generator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from tests.support.explorer_agents import HIDDEN, STATE, THREAD, fill_agents
from tests.support.explorer_world import BROWSER, demo_ledger
from tests.support.hostile_markup import PAYLOADS, faults_in
from tests.support.http_world import serving

import chatledger
from chatledger import NewMessage, assistant, user
from chatledger.infra.entrypoints.explorer.actions import ACTIONS
from chatledger.infra.entrypoints.explorer.links import EntryLinks
from chatledger.infra.entrypoints.explorer.page import path_to
from chatledger.langgraph import LedgerSaver
from chatledger.server import KeyFile, create_app


class _Forms(HTMLParser):
    """The forms of a page, by the last part of their path: what a browser would send if nobody filled them in."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, dict[str, str]] = {}
        self._open: dict[str, str] | None = None
        self._text: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form" and given.get("action", "").startswith("/do/"):
            self._open = self.found.setdefault(given["action"].removeprefix("/do/"), {})
        elif (
            self._open is not None
            and tag == "input"
            and (given.get("type") not in {"checkbox", "radio"} or "checked" in given)
        ):
            self._open[given["name"]] = given["value"]
        elif self._open is not None and tag == "textarea":
            self._text, self._open[given["name"]] = given["name"], ""

    def handle_data(self, data: str) -> None:
        if self._open is not None and self._text is not None:
            self._open[self._text] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._open is not None and self._text is not None:
            self._open[self._text] = self._open[self._text].removeprefix("\n")
            self._text = None
        elif tag == "form":
            self._open = None


def forms_of(page: httpx.Response) -> dict[str, dict[str, str]]:
    reader = _Forms()
    reader.feed(page.text)
    return reader.found


@pytest.fixture(scope="module")
def ledger() -> Generator[chatledger.AsyncLedger]:
    """The sample conversations."""
    with demo_ledger() as ledger:
        yield ledger


@pytest.fixture
def blocking(ledger: chatledger.AsyncLedger) -> chatledger.Ledger:
    """The same, with a chat to change."""
    found = ledger.blocking()
    fill(found)
    return found


def fill(ledger: chatledger.Ledger) -> None:
    ledger.delete_chat("trip")
    ledger.create_chat("trip", "ada", title="A trip")
    ledger.append("trip", [user("Where to?\nSoon?", id="t1"), assistant("Riga", id="t2")])
    ledger.create_branch("trip", "other", "t1")


@pytest.fixture
def browser(ledger: chatledger.AsyncLedger, blocking: chatledger.Ledger) -> Generator[httpx.Client]:
    """A browser of somebody who may write, signed in by a link."""
    del blocking
    links = EntryLinks(b"secret", "/")
    app = create_app(ledger, links=links)
    with serving(app) as url, httpx.Client(base_url=url, headers=BROWSER, timeout=30) as client:
        client.get(links.current())
        yield client


def send(browser: httpx.Client, page: str, action: str, **given: str) -> httpx.Response:
    """Fill in a form of a page, send it, and return the page that follows."""
    answer = browser.post(f"/do/{action}", data=forms_of(browser.get(page))[action] | given)

    assert answer.status_code == 303, answer.text
    followed = browser.get(answer.headers["location"])
    assert followed.status_code == 200
    return followed


def commands(browser: httpx.Client, page: str, name: str) -> Mapping[str, str]:
    """The commands that a page shows for one of its forms."""
    values = browser.get(page).json()
    found: Mapping[str, str]
    (found,) = [one for one in values["message_actions"] + values["chat_actions"] if one["name"] == name]
    return found


def run_python(browser: httpx.Client, page: str, name: str, ledger: chatledger.Ledger) -> None:
    """Do what the page says that does the same in Python."""
    names: dict[str, Any] = {"ledger": ledger, "NewMessage": NewMessage, "LedgerSaver": LedgerSaver}
    exec(commands(browser, page, name)["python"], names)


def test_fork(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """The new branch ends with the message, and is shown."""
    page = send(browser, "/c/trip?m=t1", "fork")
    made = blocking.get_active_branch("trip")
    assert made is not None
    send(browser, "/c/trip?m=t1", "fork", name="mine")
    run_python(browser, "/c/trip.json?m=t2", "fork", blocking)

    assert made.head_message_id == "t1"
    assert f'<option value="{made.name}" selected>' in page.text
    assert blocking.get_branch("trip", "mine") is not None
    assert [one.head_message_id for one in blocking.list_branches("trip")] == ["t2", "t1", "t1", "t1", "t2"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fork", {"name": "it's"}),
        ("edit", {"text": 'In "the" old town'}),
        ("name", {"name": "it's"}),
        ("annotate", {"stale": "true", "metadata": '{"by": "it\'s"}'}),
    ],
)
def test_commands_are_those_of_the_form_as_it_is_filled_in(
    browser: httpx.Client, blocking: chatledger.Ledger, name: str, values: dict[str, str]
) -> None:
    """What stands beside a form does what the form would do; it is told without doing it."""
    form = forms_of(browser.get("/c/trip?m=t2"))[name] | values
    before = blocking.position
    told = browser.post(f"/commands/{name}", data=form, headers={"X-Chatledger-CSRF": form["csrf"]})
    assert told.status_code == 200, told.text
    assert blocking.position == before
    exec(told.json()["python"], {"ledger": blocking, "NewMessage": NewMessage})
    by_command = _outcome(blocking)
    fill(blocking)
    send(browser, "/c/trip?m=t2", name, **values)

    assert by_command == _outcome(blocking)


def _outcome(ledger: chatledger.Ledger) -> object:
    """A chat after an action, but for ids and times that were given."""
    active = ledger.get_active_branch("trip")
    assert active is not None
    return (
        [(message.name, message.data, message.annotation) for message in ledger.get_messages("trip")],
        active.head_message_id if active.head_message_id in {"t1", "t2"} else None,
        [(checkpoint.name, checkpoint.message_id) for checkpoint in ledger.list_checkpoints("trip")],
        active.name,
    )


def test_edit(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """Other words are another version of the message; the same words are nothing."""
    send(browser, "/c/trip?m=t1", "edit", text="Where to?\r\nSoon?")
    assert len(blocking.versions("t1").ids) == 1
    page = send(browser, "/c/trip?m=t2", "edit", text="Tallinn,\r\n<b>then</b> Riga")
    active = blocking.get_active_branch("trip")
    assert active is not None
    head = blocking.get_message(str(active.head_message_id))

    assert head is not None
    assert (head.text, head.parent_id, head.name) == ("Tallinn,\n<b>then</b> Riga", "t1", "assistant")
    assert "2 of 2" in page.text
    run_python(browser, "/c/trip.json?m=t2", "edit", blocking)
    assert len(blocking.versions("t2").ids) == 3


@pytest.mark.parametrize(
    "data",
    [
        {"id": "m", "role": "user", "parts": [{"type": "text", "text": "old"}]},
        {"role": "user", "content": "old"},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "old"}],
        },
    ],
)
def test_edit_keeps_the_form_of_a_message(
    browser: httpx.Client, blocking: chatledger.Ledger, data: dict[str, Any]
) -> None:
    """Only the words become others, and the id, which is another message's."""
    blocking.delete_chat("forms")
    blocking.create_chat("forms", "ada")
    blocking.append("forms", [NewMessage("user", data, id="m")])
    send(browser, "/c/forms?m=m", "edit", text="new")
    (other,) = [one for one in blocking.versions("m").ids if one != "m"]
    found = blocking.get_message(other)

    assert found is not None
    kept = {name: value for name, value in data.items() if name != "id"}
    assert str(found.data) == str(kept).replace("'old'", "'new'")


def test_edit_is_named_after_the_branch_that_is_read(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """Whichever is active: the reader of `other` gets a version of it, and reads on there."""
    blocking.append("trip", [assistant("Tallinn", id="o2")], branch="other")
    active = blocking.get_active_branch("trip")
    page = send(browser, "/c/trip?m=o2&branch=other", "edit", text="Tartu")
    edited = blocking.get_active_branch("trip")

    assert active is not None
    assert edited is not None
    assert (active.name, edited.name) == ("main", "other-v2")
    assert '<option value="other-v2" selected>' in page.text


def test_edit_of_what_has_no_text(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """It is changed as JSON; what is no JSON is refused."""
    blocking.append("trip", [NewMessage("data", {"a": 1}, id="t3")])
    form = forms_of(browser.get("/c/trip?m=t3"))["edit"]
    assert form["data"] == '{"a":1}'
    refused = browser.post("/do/edit", data=form | {"data": "{"})
    send(browser, "/c/trip?m=t3", "edit", data='{"a": 2}')

    assert refused.status_code == 422
    assert "no JSON" in refused.text
    assert len(blocking.versions("t3").ids) == 2


def test_switch(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """The branch that is shown becomes the active one; the active one need not."""
    assert "switch" not in forms_of(browser.get("/c/trip"))
    send(browser, "/c/trip?branch=other", "switch")
    active = blocking.get_active_branch("trip")
    assert active is not None
    run_python(browser, "/c/trip.json?branch=main", "switch", blocking)

    assert active.name == "other"
    assert "switch" not in forms_of(browser.get("/c/trip?branch=main"))


def test_merge(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """What will be is told; then the active branch goes on with a message that names the other one, which is shown."""
    blocking.append("trip", [assistant("Tallinn", id="o2"), user("And then?", id="o3")], branch="other")
    before = browser.get("/c/trip?branch=other").text
    assert (
        "After “Where to? Soon?”, which both have, &#39;other&#39; has 2 messages that &#39;main&#39; does not have"
        in before
    )
    assert "&#39;main&#39; has 1 message of its own" in before
    assert "merge" not in forms_of(browser.get("/c/trip?branch=main"))
    page = send(browser, "/c/trip?branch=other", "merge", summary="Tallinn,\r\ntoo")
    merged = blocking.get_messages("trip", branch="main")[-1]

    assert (merged.merged_from, merged.parent_id) == (("o3",), "t2")
    assert "Tallinn,\ntoo" in merged.text
    assert '<option value="main" selected>' in page.text
    assert "merge" not in forms_of(browser.get("/c/trip?branch=other"))
    blocking.append("trip", assistant("Tartu", id="o4"), branch="other")
    run_python(browser, "/c/trip.json?branch=other", "merge", blocking)
    assert "What it came to." in blocking.get_messages("trip", branch="main")[-1].text


@pytest.mark.parametrize(("how", "copied"), [("pick", ["t3", "o2"]), ("rebase", ["o2", "t3"])])
def test_merge_copies(browser: httpx.Client, blocking: chatledger.Ledger, how: str, copied: list[str]) -> None:
    """Chosen messages in their order in the form, or all; what was written as a summary is left out then."""
    blocking.append("trip", [assistant("Tallinn", id="o2"), user("And then?", id="t3")], branch="other")
    form = {**forms_of(browser.get("/c/trip?branch=other"))["merge"], "how": how, "summary": "forgotten"}
    told = browser.post("/commands/merge", data={**form, "pick": copied}, headers={"X-Chatledger-CSRF": form["csrf"]})
    assert f'"how":"{how}"' in told.json()["shell"]
    answer = browser.post("/do/merge", data={**form, "pick": copied})

    assert answer.status_code == 303, answer.text
    new = blocking.get_messages("trip", branch="main")[-2:]
    assert [message.copied_from for message in new] == copied
    assert answer.headers["location"].endswith(new[-1].id)


def test_merge_of_a_branch_that_only_goes_on(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """It says so, and moves the head of the active one."""
    blocking.create_branch("trip", "further", "t2")
    blocking.append("trip", [user("Thanks", id="f1")], branch="further")
    assert "Go on from its end, and copy nothing" in browser.get("/c/trip?branch=further").text
    send(browser, "/c/trip?branch=further", "merge", how="rebase")
    active = blocking.get_active_branch("trip")

    assert active is not None
    assert (active.name, active.head_message_id) == ("main", "f1")


def test_merge_that_cannot_be(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """It is said in words, and nothing is written: no summary, nothing picked, a branch that went on or is gone meanwhile."""
    blocking.append("trip", assistant("Tallinn", id="o2"), branch="other")
    form = forms_of(browser.get("/c/trip?branch=other"))["merge"]
    position = blocking.position
    for values, status, words in (
        ({}, 422, "A summary must not be blank"),
        ({"how": "pick", "summary": "x"}, 422, "A merge by pick needs"),
        ({"how": "pick", "pick": "t1"}, 422, "is not among the 1 that branch"),
    ):
        refused = browser.post("/do/merge", data=form | values)
        assert (refused.status_code, words in refused.text) == (status, True), refused.text
    assert blocking.position == position
    blocking.append("trip", assistant("Tartu", id="o3"), branch="other")
    refused = browser.post("/do/merge", data=form | {"summary": "Tallinn"})
    assert (refused.status_code, "went on since this page was shown" in refused.text) == (409, True)
    blocking.delete_branch("trip", "other")
    assert browser.post("/do/merge", data=form | {"summary": "Tallinn"}).status_code == 404
    assert [message.id for message in blocking.get_messages("trip", branch="main")] == ["t1", "t2"]


def test_name(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """A checkpoint is set, and shown."""
    page = send(browser, "/c/trip?m=t1", "name", name="asked")
    run_python(browser, "/c/trip.json?m=t2", "name", blocking)

    assert "asked" in page.text
    assert {one.name: one.message_id for one in blocking.list_checkpoints("trip")} == {"asked": "t1", "decided": "t2"}


def test_redact_words(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """What a branch was called goes, from the form and by what it says to type in Python."""
    for name in ("Mia", "Noa"):
        blocking.create_branch("trip", name, "t1")
        blocking.rename_branch("trip", name, "north")
        if name == "Mia":
            send(browser, "/c/trip", "redact-words", reason="a name")
        else:
            run_python(browser, "/c/trip.json", "redact-words", blocking)
        assert name not in repr(list(blocking.history("trip")))
        blocking.delete_branch("trip", "north")
    assert "a name" in repr(list(blocking.history("trip")))


def test_redact(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """The message is in its place, and its page says when and why; so does what the commands say."""
    words = str(blocking.get_messages("trip")[0].text)
    send(browser, "/c/trip?m=t1", "redact", reason="a <card> number")

    page = browser.get("/c/trip?m=t1").text
    assert words not in page
    assert "[redacted]" in page
    assert "a &lt;card&gt; number" in page
    send(browser, "/c/trip?m=t2", "redact", keep="something else")
    assert "something else" == blocking.get_messages("trip")[1].data


def test_annotate(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """What is said is there in the form again, and taken back by it."""
    send(browser, "/c/trip?m=t2", "annotate", stale="true", hidden="true", metadata='{"stars": 5}')
    said = blocking.get_annotations("trip")["t2"]
    form = forms_of(browser.get("/c/trip?m=t2"))["annotate"]
    assert (said.stale, said.hidden, said.metadata) == (True, True, {"stars": 5})
    run_python(browser, "/c/trip.json?m=t2", "annotate", blocking)
    assert blocking.get_annotations("trip")["t2"] == said
    browser.post("/do/annotate", data={name: value for name, value in form.items() if name != "stale"})

    assert (form["stale"], form["hidden"], form["metadata"]) == ("true", "true", '{"stars":5}')
    assert not blocking.get_annotations("trip")["t2"].stale


def test_annotating_changes_what_was_changed(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """What another one said since the form was shown stays, unless a key was taken out of the metadata."""
    blocking.annotate("trip", "t2", metadata={"stars": 5, "mood": "good"})
    form = forms_of(browser.get("/c/trip?m=t2"))["annotate"]
    blocking.annotate("trip", "t2", hidden=True, metadata={"stars": 4, "by": "ada"})
    position = blocking.position
    browser.post("/do/annotate", data=form)
    assert blocking.position == position
    browser.post("/do/annotate", data={**form, "stale": "true", "metadata": '{"stars":5,"mood":"bad"}'})
    said = blocking.get_annotations("trip")["t2"]
    assert (said.stale, said.hidden, said.metadata) == (True, True, {"stars": 4, "mood": "bad", "by": "ada"})
    for wrong in ({"before": "[]"}, {"metadata": "[]"}, {"metadata": "{"}):
        assert browser.post("/do/annotate", data=form | wrong).status_code == 422
    send(browser, "/c/trip?m=t2", "annotate", metadata='{"by":"ada"}')
    assert blocking.get_annotations("trip")["t2"].metadata == {"by": "ada"}


def test_begin(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """After an edit its runs are repeated; it is offered once."""
    blocking.record_run("trip", "r1", thread_id="th", assistant_id="a", trigger_message_id="t1", message_id="t2")
    assert "begin" not in forms_of(browser.get("/c/trip?m=t1"))
    send(browser, "/c/trip?m=t1", "edit", text="Where else?")
    head = blocking.get_active_branch("trip")
    assert head is not None
    new = str(head.head_message_id)
    shown = commands(browser, f"/c/trip.json?m={new}", "begin")
    page = send(browser, f"/c/trip?m={new}", "begin")
    begun = blocking.regenerations("trip")

    assert [(one.edited_message_id, one.new_message_id) for one in begun] == [("t1", new)]
    assert shown["python"] == (
        f"ledger.begin_regeneration(ledger.plan_regeneration('trip', 't1'), new_message_id={new!r})"
    )
    assert "/api/v1/chats/trip/regeneration-plan?message_id=t1' | jq -r '.')" in shown["shell"]
    assert """'{"plan":'"$plan"',""" in shown["shell"]
    assert "begin" not in forms_of(page)
    assert "begin" not in forms_of(browser.get(f"/c/trip?m={new}"))


def test_approve(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """Runs that await approval may be repeated then, and nothing is offered any more."""
    blocking.record_run("trip", "r1", thread_id="th", assistant_id="a", trigger_message_id="t1", message_id="t2")
    assert "approve" not in forms_of(browser.get("/c/trip"))
    send(browser, "/c/trip?m=t1", "edit", text="Where else?")
    head = blocking.get_active_branch("trip")
    assert head is not None
    plan = blocking.plan_regeneration("trip", "t1", 0)
    blocking.begin_regeneration(plan, new_message_id=str(head.head_message_id), regeneration_id="again")
    command = commands(browser, "/c/trip.json", "approve")["python"]
    page = send(browser, "/c/trip", "approve")
    found = blocking.get_regeneration("trip", "again")

    assert found is not None
    assert [step.status for step in found.steps] == ["ready"]
    assert command == "ledger.approve_regeneration('trip', 'again')"
    assert "approve" not in forms_of(page)


def test_delete(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """A chat is deleted when its id was typed, and not before."""
    form = forms_of(browser.get("/c/trip"))["delete-chat"]
    assert browser.post("/do/delete-chat", data=form | {"confirmed": "other"}).status_code == 422
    refused = browser.post("/do/delete-chat", data=form)
    assert (422, True) == (refused.status_code, blocking.get_chat("trip") is not None)
    send(browser, "/c/trip", "delete-chat", confirmed="trip")

    assert blocking.get_chat("trip") is None
    assert browser.post("/do/delete-chat", data=form | {"confirmed": "trip"}).status_code == 404


def test_person(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """What is a person's is shown, handed over, and erased when the id was typed; the name goes from chats of others where one is given."""
    blocking.create_chat("hers", "wil/ma")
    blocking.append("hers", [user("Mine alone")])
    blocking.create_chat("team", "fred", members={"wil/ma": "reader"})
    assert 'href="/person"' in browser.get("/proof").text
    assert "erase-person" not in forms_of(browser.get("/person"))
    path, before = "/person?user=wil%2Fma", blocking.position
    page = browser.get(path)
    assert browser.get("/person.json?user=wil%2Fma").json()["report"]["counts"] == {"chat": 1}
    assert "1 chat." in page.text
    assert '<a href="/c/team">team</a>' in page.text
    handed = re.search(r'href="(/api/v1/users/[^"]+/export)"', page.text)
    assert handed is not None
    assert "Mine alone" in browser.get(handed[1]).text
    form = forms_of(page)["erase-person"]
    assert browser.post("/do/erase-person", data=form | {"confirmed": "wilma"}).status_code == 422
    (offered,) = browser.get("/person.json?user=wil%2Fma").json()["actions"]
    assert offered["shell"] == "chatledger delete --user wil/ma"
    assert blocking.position == before
    after = send(browser, path, "erase-person", confirmed="wil/ma", pseudonym="someone")

    assert "Erased before: 1." in after.text
    assert "Nowhere." in after.text
    assert blocking.get_chat("hers") is None
    assert blocking.members("team") == []


def test_person_is_for_who_may_see_all(by_key: httpx.Client, keys: KeyFile) -> None:
    """Others are told what it needs, and learn nothing of anybody."""
    sign_in(by_key, keys, "ada", "write")
    assert "admin" in by_key.get("/person").text
    for path in ("/person?user=ada", "/person.json?user=nobody", "/api/v1/users/ada/export"):
        assert by_key.get(path).status_code == 403, path


def test_everything_is_in_the_history(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """The log says who did it."""
    send(browser, "/c/trip?m=t1", "name", name="asked")

    assert list(blocking.history("trip"))[-1].event.actor == "local"


def test_past_offers_a_fork_only(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """A message never changes: one of the past is forked at in the present; to edit or name it one goes there."""
    past = f"/c/trip?m=t1&at={blocking.position}"

    assert forms_of(browser.get(past)).keys() == {"fork"}
    assert forms_of(browser.get(f"/c/trip?at={blocking.position}")) == {}
    send(browser, past, "fork", name="from-the-past")
    branch = blocking.get_branch("trip", "from-the-past")
    assert branch is not None
    assert branch.head_message_id == "t1"


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    """A file of keys."""
    return KeyFile(tmp_path / "keys")


@pytest.fixture
def by_key(ledger: chatledger.AsyncLedger, keys: KeyFile, blocking: chatledger.Ledger) -> Generator[httpx.Client]:
    """A browser, on a server that asks for keys."""
    del blocking
    app = create_app(ledger, authenticate=keys)
    with serving(app) as url, httpx.Client(base_url=url, headers=BROWSER, timeout=30) as client:
        yield client


def sign_in(browser: httpx.Client, keys: KeyFile, user_id: str, scope: Literal["read", "write"]) -> str:
    """Sign a user in; return what proves that our page sends a form."""
    secret = keys.add(f"{user_id}-{scope}", user_id=user_id, scopes=frozenset({scope}))
    browser.cookies.clear()
    browser.post("/sign-in", data={"key": secret})
    proof = re.search('<meta name="csrf" content="([0-9a-f]{32})">', browser.get("/").text)
    assert proof is not None
    return proof[1]


FORMS: dict[str, dict[str, str]] = {
    "fork": {"chat_id": "trip", "message_id": "t1"},
    "edit": {"chat_id": "trip", "message_id": "t1", "text": "x"},
    "switch": {"chat_id": "trip", "branch": "other"},
    "merge": {"chat_id": "trip", "source": "other", "source_head": "t1", "into": "main", "how": "rebase"},
    "name": {"chat_id": "trip", "message_id": "t1", "name": "x"},
    "annotate": {"chat_id": "trip", "message_id": "t1", "hidden": "true", "before": "{}"},
    "redact": {"chat_id": "trip", "message_id": "t1", "keep": "x"},
    "redact-words": {"chat_id": "trip", "reason": "a name"},
    "set-member": {"chat_id": "trip", "user_id": "bob"},
    "remove-member": {"chat_id": "trip", "user_id": "bob"},
    "create-link": {"chat_id": "trip"},
    "revoke-link": {"chat_id": "trip", "link_id": "none"},
    "begin": {"chat_id": "trip", "message_id": "t1", "edited": "t2"},
    "approve": {"chat_id": "trip", "regeneration_id": "none"},
    "delete-chat": {"chat_id": "trip", "confirmed": "trip"},
    "erase-person": {"user_id": "ada", "confirmed": "ada"},
    "delete-thread": {"thread_id": THREAD, "confirmed": THREAD},
    "delete-state": {"state_id": STATE, "confirmed": STATE},
}


def test_who_may_not_write_sees_no_forms(by_key: httpx.Client, keys: KeyFile, blocking: chatledger.Ledger) -> None:
    """Their pages offer nothing, and what they send is refused."""
    proof = sign_in(by_key, keys, "ada", "read")
    before = blocking.position
    page = by_key.get("/c/trip?m=t1")

    assert forms_of(page) == {}
    assert by_key.get("/c/trip.json?m=t1").json()["chat_actions"] == []
    assert FORMS.keys() == ACTIONS.keys()
    for name, form in FORMS.items():
        assert by_key.post(f"/do/{name}", data=form | {"csrf": proof}).status_code == 403, name
        told = by_key.post(f"/commands/{name}", data=form, headers={"X-Chatledger-CSRF": proof})
        assert told.status_code == 403, name
        assert "Where to?" not in told.text
    assert blocking.position == before


def test_what_is_of_others_is_not_there(by_key: httpx.Client, keys: KeyFile, blocking: chatledger.Ledger) -> None:
    """Neither seen nor changed by another user."""
    fill_agents(blocking)
    proof = sign_in(by_key, keys, "bob", "write")
    before = blocking.position
    for name, form in FORMS.items():
        if name == "erase-person":  # who may not is told so, whoever is named
            assert by_key.post(f"/do/{name}", data=form | {"csrf": proof}).status_code == 403
            continue
        assert by_key.post(f"/do/{name}", data=form | {"csrf": proof}).status_code == 404, name
        # A command names what was sent, and tells nothing of what it would be done to.
        told = by_key.post(f"/commands/{name}", data=form, headers={"X-Chatledger-CSRF": proof})
        assert told.status_code == (404 if name == "edit" else 200), name
        assert not any(secret in told.text for secret in ("Where to?", "Riga", HIDDEN)), name

    assert blocking.position == before


def test_forms_of_other_pages(by_key: httpx.Client, keys: KeyFile, blocking: chatledger.Ledger) -> None:
    """A session alone changes nothing, nor does a page of another server."""
    proof = sign_in(by_key, keys, "ada", "write")
    form = FORMS["fork"]
    before = blocking.position
    statuses = [
        by_key.post("/do/fork", data=form | {"csrf": given}, headers=headers).status_code
        for given, headers in (
            ("", {}),
            ("0" * 32, {}),
            ("é", {}),
            (proof, {"Origin": "http://evil.example"}),
            (proof, {"Sec-Fetch-Site": "cross-site"}),
            (proof, {"Sec-Fetch-Site": "same-site"}),
        )
    ]

    assert statuses == [403] * 6
    assert blocking.position == before
    assert by_key.post("/do/fork", data=form | {"csrf": proof}).status_code == 303
    by_key.cookies.clear()
    assert by_key.post("/do/fork", data=form | {"csrf": proof}).status_code == 401


def test_forms_without_sessions(ledger: chatledger.AsyncLedger, blocking: chatledger.Ledger) -> None:
    """Where nobody is asked who they are, other servers' pages are kept out too; where links let in, strangers are."""
    form = FORMS["fork"]
    before = blocking.position
    with serving(create_app(ledger)) as url, httpx.Client(base_url=url, headers=BROWSER) as client:
        for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert client.post("/do/fork", data=form, headers=headers).status_code == 403
        assert before == blocking.position
        assert client.post("/do/fork", data=form, headers={"Origin": url}).status_code == 303
    with serving(create_app(ledger, links=EntryLinks(b"s", "/"))) as url:
        assert httpx.post(f"{url}/do/fork", data=form, headers=BROWSER).status_code == 401


def test_what_is_no_form(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """Other bodies, fields that are missing or unknown, and forms that are none are refused."""
    proof = forms_of(browser.get("/c/trip?m=t1"))["fork"]
    before = blocking.position

    assert browser.post("/do/fork", json=proof).status_code == 415
    assert browser.post("/do/fork", data=proof | {"more": "1"}).status_code == 422
    assert browser.post("/do/fork", data={"csrf": proof["csrf"]}).status_code == 422
    assert browser.post("/do/annotate", data=proof | {"hidden": "perhaps"}).status_code == 422
    assert browser.post("/do/none", data=proof).status_code == 404
    assert browser.get("/do/fork").status_code == 405
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert browser.post("/do/fork", content=b"chat_id=\xff", headers=form).status_code == 400
    assert browser.post("/do/fork", content=b"a=%ff&" * 9, headers=form).status_code == 400
    assert browser.post("/do/fork", content=b"a=1&" * 99, headers=form).status_code == 400
    assert blocking.position == before


@pytest.mark.guard
def test_hostile_names(browser: httpx.Client, blocking: chatledger.Ledger) -> None:
    """Forms and commands show whatever ids and texts there are, and nothing of it runs."""
    for number, payload in enumerate(PAYLOADS[::4]):
        chat_id = f"hostile {number} " + "".join(one for one in payload if one.isprintable())[:80]
        blocking.create_chat(chat_id, "ada")
        message = blocking.append(chat_id, [user(payload)])[0]
        path = f"{path_to('/c/{chat_id}', chat_id=chat_id)}?m={message.id}"
        page = browser.get(path)

        assert page.status_code == 200, payload
        assert faults_in(page.text) == [], payload
        assert forms_of(page)["edit"]["chat_id"] == chat_id
        send(browser, path, "fork", name=chat_id)
        assert blocking.get_branch(chat_id, chat_id) is not None


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="the commands are for curl and jq")
def test_commands_of_every_action(ledger: chatledger.AsyncLedger, blocking: chatledger.Ledger) -> None:
    """What a page shows for Python and what it shows for the shell do the same, each as it stands, for each action that is offered."""
    page = "/c/trip.json?m=t1&branch=other"
    with serving(create_app(ledger)) as url, httpx.Client(base_url=url, headers=BROWSER) as client:
        shown = client.get(page).json()
        offered = [action["name"] for action in shown["message_actions"] + shown["chat_actions"]]
        assert {"fork", "edit", "name", "annotate", "redact", "switch", "delete-chat"} <= set(offered), offered
        for name in offered:
            fill(blocking)
            untouched = whole(blocking)
            run_python(client, page, name, blocking)
            by_python = whole(blocking)
            fill(blocking)
            command = commands(client, page, name)["shell"]
            if command.startswith("chatledger "):  # of a ledger that a program can open
                assert command == "chatledger delete trip"
                continue
            subprocess.run(["bash", "-euc", command], check=True, capture_output=True, timeout=30)
            assert by_python == whole(blocking), name
            assert by_python != untouched or name in {"annotate", "redact-words"}, name  # whose examples change nothing


def whole(ledger: chatledger.Ledger) -> object:
    """All of the chat but ids and times that were given."""
    if ledger.get_chat("trip") is None:
        return None
    given = {message.id for message in ledger.get_messages("trip")} - {"t1", "t2"}
    return (
        [(message.name, message.data, message.annotation) for message in ledger.get_messages("trip")],
        [
            (branch.name, "new" if branch.head_message_id in given else branch.head_message_id, branch.is_active)
            for branch in ledger.list_branches("trip")
        ],
        [(checkpoint.name, checkpoint.message_id) for checkpoint in ledger.list_checkpoints("trip")],
        [(member.user_id, member.role) for member in ledger.members("trip")],
    )
