"""Offers of a page: the actions that its reader may take there, each as a form, with commands that do the same; and forms that are sent."""

from typing import Any, Final, Literal
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import RedirectResponse, Response

from chatledger.domain.values import Branch, Chat, Message
from chatledger.domain.wire import Value, encode_json

from ...ledger.merges import preview_merge
from ..http.problems import RequestError
from ..http.routing import JSON, MAX_MESSAGES_BYTES, HttpCall, Route
from .actions import (
    ACTIONS,
    Action,
    Annotate,
    Approve,
    Begin,
    CreateLink,
    Curl,
    DeleteChat,
    Deletion,
    Edit,
    Fork,
    FormField,
    MergeBranch,
    Name,
    Redact,
    RedactWords,
    SetMember,
    Switch,
    with_text,
)
from .page import SAFE_HEADERS, rooted
from .sessions import CSRF_FIELD, FORMS, Sessions

_VERSIONS: Final = 5
"""The most versions of a message before an edit that are looked at for runs that depend on them."""

_PICKED: Final = 50
"""So many messages of a branch, the last ones, are offered to be copied one by one."""

_NAMES: Final = {action: name for name, action in ACTIONS.items()}


class Offer(Value, frozen=True, kw_only=True):
    """
    An action that a page offers.

    Args:
        fixed: Fields that the page fills in.
        fields: Fields that the reader fills in.
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


def chat_actions(
    call: HttpCall, chat_id: str, branch: Branch | None, selected: Message | None
) -> tuple[list[Offer], list[Offer]]:
    """
    Return what a page of a chat offers: for the message that is selected, and for the chat. Nothing to who may not write; where
    the page shows the past, a fork.
    """
    if not call.principal.may("write"):
        return [], []
    if call.moment is not None:
        # A message never changes, so one of the past can be forked at as any other; the branch begins in the present.
        ids = None if selected is None else {"chat_id": chat_id, "message_id": selected.id}
        return [] if ids is None else [_offer(call, Fork(**ids))], []
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


def sharing_actions(call: HttpCall, chat: Chat) -> list[Offer]:
    """Return the offers to share a chat, to who may: its owner, and who acts for everybody."""
    is_owner = call.principal.user_id in {None, chat.user_id}
    offered = (SetMember(chat_id=chat.id), CreateLink(chat_id=chat.id)) if is_owner and _may_write(call) else ()
    return [_offer(call, action) for action in offered]


def deletion(call: HttpCall, action: Deletion) -> list[Offer]:
    """Return the offer to delete something, where one may."""
    return [_offer(call, action)] if _may_write(call) else []


def _of_message(call: HttpCall, message: Message, branch: Branch | None) -> list[Offer]:
    ids = {"chat_id": message.chat_id, "message_id": message.id}
    read = "" if branch is None else branch.name
    stored = with_text(message.data, "")
    edit = (
        Edit(**ids, branch=read, data=encode_json(message.data).decode("utf-8", "replace"))
        if stored is None
        else Edit(**ids, branch=read, text=stored[0])
    )
    return [
        *(_offer(call, Begin(**ids, edited=edited)) for edited in _edited(call, message)),
        _offer(call, Fork(**ids)),
        msgspec.structs.replace(
            _offer(call, edit),
            words=Edit.words + (f" It gets the name of '{read}', with the next number." if read else ""),
        ),
        _offer(call, Name(**ids)),
        _offer(call, Annotate.of(message)),
        _offer(call, Redact(chat_id=message.chat_id, message_id=message.id)),
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
        offers += _merges(call, chat_id, branch)
    return [*offers, _offer(call, RedactWords(chat_id=chat_id)), _offer(call, DeleteChat(chat_id=chat_id))]


def _merges(call: HttpCall, chat_id: str, branch: Branch) -> list[Offer]:
    """The offer to merge a branch into the active one, with what that would bring; none where that has all of it."""
    active = call.ledger.get_active_branch(chat_id)
    if active is None:
        return []
    preview = preview_merge(call.ledger, chat_id, branch.name, active.name, limit=_PICKED)
    if preview.source_head is None or not preview.theirs:
        return []
    action = MergeBranch(chat_id=chat_id, source=branch.name, source_head=preview.source_head, into=active.name)
    offer = _offer(call, action)
    own = "no messages of its own" if not preview.ours else f"{_messages(preview.ours)} of its own"
    base = preview.base
    after = "Without a message in common" if base is None else f"After “{base.line or base.id}”, which both have"
    words = (
        f"{after}, '{branch.name}' has {_messages(preview.theirs)} that '{active.name}' does not have, and '{active.name}' has {own}. "
        f"{action.words}"
    )
    options = {
        "pick": {message.id: f"{message.name}: {message.line or message.id}" for message in preview.messages},
        "how": MergeBranch.fields[0].options
        | ({"rebase": "Go on from its end, and copy nothing"} if preview.is_fast_forward else {}),
    }
    fields = [
        msgspec.structs.replace(field, options=options.get(field.name, {}))
        for field in offer.fields
        if options.get(field.name, True)
    ]
    return [msgspec.structs.replace(offer, words=words, fields=fields)]


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def commands_of(call: HttpCall, action: Action) -> tuple[str, str]:
    """Return what does the same in Python, where `ledger` is open, and in a shell; an example stands for what is not filled in."""
    fields = {field.name: field.example for field in action.fields if field.example}
    examples = {name: example for name, example in fields.items() if not getattr(action, name)}
    curl = Curl(call)
    python, shell = msgspec.structs.replace(action, **examples).commands(curl)
    if curl.is_refused and not shell.startswith("chatledger "):
        shell = f"# with 'chatledger serve': this server answers its browser only\n{shell}"
    return python, shell


def _offer(call: HttpCall, action: Action) -> Offer:
    values = {name: getattr(action, name) for name in action.__struct_fields__}
    fields = [field for field in action.fields if values[field.name] is not None]
    python, shell = commands_of(call, action)
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


_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 90
"""More than any form has; a body of 64 MiB could have 30 million."""

COMMANDS: Final = "/commands/"
"""The path of what does the same as a form, before the name of its action."""


def form_route(name: str, kind: type[Action], sessions: Sessions) -> Route:
    """Return the route that an action's form is sent to, where only pages of this server may send it from."""

    def do(call: HttpCall, body: bytes) -> Response:
        form = _form_of(call, body)
        sessions.check_proof(sessions.session_of(call.request), form.pop(CSRF_FIELD, ""))
        onward = rooted(call.request, _action(form, kind).do(call.ledger))
        return RedirectResponse(onward, 303, SAFE_HEADERS | {"Cache-Control": "no-store"})

    return Route("POST", FORMS + name, do, scope=kind.scope, is_strict=False, max_body_bytes=MAX_MESSAGES_BYTES)


