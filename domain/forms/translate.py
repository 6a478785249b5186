"""
Translation of a chain into another form.

    translate(messages, "anthropic").messages

Three steps: each message is read by its own form, its items are arranged as turns, and each turn is given as it came, where all
of it came in the target's form, or written anew.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import InvalidValueError
from .arrange import OpenCalls, StrayResults, arrange, runs
from .items import ASSISTANT, Dropped, Source
from .model import Form
from .reading import known_form, known_forms


class Translated(msgspec.Struct, frozen=True):
    """
    A chain in another form.

    Args:
        messages: The messages in that form.
        dropped: What the chain says and these messages do not.
        origins: For each message, the places in the chain that it comes from: mostly one, several where an answer came in parts.
            One place may stand for several messages.
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
    if forms <= {target.name} and open_calls == "keep":  # what an adapter reads of its own framework
        writer = target.write([], [], frozenset())
        writer.put(chain)
        return Translated(writer.messages, [], [(place,) for place in range(len(chain))])
    kin = {target.name, target.blocks or target.name}
    for name in forms - {None, target.name}:
        other = known_form(name)
        if other is None:
            raise _unknown(str(name))
        kin |= {other.name} if other.blocks == target.name else set()
    arranged = arrange(chain, target, open_calls=open_calls, stray_results=stray_results)
    writer = target.write(arranged.turns, arranged.dropped, frozenset(kin))
    changed = arranged.changed
    changed.update(number for number, message in enumerate(chain) if message.form != target.name)
    origins: list[Sequence[int]] = []
    going_on: dict[int, list[int]] = {}  # of messages that several turns are told in
    is_answering = False
    for turns, numbers in runs(arranged):
        if changed.isdisjoint(numbers) and all(turn.is_told for turn in turns):
            sources = [chain[number] for number in numbers]
            if writer.takes(turns, sources):
                writer.put(sources)
                origins += [(number,) for number in numbers]
                is_answering = turns[-1].role == ASSISTANT
                continue
        for turn in turns:
            writer.write(turn)
            added = len(writer.messages) - len(origins)
            origins += [turn.sources] * added
            # A step of an answer may go on in the message of the one before; any other turn of which nothing was written is lost.
            if not added and is_answering and turn.role == ASSISTANT:
                place = len(origins) - 1
                going_on.setdefault(place, [*origins[place]]).extend(turn.sources)
            is_answering = turn.role == ASSISTANT and bool(origins)
    for place, numbers in going_on.items():
        origins[place] = sorted({*numbers})
    writer.finish([chain[places[0]].id for places in origins])
    return Translated(writer.messages, arranged.dropped, origins)


def _unknown(name: str) -> InvalidValueError:
    names = ", ".join(repr(form) for form in known_forms())
    return InvalidValueError(
        f"no form {name!r} of messages is known to translate from or into; known are {names}; "
        "chatledger.forms.register(Form(...)) makes another one known"
    )
