"""Actions: what the pages can change. Each with its form, what it calls, and commands that do the same."""

import shlex
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final, Literal, cast
from urllib.parse import quote
from uuid import uuid4

import msgspec

from chatledger.domain.chat.save import Save
from chatledger.domain.errors import (
    AccessDeniedError,
    ChatNotFoundError,
    InvalidValueError,
    MessageNotFoundError,
    NotFoundError,
)
from chatledger.domain.limits import same_json
from chatledger.domain.values import Annotation, Branch, Message, NewMessage
from chatledger.domain.versioned.keys import shown_id
from chatledger.domain.wire import Value, encode_json

from ...ledger.graph.state_store import StateStore
from ...ledger.ledger import Ledger
from ...ledger.threads import Threads
from ..http.native import branches, messages, runs, states
from ..http.routing import HttpCall
from .curl import Curl, variable
from .page import path_to

_VERSIONS: Final = 5
"""The most versions of a message before an edit that are looked at for runs that depend on them."""


class FormField(Value, frozen=True, kw_only=True):
    """
    A field of a form that the reader fills in.

    Args:
        name: Of the field.
        label: What stands before it.
        kind: A `line` of text, `text` of several lines, or a `check`.
        value: What is in it at first; `true` or empty for a check.
        needed: Whether it may not be left empty.
        example: What stands for it in the commands while it is empty.
    """

    name: str
    label: str
    kind: Literal["line", "text", "check"] = "line"
    value: str = ""
    needed: bool = False
    example: str = ""


class Offer(Value, frozen=True, kw_only=True):
    """
    An action that a page offers.

    Args:
        name: The last part of the path that the form is sent to.
        title: What it is called.
        words: What comes of it.
        fixed: Fields that the page fills in.
        fields: Fields that the reader fills in.
        is_grave: Whether it takes something away for ever.
        target: What has to be typed then.
        python: The same in Python, where `ledger` is open.
        shell: The same for the shell.
    """

    name: str
    title: str
    words: str
    fixed: dict[str, str]
    fields: list[FormField]
    is_grave: bool
    target: str
    python: str
    shell: str