def commands_route(name: str, kind: type[Action]) -> Route:
    """Return the route that tells what does the same as an action's form, as it is filled in: `{"python": ..., "shell": ...}`."""

    def commands(call: HttpCall, body: bytes) -> Response:
        form = _form_of(call, body)
        form.pop(CSRF_FIELD, "")
        python, shell = commands_of(call, _action(form, kind))
        headers = SAFE_HEADERS | {"Cache-Control": "no-store"}
        return Response(encode_json({"python": python, "shell": shell}), 200, headers, JSON)

    return Route(
        "POST", COMMANDS + name, commands, scope=kind.scope, is_strict=False, max_body_bytes=MAX_MESSAGES_BYTES
    )


def _action(form: dict[str, str], kind: type[Action]) -> Action:
    try:
        return msgspec.convert(form, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RequestError(422, f"in the form: {error}", name="InvalidValueError") from error


def _form_of(call: HttpCall, body: bytes) -> dict[str, str]:
    kind = (call.header("Content-Type") or "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise RequestError(415, f"forms are sent as {_FORM}", name="UnsupportedMediaType")
    try:
        sent = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise RequestError(400, f"the form cannot be read: {error}", name="InvalidValueError") from error
    fields: dict[str, str] = {}
    for name, value in sent:  # of what is chosen among several each has the same name
        fields[name] = f"{fields[name]}\n{value}" if name in fields else value
    return fields
