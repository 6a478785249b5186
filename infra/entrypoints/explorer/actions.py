"""Actions: what the pages can change. Each with the fields of its form, what it calls, and commands that do the same."""

import inspect
import re
import shlex
from typing import Any, ClassVar, Final, Literal, cast
from urllib.parse import quote
from uuid import uuid4

import msgspec

from chatledger.domain.chat.merging import MergeHow
from chatledger.domain.chat.save import Save
from chatledger.domain.errors import (
    AccessDeniedError,
    ChatNotFoundError,
    ConflictError,
    InvalidValueError,
    MessageNotFoundError,
    NotFoundError,
)
from chatledger.domain.limits import same_json
from chatledger.domain.values import Annotation, Message, NewMessage
from chatledger.domain.versioned.keys import shown_id
from chatledger.domain.wire import Value, encode_json

from ...ledger.graph.state_store import StateStore
from ...ledger.ledger import Ledger
from ...ledger.threads import Threads
from ..http.access import Scope
from ..http.native import PREFIX, ROUTES
from ..http.routing import HttpCall
from .page import path_to

_ROUTES: Final = {route.name: route for route in ROUTES}
_VARIABLE: Final = re.compile("\0(\\w+)\0")


class Curl:
    """
    Requests of a program to the server that a page came from.

    Attributes:
        is_refused: Whether the server answers no programs, but only browsers that came by its links.
    """

    def __init__(self, call: HttpCall) -> None:
        self.ledger = call.ledger
        self._server = f"{call.request.scope.get('scheme', 'http')}://{call.header('host') or 'localhost'}"
        self.is_refused = call.service.has_access and bool(call.request.state.is_by_link)
        self._has_key = call.service.has_access and not self.is_refused

    def __call__(self, route_name: str, /, **arguments: Any) -> str:
        """Return the request to a route of the native API; what it takes neither of path nor query is the body."""
        route = _ROUTES[route_name]
        path, query, body = PREFIX + route.path, "", dict[str, Any]()
        for name, value in arguments.items():
            if name in route.in_path:
                path = path.replace(f"{{{name}}}", quote(value, safe=""))
            elif name in route.in_query:
                query += f"{'&' if query else '?'}{name}={quote(value, safe='')}"
            else:
                body[name] = value
        parts = ["curl", "-fsS", "-X", route.method, shlex.quote(self._server + path + query)]
        if self._has_key:
            parts += ["-H", '"X-Api-Key: $CHATLEDGER_KEY"']
        if route.body is not None:
            data = shlex.quote(encode_json(body).decode("utf-8", "replace"))
            # The shell replaces nothing in single quotes: they end before a variable, and begin again after it.
            parts += ["-H", "'Content-Type: application/json'", "-d", _VARIABLE.sub("'\"$\\1\"'", data)]
        return " ".join(parts)


def variable(name: str, *, is_text: bool) -> msgspec.Raw:
    """Return what stands in a body for a variable of the shell: for a text, or for JSON as it is."""
    # JSON escapes every NUL, so this is never a part of what somebody wrote.
    return msgspec.Raw(f'"\0{name}\0"' if is_text else f"\0{name}\0")


class FormField(Value, frozen=True, kw_only=True):
    """
    A field of a form that the reader fills in.

    Args:
        kind: A `line` of text, `text` of several lines, a `check`, or some of `options`: one by `radio`, any by `checkbox`.
        value: What is in it at first; `true` or empty for a check.
        options: What can be chosen: what is sent, and the words for it. Several that are chosen are sent as lines.
        example: What stands for it in the commands while it is empty.
    """

    name: str
    label: str
    kind: Literal["line", "text", "check", "radio", "checkbox"] = "line"
    value: str = ""
    needed: bool = False
    example: str = ""
    options: dict[str, str] = {}  # noqa: RUF012 - each struct gets its own