class Action(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values that a form has sent, or would send: the fields are those of the form."""

    title: ClassVar[str]
    words: ClassVar[str]
    fields: ClassVar[tuple[FormField, ...]] = ()
    is_grave: ClassVar[bool] = False

    def do(self, ledger: Ledger) -> str:
        """Do it; return the page to go on with."""
        raise NotImplementedError

    def commands(self, curl: Curl) -> tuple[str, str]:
        """Return the same for Python, where `ledger` is open, and for a shell."""
        raise NotImplementedError


class Fork(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A branch that begins at a message."""

    title = "Fork here"
    words = "A new branch ends with this message, and is the active one: what is said next follows it."
    fields = (FormField(name="name", label="Name (or one is given)"),)

    chat_id: str
    message_id: str
    name: str = ""

    def do(self, ledger: Ledger) -> str:
        """Make the branch."""
        if self.name:
            branch = ledger.create_branch(self.chat_id, self.name, self.message_id, activate=True)
        else:
            branch = ledger.fork(self.chat_id, self.message_id)
        return _chat(self.chat_id, branch=branch.name, m=self.message_id)

    def commands(self, curl: Curl) -> tuple[str, str]:
        """Return the same for Python and the shell."""
        shell = curl(branches.create_branch, chat_id=self.chat_id, head_message_id=self.message_id, activate=True)
        return _python("ledger.fork", self.chat_id, self.message_id), shell


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
        """Store the new version."""
        message = _message(ledger, self.chat_id, self.message_id)
        data = self.edited(message)
        if data == self._unchanged(message):  # an edit that changes nothing is no version
            return _chat(self.chat_id, m=self.message_id)
        # The branch of an edit is named after the one that was read, which need not be the active one.
        read = ledger.get_branch(self.chat_id, self.branch) if self.branch else ledger.get_active_branch(self.chat_id)
        if read is None:
            raise ChatNotFoundError(self.chat_id)
        new_id = str(uuid4())
        draft = NewMessage(message.name, data, message.form, id=new_id, metadata=message.notes, **_inherited(message))
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
        """
        Return the data of a message with the new words.

        Raises:
            InvalidValueError: They are to be JSON and are none, or the message has no text that could be another.
        """
        if self.text is not None:
            replaced = _with_text(message.data, _lines(self.text))
            if replaced is None:
                msg = f"message {message.id!r} has more than one text; send its data as JSON"
                raise InvalidValueError(msg)
            return replaced[1]
        return _json(self.data or "", "the message")

    def _unchanged(self, message: Message) -> Any:
        """The data as they come back from a browser where nobody changed them."""
        stored = None if self.text is None else _with_text(message.data, "")
        if stored is None:
            return message.data
        # Browsers send line ends of their own, which `_lines` takes out: compared with the text as it is, each CRLF were an edit.
        return (_with_text(message.data, _lines(stored[0])) or stored)[1]

    def commands_for(self, message: Message, curl: Curl) -> tuple[str, str]:
        """Return the same for Python and the shell, for the message as it is."""
        data = _anonymous(self.edited(message), message.id)
        draft = {"name": message.name, "data": data, "parent_id": message.parent_id, **_inherited(message)}
        new = _python("NewMessage", message.name, data, parent_id=message.parent_id, **_inherited(message))
        made = variable("made", is_text=True)
        add = curl(messages.add_messages, chat_id=self.chat_id, messages=[draft])
        fork = curl(branches.create_branch, chat_id=self.chat_id, head_message_id=made, activate=True)
        python = f"made, = ledger.add_messages({self.chat_id!r}, [{new}])\nledger.fork({self.chat_id!r}, made.id)"
        return python, f"made=$({add} | jq -r '.[0].id')\n{fork}"


class Switch(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The branch that is shown at first."""

    title = "Make this branch active"
    words = "The active branch is the one that is shown, and to which messages are appended, where none is named."

    chat_id: str
    branch: str

    def do(self, ledger: Ledger) -> str:
        """Make it the active one."""
        ledger.set_active_branch(self.chat_id, self.branch)
        return _chat(self.chat_id, branch=self.branch)

    def commands(self, curl: Curl) -> tuple[str, str]:
        """Return the same for Python and the shell."""
        shell = curl(branches.update_branch, chat_id=self.chat_id, name=self.branch, is_active=True)
        return _python("ledger.set_active_branch", self.chat_id, self.branch), shell


class Name(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checkpoint: a name for a message."""

    title = "Name a checkpoint"
    words = "A name leads to this message from now on; where the chat has that name already, it is moved here."
    fields = (FormField(name="name", label="Name", needed=True, example="decided"),)

    chat_id: str
    message_id: str
    name: str = ""

    def do(self, ledger: Ledger) -> str:
        """Set the checkpoint."""
        ledger.set_checkpoint(self.chat_id, self.name, self.message_id)
        return _chat(self.chat_id, m=self.message_id)

    def commands(self, curl: Curl) -> tuple[str, str]:
        """Return the same for Python and the shell."""
        shell = curl(branches.set_checkpoint, chat_id=self.chat_id, name=self.name, message_id=self.message_id)
        return _python("ledger.set_checkpoint", self.chat_id, self.name, self.message_id), shell


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
        """
        Return the annotation as the form has it.

        Raises:
            InvalidValueError: The metadata are no JSON object.
        """
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

    def do(self, ledger: Ledger) -> str:
        """Say what was changed."""
        ledger.annotate(self.chat_id, self.message_id, **self.changed())
        return _chat(self.chat_id, m=self.message_id)

    def commands(self, curl: Curl) -> tuple[str, str]:
        """Return the same for Python and the shell."""
        fields = self.stated()
        shell = curl(branches.annotate, chat_id=self.chat_id, message_id=self.message_id, **fields)
        return _python("ledger.annotate", self.chat_id, self.message_id, **fields), shell


class Begin(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A regeneration: the runs that an edit made stale are to be repeated."""

    title = "Repeat the answers after this edit"
    words = "What followed the message before the edit is stale. Its runs are to be repeated; your application executes them."

    chat_id: str
    message_id: str
    edited: str

    def do(self, ledger: Ledger) -> str:
        """Begin it."""
        plan = ledger.plan_regeneration(self.chat_id, self.edited)
        begun = ledger.begin_regeneration(plan, new_message_id=self.message_id)
        return _chat(self.chat_id, branch=begun.branch or "", m=self.message_id)

    def commands(self, curl: Curl) -> tuple[str, str]:
        """Return the same for Python and the shell."""
        plan = _python("ledger.plan_regeneration", self.chat_id, self.edited)
        python = f"ledger.begin_regeneration({plan}, new_message_id={self.message_id!r})"
        plan = curl(runs.plan_regeneration, chat_id=self.chat_id, message_id=self.edited)
        begin = curl(
            runs.begin_regeneration,
            chat_id=self.chat_id,
            plan=variable("plan", is_text=False),
            new_message_id=self.message_id,
        )
        return python, f"plan=$({plan} | jq -r '.')\n{begin}"


class Approve(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The approval of runs that a regeneration may repeat."""

    title = "Approve the regeneration"
    words = "The runs that await approval may be repeated; your application executes them."

    chat_id: str
    regeneration_id: str
    onward: Literal["chat", "thread"] = "chat"

    def do(self, ledger: Ledger) -> str:
        """Approve them."""
        approved = ledger.approve_regeneration(self.chat_id, self.regeneration_id)
        if self.onward == "thread" and approved.steps:
            return path_to("/agents/{thread_id}", thread_id=approved.steps[0].repeats.thread_id)
        return _chat(self.chat_id)

    def commands(self, curl: Curl) -> tuple[str, str]:
        """Return the same for Python and the shell."""
        shell = curl(runs.approve_regeneration, chat_id=self.chat_id, regeneration_id=self.regeneration_id)
        return _python("ledger.approve_regeneration", self.chat_id, self.regeneration_id), shell


class Deletion(Action, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deletions, which ask for the id of what goes: a click too many erases nothing."""

    fields = (FormField(name="confirmed", label="Its id, to confirm: it cannot be undone", needed=True),)
    is_grave = True

    confirmed: str = ""

    @property
    def target(self) -> str:
        """The id that confirms it."""
        raise NotImplementedError

    def do(self, ledger: Ledger) -> str:
        """Delete it, if that was confirmed."""
        if self.confirmed != self.target:
            msg = f"nothing was deleted: type the id {self.target!r} into the form to confirm"
            raise InvalidValueError(msg)
        return self.delete(ledger)

    def delete(self, ledger: Ledger) -> str:
        """Delete it."""
        raise NotImplementedError


class DeleteChat(Deletion, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chat that goes."""

    title = "Delete this chat"
    words = (
        "The chat goes with all that it held, which is erased from the log; that there was one stays in the history."
    )

    chat_id: str

    @property
    def target(self) -> str:
        """The id that confirms it."""
        return self.chat_id

    def delete(self, ledger: Ledger) -> str:
        """Delete the chat."""
        if not ledger.delete_chat(self.chat_id):
            raise ChatNotFoundError(self.chat_id)
        return "/"

    def commands(self, curl: Curl) -> tuple[str, str]:  # noqa: ARG002 - no request: the command asks before it deletes
        """Return the same for Python and the shell."""
        return _python("ledger.delete_chat", self.chat_id), shlex.join(["chatledger", "delete", self.chat_id])


class DeleteThread(Deletion, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A thread of agents that goes."""

    title = "Delete this thread"
    words = "All its checkpoints go, and are erased from the log; that there was one stays in the history."

    thread_id: str

    @property
    def target(self) -> str:
        """The id that confirms it."""
        return self.thread_id

    def delete(self, ledger: Ledger) -> str:
        """Delete the thread."""
        threads = Threads(ledger)
        with threads.reading(self.thread_id) as thread:
            if thread.record is None:
                msg = f"there is no thread {self.thread_id!r}"
                raise NotFoundError(msg)
        threads.delete(self.thread_id)
        return "/agents"

    def commands(self, curl: Curl) -> tuple[str, str]:  # noqa: ARG002 - no request: the command asks before it deletes
        """Return the same for Python and the shell."""
        shell = shlex.join(["chatledger", "delete", "--thread", self.thread_id])
        return _python("LedgerSaver(ledger).delete_thread", self.thread_id), shell


class DeleteState(Deletion, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A state of a graph that goes."""

    title = "Delete this state"
    words = "All its versions go, and are erased from the log."

    state_id: str

    @property
    def target(self) -> str:
        """The id that confirms it."""
        return self.state_id

    def delete(self, ledger: Ledger) -> str:
        """Delete the state."""
        try:
            is_deleted = StateStore(ledger).delete(self.state_id)
        except AccessDeniedError:  # another user's: as if there were none
            is_deleted = False
        if not is_deleted:
            msg = f"there is no state {shown_id(self.state_id)!r}"
            raise NotFoundError(msg)
        return "/agents?kind=states"

    def commands(self, curl: Curl) -> tuple[str, str]:
        """Return the same for Python and the shell."""
        return _python("StateStore(ledger).delete", self.state_id), curl(states.delete_state, state_id=self.state_id)


ACTIONS: Final[dict[str, type[Action]]] = {
    "fork": Fork,
    "edit": Edit,
    "switch": Switch,
    "name": Name,
    "annotate": Annotate,
    "begin": Begin,
    "approve": Approve,
    "delete-chat": DeleteChat,
    "delete-thread": DeleteThread,
    "delete-state": DeleteState,
}
"""All actions, by the last part of the path that their forms are sent to."""


def chat_actions(
    call: HttpCall, chat_id: str, branch: Branch | None, selected: Message | None
) -> tuple[list[Offer], list[Offer]]:
    """
    Return what a page of a chat offers: for the message that is selected, and for the chat. Nothing where nobody may write.

    Args:
        call: The request.
        chat_id: The chat.
        branch: The branch that is shown.
        selected: The message that is selected.
    """
    if not _may_write(call):
        return [], []
    return [] if selected is None else _of_message(call, selected, branch), _of_chat(call, chat_id, branch)


def approvals(call: HttpCall, chat_id: str, *, thread_id: str | None = None) -> list[Offer]:
    """Return the offers to approve regenerations of a chat; with `thread_id` those with runs of that thread, for its page."""
    if not _may_write(call):
        return []
    onward: Literal["chat", "thread"] = "chat" if thread_id is None else "thread"
    return [
        _offer(call, Approve(chat_id=chat_id, regeneration_id=regeneration.id, onward=onward))
        for regeneration in call.ledger.regenerations(chat_id)
        if any(
            step.status == "awaiting_approval" and thread_id in {None, step.repeats.thread_id}
            for step in regeneration.steps
        )
    ]


def deletion(call: HttpCall, action: Deletion) -> list[Offer]:
    """Return the offer to delete something, where one may."""
    return [_offer(call, action)] if _may_write(call) else []


def _of_message(call: HttpCall, message: Message, branch: Branch | None) -> list[Offer]:
    ids = {"chat_id": message.chat_id, "message_id": message.id}
    read = "" if branch is None else branch.name
    stored = _with_text(message.data, "")
    edit = (
        Edit(**ids, branch=read, data=encode_json(message.data).decode("utf-8", "replace"))
        if stored is None
        else Edit(**ids, branch=read, text=stored[0])
    )
    return [
        *(_offer(call, Begin(**ids, edited=edited)) for edited in _edited(call, message)),
        _offer(call, Fork(**ids)),
        _offer(call, edit, partial(edit.commands_for, message)),
        _offer(call, Name(**ids)),
        _offer(call, Annotate.of(message)),
    ]


def _edited(call: HttpCall, message: Message) -> list[str]:
    """The last version of a message before it that runs depend on, if nobody has begun to repeat them after this edit."""
    ledger, chat_id = call.ledger, message.chat_id
    begun = {
        regeneration.edited_message_id
        for regeneration in ledger.regenerations(chat_id)
        if regeneration.new_message_id == message.id
    }
    versions = ledger.versions(message.id).ids
    before = versions[: versions.index(message.id)]
    for earlier in reversed(before[-_VERSIONS:]):
        if earlier not in begun and ledger.plan_regeneration(chat_id, earlier).runs:
            return [earlier]
    return []


def _of_chat(call: HttpCall, chat_id: str, branch: Branch | None) -> list[Offer]:
    offers = approvals(call, chat_id)
    if branch is not None and not branch.is_active:
        offers.append(_offer(call, Switch(chat_id=chat_id, branch=branch.name)))
    return [*offers, _offer(call, DeleteChat(chat_id=chat_id))]


def _offer(call: HttpCall, action: Action, commands: Callable[[Curl], tuple[str, str]] | None = None) -> Offer:
    values = {name: getattr(action, name) for name in action.__struct_fields__}
    fields = [field for field in action.fields if values[field.name] is not None]
    examples = {field.name: field.example for field in fields if field.example and not values[field.name]}
    curl = Curl(call)
    python, shell = (commands or msgspec.structs.replace(action, **examples).commands)(curl)
    if curl.is_refused and not shell.startswith("chatledger "):
        shell = f"# with 'chatledger serve': this server answers its browser only\n{shell}"
    to_fill_in = {field.name for field in action.fields}
    return Offer(
        name=_NAMES[type(action)],
        title=action.title,
        words=action.words,
        fixed={name: str(value) for name, value in values.items() if name not in to_fill_in},
        fields=[msgspec.structs.replace(field, value=_initial(values[field.name])) for field in fields],
        is_grave=action.is_grave,
        target=action.target if isinstance(action, Deletion) else "",
        python=python,
        shell=shell,
    )


def _initial(value: Any) -> str:
    """The text of a field as the form is shown."""
    return ("true" if value else "") if isinstance(value, bool) else str(value)


def _may_write(call: HttpCall) -> bool:
    """Whether a page may offer changes: the caller may write, and the page shows the present."""
    return call.moment is None and call.principal.may("write")


def _python(function: str, *positional: Any, **named: Any) -> str:
    arguments = [*map(repr, positional), *(f"{name}={value!r}" for name, value in named.items())]
    return f"{function}({', '.join(arguments)})"


def _chat(chat_id: str, *, branch: str = "", m: str = "") -> str:
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in (("branch", branch), ("m", m)) if value)
    return path_to("/c/{chat_id}", chat_id=chat_id) + ("?" + query if query else "")


def _message(ledger: Ledger, chat_id: str, message_id: str) -> Message:
    message = ledger.get_message(message_id)
    if message is None or message.chat_id != chat_id:
        raise MessageNotFoundError(message_id, chat_id=chat_id)
    return message


def _inherited(message: Message) -> dict[str, Any]:
    """Return what another version of a message has in common with it."""
    fields = {name: getattr(message, name) for name in ("type", "sender_id", "agent_id", "reply_to")}
    return {name: value for name, value in fields.items() if value not in {None, "message"}}


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _anonymous(data: Any, message_id: str) -> Any:
    """The data of a message without its id, for one that gets another id."""
    if not isinstance(data, dict):
        return data
    fields = cast("dict[str, Any]", data)
    # With the old id in its data the command would ask for a message that is stored already, with other content.
    return {name: value for name, value in fields.items() if name != "id"} if fields.get("id") == message_id else fields


def _json(text: str, name: str, form: Any = Any) -> Any:
    try:
        return msgspec.json.decode(text, type=form)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        msg = f"{name} in the form is no JSON that fits: {error}"
        raise InvalidValueError(msg) from error


def _with_text(data: Any, text: str) -> tuple[str, Any] | None:
    """The one text that the data of a message has, and the data with another one; None where there is not just one."""
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
            return _with_part(fields, key, cast("list[Any]", inner), text)
    return None


def _with_part(fields: dict[str, Any], key: str, parts: list[Any], text: str) -> tuple[str, Any] | None:
    texts = [
        (at, cast("dict[str, Any]", part))
        for at, part in enumerate(parts)
        if isinstance(part, dict) and isinstance(cast("dict[str, Any]", part).get("text"), str)
    ]
    if len(texts) != 1:
        return None
    ((at, part),) = texts
    return part["text"], {**fields, key: [*parts[:at], {**part, "text": text}, *parts[at + 1 :]]}


_NAMES: Final = {action: name for name, action in ACTIONS.items()}
