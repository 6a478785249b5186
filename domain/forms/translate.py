"""
Translation of a chain into another form.

    translate(messages, "anthropic").messages

Three steps: each message is read by its own form, its items are arranged as turns, and each turn is given as it came, where all
of it came in the target's form, or written anew.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from ..errors import InvalidValueError
from ..limits import same_json
from .arrange import OpenCalls, StrayResults, arrange, runs
from .model import Dropped, Form, Source
from .plain import object_at
from .reading import known_form, known_forms


class Translated(msgspec.Struct, frozen=True):
    """
    A chain in another form.

    Args:
        messages: Its messages.
        dropped: What they do not say of it.
        origins: Of each of them the places in the chain of those that it is told of: most often one, several where an answer came
            in parts. Several messages are told of one that says several things.
    """

    messages: list[Any]
    dropped: list[Dropped]
    origins: list[Sequence[int]]


def translate(
    messages: Sequence[Source],
    form: str | Form,
    *,
    open_calls: OpenCalls = "answer",
    stray_results: StrayResults = "drop",
) -> Translated:
    """
    Translate a chain into a form, so that its API takes it.

    What came in this form is given as it came, as far as the API takes it so. Ids of calls are kept where the API allows them
    and no earlier call has them; else they are made from what they were, always the same. The translation of the beginning of
    a chain begins that of the whole, but for results that came late.

    Args:
        messages: The chain, oldest first.
        form: The form, or its name.
        open_calls: `answer` gives each call without a result the error `interrupted`, `drop` leaves the call out, and `keep` does
            neither for calls of the turn that ends the chain.
        stray_results: Whether a result whose call is not there is left out or told as a text of the user.

    Returns:
        The messages, and a `Dropped` for all that they leave out.

    Raises:
        InvalidValueError: The form, or that of a message, is not known.
    """
    target = form if isinstance(form, Form) else known_form(form)
    if target is None or target.write is None:
        raise _unknown(form if isinstance(form, str) else form.name)
    chain = list(messages)
    forms = {message.form for message in chain}
    if forms <= {target.name} and open_calls == "keep":
        writer = target.write([], [], frozenset())
        writer.put(chain)
        return Translated(writer.messages, [], [(place,) for place in range(len(chain))])
    kin = {target.name}
    for name in forms - {None, target.name}:
        known = known_form(name)
        if known is None:
            raise _unknown(str(name))
        kin |= {known.name} if known.blocks == target.name else set()
    arranged = arrange(chain, target, open_calls=open_calls, stray_results=stray_results)
    writer = target.write(arranged.turns, arranged.dropped, frozenset(kin))
    changed = arranged.changed
    changed.update(number for number, message in enumerate(chain) if message.form != target.name)
    origins: list[Sequence[int]] = []
    for turns, numbers in runs(arranged):
        if changed.isdisjoint(numbers) and all(turn.is_told for turn in turns):
            sources = [chain[number] for number in numbers]
            if writer.takes(turns, sources):
                writer.put(sources)
                origins += [(number,) for number in numbers]
                continue
        for turn in turns:
            writer.write(turn)
            added = len(writer.messages) - len(origins)
            origins += [turn.sources] * added
            if not added and origins:  # the message before goes on
                origins[-1] = sorted({*origins[-1], *turn.sources})
    writer.finish([chain[places[0]].id for places in origins])
    return Translated(writer.messages, arranged.dropped, origins)


def _unknown(name: str) -> InvalidValueError:
    known = ", ".join(repr(known) for known in known_forms())
    return InvalidValueError(
        f"no form {name!r} of messages is known to translate from or into; known are {known}; "
        "chatledger.forms.register(Form(...)) makes another one known"
    )


def told_again(chain: Sequence[Source], form: str | Form, retold: Sequence[Any]) -> int:
    """
    Count the messages at the beginning of a list that a reader was told and gives back: they are there, and are not new.

    A message is there again if it is what the chain tells in this form now, under the same id. Whether a client has seen the end
    of a part (`"state": "done"` in a UIMessage) makes no other message of it.

    Args:
        chain: The chain, oldest first, of which the list has all or the end, and then what is new.
        form: The form of the list.
        retold: The list.
    """
    known = [_settled(message) for message in translate(chain, form, open_calls="keep").messages]
    back = [_settled(message) for message in retold]
    first = next((place for place, message in enumerate(known) if back and same_json(message, back[0])), len(known))
    count = 0
    for message, other in zip(known[first:], back, strict=False):
        if not same_json(message, other):
            break
        count += 1
    return count


def _settled(message: Any) -> Any:
    parts = object_at(message).get("parts")
    if not isinstance(parts, list):
        return message
    return {**message, "parts": [_without_state(part) for part in cast("list[Any]", parts)]}


def _without_state(part: Any) -> Any:
    fields = object_at(part)
    return {key: value for key, value in fields.items() if key != "state"} if fields.get("state") == "done" else part