class Action(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    Values that a form has sent, or would send: the fields are those of the form.

    What is done, and what the page shows for Python and the shell, is made of a method of the ledger, a route of the native API,
    and their arguments.
    """

    title: ClassVar[str]
    words: ClassVar[str]
    fields: ClassVar[tuple[FormField, ...]] = ()
    is_grave: ClassVar[bool] = False
    scope: ClassVar[Scope] = "write"
    route: ClassVar[str]

    def call(self) -> tuple[str, dict[str, Any]]:
        """Return the method and its arguments: that of the route's name, and the fields but those that were left empty and may be."""
        optional = {field.name for field in self.fields if not field.needed}
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return self.route, {name: value for name, value in values.items() if value or name not in optional}

    def sent(self) -> dict[str, Any]:
        """Return the arguments of the route; those of the method, unless it has others."""
        return self.call()[1]

    def do(self, ledger: Ledger) -> str:
        method, arguments = self.call()
        return self.next_page(ledger, getattr(ledger, method)(**arguments))

    def next_page(self, ledger: Ledger, answer: Any) -> str:
        """Return the page to go on with, from what the method answered: that of the chat, with the message if it is about one."""
        del ledger, answer
        return _chat(getattr(self, "chat_id", ""), m=getattr(self, "message_id", ""))

    def commands(self, curl: Curl) -> tuple[str, str]:
        """Return the same for Python, where `ledger` is open, and for a shell."""
        method, arguments = self.call()
        bound = inspect.signature(getattr(Ledger, method)).bind(curl.ledger, **arguments)
        return _python(f"ledger.{method}", *bound.args[1:], **bound.kwargs), curl(self.route, **self.sent())


class Fork(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A branch that begins at a message."""

    title = "Fork"
    words = "A new branch ends with this message, and is the active one: what is said next follows it."
    fields = (FormField(name="name", label="Name (or one is given)"),)
    route = "create_branch"

    chat_id: str
    message_id: str
    name: str = ""

    def call(self) -> tuple[str, dict[str, Any]]:
        if self.name:
            return self.route, self.sent()
        return "fork", {"chat_id": self.chat_id, "message_id": self.message_id}

    def sent(self) -> dict[str, Any]:
        named = {"name": self.name} if self.name else {}
        return {"chat_id": self.chat_id, **named, "head_message_id": self.message_id, "activate": True}

    def next_page(self, ledger: Ledger, answer: Any) -> str:
        del ledger
        return _chat(self.chat_id, branch=answer.name, m=self.message_id)


class Edit(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message with other words in place of a stored one, on a branch of its own."""

    title = "Edit"
    words = "Messages never change: the new words are another version, on a new branch, which is the active one."
    fields = (
        FormField(name="text", label="Text", kind="text", needed=True),
        FormField(name="data", label="Message, as JSON", kind="text", needed=True),
    )

    chat_id: str
    message_id: str
    branch: str = ""
    text: str | None = None
    data: str | None = None

    def do(self, ledger: Ledger) -> str:
        message = _message(ledger, self.chat_id, self.message_id)
        data = self.edited(message)
        if data == self._unchanged(message):  # an edit that changes nothing is no version
            return _chat(self.chat_id, m=self.message_id)
        # The branch of an edit is named after the one that was read, which need not be the active one.
        read = ledger.get_branch(self.chat_id, self.branch) if self.branch else ledger.get_active_branch(self.chat_id)
        if read is None:
            raise ChatNotFoundError(self.chat_id)
        new_id = str(uuid4())
        stored = anonymous(data, message.id)
        draft = NewMessage(message.name, stored, message.form, id=new_id, metadata=message.notes, **_inherited(message))
        save = Save(
            drafts=(draft,),
            spare_ids=(str(uuid4()),),
            branch=read.name,
            branch_id=str(uuid4()),
            after=message.parent_id,
        )
        result = ledger.save(self.chat_id, save)
        return _chat(self.chat_id, branch=result.branch, m=result.message_ids[0])

    def edited(self, message: Message) -> Any:
        """Return the data of a message with the new words, where these are JSON, or the message has one text that could be another."""
        if self.text is not None:
            replaced = with_text(message.data, lines(self.text))
            if replaced is None:
                msg = f"message {message.id!r} has more than one text; send its data as JSON"
                raise InvalidValueError(msg)
            return replaced[1]
        return _json(self.data or "", "the message")

    def _unchanged(self, message: Message) -> Any:
        """The data as they come back from a browser where nobody changed them."""
        stored = None if self.text is None else with_text(message.data, "")
        if stored is None:
            return message.data
        # Browsers send line ends of their own, which `lines` takes out: compared with the text as it is, each CRLF were an edit.
        return (with_text(message.data, lines(stored[0])) or stored)[1]

    def commands(self, curl: Curl) -> tuple[str, str]:
        message = _message(curl.ledger, self.chat_id, self.message_id)
        data = anonymous(self.edited(message), message.id)
        draft = {"name": message.name, "data": data, "parent_id": message.parent_id, **_inherited(message)}
        new = _python("NewMessage", message.name, data, parent_id=message.parent_id, **_inherited(message))
        made = variable("made", is_text=True)
        add = curl("add_messages", chat_id=self.chat_id, messages=[draft])
        fork = curl("create_branch", chat_id=self.chat_id, head_message_id=made, activate=True)
        python = f"made, = ledger.add_messages({self.chat_id!r}, [{new}])\nledger.fork({self.chat_id!r}, made.id)"
        return python, f"made=$({add} | jq -r '.[0].id')\n{fork}"


class Switch(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The branch that is shown at first."""

    title = "Make this branch active"
    words = "The active branch is the one that is shown, and to which messages are appended, where none is named."
    route = "update_branch"

    chat_id: str
    branch: str

    def call(self) -> tuple[str, dict[str, Any]]:
        return "set_active_branch", {"chat_id": self.chat_id, "name": self.branch}

    def sent(self) -> dict[str, Any]:
        return {"chat_id": self.chat_id, "name": self.branch, "is_active": True}

    def next_page(self, ledger: Ledger, answer: Any) -> str:
        del ledger, answer
        return _chat(self.chat_id, branch=self.branch)


class MergeBranch(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A branch that is merged into another one."""

    title = "Merge this branch"
    words = (
        "What is merged follows at the end of the active branch, and names what it merges; this branch stays as it is."
    )
    fields = (
        FormField(
            name="how",
            label="How",
            kind="radio",
            options={
                "summary": "Sum it up in one message",
                "pick": "Copy chosen messages",
                "rebase": "Copy all messages",
            },
        ),
        FormField(name="summary", label="To sum it up: what it came to", kind="text", example="What it came to."),
        FormField(name="pick", label="To copy chosen messages", kind="checkbox"),
    )
    route = "merge"

    chat_id: str
    source: str
    source_head: str
    into: str
    how: MergeHow = "summary"
    summary: str = ""
    pick: str = ""

    def call(self) -> tuple[str, dict[str, Any]]:
        arguments: dict[str, Any] = {"chat_id": self.chat_id, "source": self.source, "into": self.into, "how": self.how}
        if self.how == "summary":
            arguments["summary"] = lines(self.summary)
        elif self.how == "pick":
            arguments["pick"] = list(filter(None, self.pick.split("\n")))
        return self.route, arguments

    def do(self, ledger: Ledger) -> str:
        branch = ledger.get_branch(self.chat_id, self.source)
        if branch is not None and branch.head_message_id != self.source_head:
            msg = f"branch {self.source!r} went on since this page was shown; nothing was merged: read what came, and merge again"
            raise ConflictError(msg)
        return super().do(ledger)

    def next_page(self, ledger: Ledger, answer: Any) -> str:
        del ledger
        last = answer.messages[-1].id if answer.messages else answer.source_head
        return _chat(self.chat_id, branch=self.into, m=last)


class Name(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checkpoint: a name for a message."""

    title = "Checkpoint"
    words = "A name leads to this message from now on; where the chat has that name already, it is moved here."
    fields = (FormField(name="name", label="Name", needed=True, example="decided"),)
    route = "set_checkpoint"

    chat_id: str
    message_id: str
    name: str = ""


class Annotate(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Annotations of a message."""

    title = "Annotate"
    words = (
        "The message stays as it is. Models and searches get neither hidden nor replaced messages. What you do not change stays as "
        "others set it meanwhile; taking a key out replaces the metadata as a whole."
    )
    fields = (
        FormField(name="stale", label="Stale: what it answers was edited", kind="check"),
        FormField(name="hidden", label="Hidden from models and searches", kind="check"),
        FormField(name="replaced_by", label="Replaced by the message with this id"),
        FormField(name="metadata", label="Metadata, as JSON", kind="text", value="{}"),
    )
    route = "annotate"

    chat_id: str
    message_id: str
    stale: bool = False
    hidden: bool = False
    replaced_by: str = ""
    metadata: str = ""
    before: str

    @classmethod
    def of(cls, message: Message) -> "Annotate":
        """Return the form of a message as it is."""
        annotation = message.annotation or Annotation()
        return cls(
            chat_id=message.chat_id,
            message_id=message.id,
            stale=annotation.stale,
            hidden=annotation.hidden,
            replaced_by=annotation.replaced_by or "",
            metadata=encode_json(annotation.metadata).decode(),
            before=encode_json(annotation).decode(),
        )

    def stated(self) -> dict[str, Any]:
        """Return the annotation as the form has it; its metadata are a JSON object."""
        return {
            "stale": self.stale,
            "hidden": self.hidden,
            "replaced_by": self.replaced_by or None,
            "metadata": _json(self.metadata.strip() or "{}", "the metadata", dict[str, Any]),
        }

    def changed(self) -> dict[str, Any]:
        """Return what was changed in the form since it was shown."""
        # The rest may be another by now: a form that stood open for an hour would undo what others said meanwhile.
        before: dict[str, Any] = _json(self.before, "the annotation before", Annotation).to_dict()
        changes = {name: value for name, value in self.stated().items() if not same_json(before[name], value)}
        if "metadata" in changes:
            shown, metadata = before["metadata"], changes.pop("metadata")
            if shown.keys() <= metadata.keys():
                changes["metadata"] = {
                    key: value
                    for key, value in metadata.items()
                    if key not in shown or not same_json(shown[key], value)
                }
            else:
                changes["replace_metadata"] = metadata
        return changes

    def call(self) -> tuple[str, dict[str, Any]]:
        return self.route, {"chat_id": self.chat_id, "message_id": self.message_id, **self.stated()}

    def do(self, ledger: Ledger) -> str:
        return self.next_page(ledger, ledger.annotate(self.chat_id, self.message_id, **self.changed()))


class Redact(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Redaction of a message."""

    title = "Redact"
    words = (
        "What the message says is erased for ever, here and in its copies. It stays in its place and says that it is redacted. "
        "This cannot be undone."
    )
    fields = (
        FormField(name="keep", label="A text in its place; nothing if it is empty"),
        FormField(name="reason", label="Why; it stays, so it says nothing of what was there"),
        FormField(name="versions", label="Its other versions too, as before an edit", kind="check"),
    )
    route = "redact"

    chat_id: str
    message_id: str
    keep: str = ""
    reason: str = ""
    versions: bool = False

    def call(self) -> tuple[str, dict[str, Any]]:
        filled = {name: value for name in ("keep", "reason", "versions") if (value := getattr(self, name))}
        return self.route, {"message_ids": self.message_id, **filled}

    def sent(self) -> dict[str, Any]:
        return self.call()[1] | {"message_ids": [self.message_id]}


class RedactWords(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Redaction of what a chat was called before."""

    title = "Erase earlier words"
    words = (
        "Titles, metadata, annotations, names of branches and checkpoints, and reasons of holds that others took the place of are erased "
        "for ever. What stands now stays: change it first. This cannot be undone."
    )
    fields = (FormField(name="reason", label="Why; it stays, so it says nothing of what was there"),)
    route = "redact_words"

    chat_id: str
    reason: str = ""


class SetMember(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Members let in, or their roles."""

    title = "Let a user in"
    words = "The user then has this chat with all that was said in it. A reader reads; a writer also writes, branches and runs agents."
    fields = (
        FormField(name="user_id", label="Id of the user", needed=True, example="bob"),
        FormField(name="writes", label="May write, too", kind="check"),
    )
    route = "set_member"

    chat_id: str
    user_id: str = ""
    writes: bool = False

    def call(self) -> tuple[str, dict[str, Any]]:
        role = "writer" if self.writes else "reader"
        return self.route, {"chat_id": self.chat_id, "user_id": self.user_id, "role": role}

    def next_page(self, ledger: Ledger, answer: Any) -> str:
        del ledger, answer
        return _sharing(self.chat_id)


class RemoveMember(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Members who are removed, or leave."""

    title = "Remove"
    words = "The chat is not there for the user any more. What the user wrote stays."
    route = "remove_member"

    chat_id: str
    user_id: str

    def next_page(self, ledger: Ledger, answer: Any) -> str:
        if ledger.get_chat(self.chat_id) is not None:
            return _sharing(self.chat_id)
        if not answer:
            raise ChatNotFoundError(self.chat_id)
        return "/"  # whoever left reads it no more


class CreateLink(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link by which anybody reads a chat."""

    title = "Make a link"
    words = (
        "Whoever has its address reads the messages of this chat without signing in, and nothing else. The page that comes next is what "
        "they see: copy its address, which is not shown again."
    )
    fields = (
        FormField(name="branch", label="Only this branch; all of them if it is empty"),
        FormField(name="until", label="Only up to the message of this id"),
        FormField(name="days", label="For so many days; until it is revoked if it is empty"),
    )
    route = "create_link"

    chat_id: str
    branch: str = ""
    until: str = ""
    days: str = ""

    def call(self) -> tuple[str, dict[str, Any]]:
        options: dict[str, Any] = {key: value for key in ("branch", "until") if (value := getattr(self, key))}
        if self.days:
            try:
                options["ttl_seconds"] = float(self.days) * 86400
            except ValueError:
                msg = f"how long the link holds is a number of days, not {self.days!r}"
                raise InvalidValueError(msg) from None
        return self.route, {"chat_id": self.chat_id, **options}

    def next_page(self, ledger: Ledger, answer: Any) -> str:
        del ledger
        assert answer.path is not None, "a new link has its path"
        return str(answer.path)  # what it shows


class RevokeLink(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link that opens nothing any more."""

    title = "Revoke"
    words = "From now on it opens nothing, for anybody."
    route = "revoke_link"

    chat_id: str
    link_id: str

    def next_page(self, ledger: Ledger, answer: Any) -> str:
        if not answer and ledger.get_chat(self.chat_id) is None:
            raise ChatNotFoundError(self.chat_id)
        return _sharing(self.chat_id)


class Begin(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A regeneration: the runs that an edit made stale are to be repeated."""

    title = "Repeat the answers after this edit"
    words = "What followed the message before the edit is stale. Its runs are to be repeated; your application executes them."

    chat_id: str
    message_id: str
    edited: str

    def do(self, ledger: Ledger) -> str:
        plan = ledger.plan_regeneration(self.chat_id, self.edited)
        begun = ledger.begin_regeneration(plan, new_message_id=self.message_id)
        return _chat(self.chat_id, branch=begun.branch or "", m=self.message_id)

    def commands(self, curl: Curl) -> tuple[str, str]:
        plan = _python("ledger.plan_regeneration", self.chat_id, self.edited)
        python = f"ledger.begin_regeneration({plan}, new_message_id={self.message_id!r})"
        plan = curl("plan_regeneration", chat_id=self.chat_id, message_id=self.edited)
        whole = variable("plan", is_text=False)
        begin = curl("begin_regeneration", chat_id=self.chat_id, plan=whole, new_message_id=self.message_id)
        return python, f"plan=$({plan} | jq -r '.')\n{begin}"


class Approve(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The approval of runs that a regeneration may repeat."""

    title = "Approve the regeneration"
    words = "The runs that await approval may be repeated; your application executes them."
    route = "approve_regeneration"

    chat_id: str
    regeneration_id: str
    onward: Literal["chat", "thread"] = "chat"

    def call(self) -> tuple[str, dict[str, Any]]:
        return self.route, {"chat_id": self.chat_id, "regeneration_id": self.regeneration_id}

    def next_page(self, ledger: Ledger, answer: Any) -> str:
        if self.onward == "thread" and answer.steps:
            return path_to("/agents/{thread_id}", thread_id=answer.steps[0].repeats.thread_id)
        return super().next_page(ledger, answer)


class Deletion(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deletions, which ask for the id of what goes: a click too many erases nothing. The command asks, too, so there is no request."""

    fields: ClassVar[tuple[FormField, ...]] = (
        FormField(name="confirmed", label="Its id, to confirm: it cannot be undone", needed=True),
    )
    is_grave = True
    function: ClassVar[str]
    """The function that deletes it, in Python."""
    option: ClassVar[tuple[str, ...]] = ()
    """The option of `chatledger delete` for it."""

    confirmed: str = ""

    @property
    def target(self) -> str:
        """The id that confirms it."""
        # The field of the kind of deletion; that of all comes before it.
        return str(getattr(self, self.__struct_fields__[-1]))

    def do(self, ledger: Ledger) -> str:
        if self.confirmed != self.target:
            msg = f"nothing was deleted: type the id {self.target!r} into the form to confirm"
            raise InvalidValueError(msg)
        return self.delete(ledger)

    def delete(self, ledger: Ledger) -> str:
        raise NotImplementedError

    def commands(self, curl: Curl) -> tuple[str, str]:
        del curl
        return _python(self.function, self.target), shlex.join(["chatledger", "delete", *self.option, self.target])


class DeleteChat(Deletion, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chat that goes."""

    title = "Delete this chat"
    words = (
        "The chat goes with all that it held, which is erased from the log; that there was one stays in the history."
    )
    function = "ledger.delete_chat"

    chat_id: str

    def delete(self, ledger: Ledger) -> str:
        if not ledger.delete_chat(self.chat_id):
            raise ChatNotFoundError(self.chat_id)
        return "/"


class ErasePerson(Deletion, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person who goes."""

    title = "Erase this person"
    words = "All that the person owns goes, and is erased from the log. What a legal hold keeps stays."
    fields = (
        FormField(name="pseudonym", label="Name in chats of others from now on (or it stays)"),
        *Deletion.fields,
    )
    scope = "admin"

    pseudonym: str = ""
    user_id: str

    def delete(self, ledger: Ledger) -> str:
        ledger.erase_user(self.user_id, pseudonym=self.pseudonym or None)
        return f"/person?user={quote(self.user_id, safe='')}"

    def commands(self, curl: Curl) -> tuple[str, str]:
        del curl
        named = {"pseudonym": self.pseudonym} if self.pseudonym else {}
        shell = ["chatledger", "delete", "--user", self.user_id]
        shell += ["--pseudonym", self.pseudonym] if self.pseudonym else []
        return _python("ledger.erase_user", self.user_id, **named), shlex.join(shell)


class DeleteThread(Deletion, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A thread of agents that goes."""

    title = "Delete this thread"
    words = "All its checkpoints go, and are erased from the log; that there was one stays in the history."
    function, option = "LedgerSaver(ledger).delete_thread", ("--thread",)

    thread_id: str

    def delete(self, ledger: Ledger) -> str:
        threads = Threads(ledger)
        with threads.reading(self.thread_id) as thread:
            if thread.record is None:
                msg = f"there is no thread {self.thread_id!r}"
                raise NotFoundError(msg)
        threads.delete(self.thread_id)
        return "/agents"


class DeleteState(Deletion, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A state of a graph that goes."""

    title = "Delete this state"
    words = "All its versions go, and are erased from the log."
    function, option = "StateStore(ledger).delete", ("--state",)

    state_id: str

    def delete(self, ledger: Ledger) -> str:
        try:
            is_deleted = StateStore(ledger).delete(self.state_id)
        except AccessDeniedError:  # another user's: as if there were none
            is_deleted = False
        if not is_deleted:
            msg = f"there is no state {shown_id(self.state_id)!r}"
            raise NotFoundError(msg)
        return "/agents?kind=states"


ACTIONS: Final[dict[str, type[Action]]] = {
    "fork": Fork,
    "edit": Edit,
    "switch": Switch,
    "merge": MergeBranch,
    "name": Name,
    "annotate": Annotate,
    "redact": Redact,
    "redact-words": RedactWords,
    "set-member": SetMember,
    "remove-member": RemoveMember,
    "create-link": CreateLink,
    "revoke-link": RevokeLink,
    "begin": Begin,
    "approve": Approve,
    "delete-chat": DeleteChat,
    "erase-person": ErasePerson,
    "delete-thread": DeleteThread,
    "delete-state": DeleteState,
}
"""All actions, by the last part of the path that their forms are sent to."""


def _python(function: str, *positional: Any, **named: Any) -> str:
    arguments = [*map(repr, positional), *(f"{name}={value!r}" for name, value in named.items())]
    return f"{function}({', '.join(arguments)})"


def _chat(chat_id: str, *, branch: str = "", m: str = "") -> str:
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in (("branch", branch), ("m", m)) if value)
    return path_to("/c/{chat_id}", chat_id=chat_id) + ("?" + query if query else "")


def _sharing(chat_id: str) -> str:
    return path_to("/c/{chat_id}/sharing", chat_id=chat_id)


def _message(ledger: Ledger, chat_id: str, message_id: str) -> Message:
    message = ledger.get_message(message_id)
    if message is None or message.chat_id != chat_id:
        raise MessageNotFoundError(message_id, chat_id=chat_id)
    return message


def _inherited(message: Message) -> dict[str, Any]:
    """Return what another version of a message has in common with it."""
    fields = {name: getattr(message, name) for name in ("type", "sender_id", "agent_id", "reply_to")}
    return {name: value for name, value in fields.items() if value not in {None, "message"}}


def _json(text: str, name: str, form: Any = Any) -> Any:
    try:
        return msgspec.json.decode(text, type=form)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        msg = f"{name} in the form is no JSON that fits: {error}"
        raise InvalidValueError(msg) from error


def lines(text: str) -> str:
    """Return a text of a form with the line ends that messages have."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def anonymous(data: Any, message_id: str) -> Any:
    """Return the data of a message without its id, for a message that gets another id."""
    if not isinstance(data, dict):
        return data
    fields = cast("dict[str, Any]", data)
    # Two messages would say that they are the same one; the command would even ask for the stored one, with other content.
    return {name: value for name, value in fields.items() if name != "id"} if fields.get("id") == message_id else fields


def with_text(data: Any, text: str) -> tuple[str, Any] | None:
    """Return the one text that the data of a message has, and the data with another one; None where there is not just one."""
    if isinstance(data, str):
        return data, text
    if not isinstance(data, dict):
        return None
    fields = cast("dict[str, Any]", data)
    for key in ("parts", "content"):
        inner = fields.get(key)
        if isinstance(inner, str):
            return inner, {**fields, key: text}
        if isinstance(inner, list):
            parts = cast("list[Any]", inner)
            texts = [
                (at, cast("dict[str, Any]", part))
                for at, part in enumerate(parts)
                if isinstance(part, dict) and isinstance(cast("dict[str, Any]", part).get("text"), str)
            ]
            if len(texts) != 1:
                return None
            ((at, part),) = texts
            return part["text"], {**fields, key: [*parts[:at], {**part, "text": text}, *parts[at + 1 :]]}
    return None
