"""Every form into every form: what comes out keeps the provider's rules, and nothing is lost but what `dropped` names."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.domain.forms.retold import Retold, retold
from tests.domain.forms.rules import broken_rules
from tests.domain.forms.stories import FORMS, Saying, Told, marks_in, stored, stories
from tests.support.soak import examples

from chatledger.domain.forms.translate import Translated, translate

APIS = ("openai", "responses", "anthropic", "google")
SOURCES = [*FORMS, "mixed"]
MANY = settings(max_examples=examples(4_000, one_in=80))
SOME = settings(max_examples=examples(400, one_in=40))


def told_by(source: str, **faults: Any) -> st.SearchStrategy[Told]:
    return stories(FORMS if source == "mixed" else [source], **faults)


def shown(told: Told, form: str, messages: Sequence[Any]) -> str:
    """A story as it was told, and what became of it, for who reads a failure."""
    original = [
        f"  {message.id} {message.form} {message.name}: {json.dumps(message.data)}" for message in told.messages
    ]
    return "\n".join([f"to {form}, of", *original, "is", *(f"  {json.dumps(message)}" for message in messages)])


# 1 and 4: rules, and `dropped`


@pytest.mark.parametrize("source", SOURCES)
@given(data=st.data())
@MANY
def test_each_form_keeps_the_rules_and_names_what_it_drops(source: str, data: st.DataObject) -> None:
    told = data.draw(told_by(source))

    for form in FORMS:
        translated = translate(told.chain(), form)
        assert [] == broken_rules(form, translated.messages), shown(told, form, translated.messages)
        assert [] == faults_of(told, form, translated), shown(told, form, translated.messages)


@pytest.mark.parametrize("source", SOURCES)
@given(data=st.data())
@SOME
def test_open_calls_are_dropped_or_kept_if_wanted(source: str, data: st.DataObject) -> None:
    told = data.draw(told_by(source, faults=["missing", "apart", "behind"]))
    for form in FORMS:
        dropped = translate(told.chain(), form, open_calls="drop")
        assert [] == broken_rules(form, dropped.messages), shown(told, form, dropped.messages)
        left = {mark.mark for mark in retold(form, dropped.messages) if mark.place == "call"}
        answered = {saying.answers for saying in told.sayings if saying.kind == "result"}
        assert not told.has_clear_pairs or left == answered, shown(told, form, dropped.messages)
        assert [] == faults_of(told, form, dropped, may_drop_calls=True), shown(told, form, dropped.messages)

        kept = translate(told.chain(), form, open_calls="keep")
        if {message.form for message in told.messages} == {form}:  # which frameworks get back as they wrote it
            assert [message.data for message in told.messages] == list(kept.messages)
            continue
        assert [] == broken_rules(form, kept.messages, may_be_open=True), shown(told, form, kept.messages)
        assert [] == faults_of(told, form, kept), shown(told, form, kept.messages)


@pytest.mark.parametrize("source", [source for source in SOURCES if source != "ui"])
@given(data=st.data())
@SOME
def test_results_of_no_call_are_text_if_wanted(source: str, data: st.DataObject) -> None:
    told = data.draw(told_by(source, faults=["stray"]))

    for form in FORMS:
        translated = translate(told.chain(), form, stray_results="text")
        assert [] == broken_rules(form, translated.messages), shown(told, form, translated.messages)
        marks = {mark.mark: mark for mark in retold(form, translated.messages)}
        for saying in told.sayings:
            if saying.kind == "result" and saying.answers is None:
                assert marks[saying.mark].place == "words", shown(told, form, translated.messages)


def faults_of(told: Told, form: str, translated: Translated, *, may_drop_calls: bool = False) -> list[str]:
    """Faults of a translation of a story, beside the provider's rules: lost, doubled, misplaced, or given away."""
    read = retold(form, translated.messages)
    position = {mark.mark: index for index, mark in enumerate(read)}
    faults = [f"{mark} {count} times" for mark, count in Counter(mark.mark for mark in read).items() if count > 1]
    lost = [saying for saying in told.sayings if saying.mark not in position]
    faults += _silently_lost(lost, translated, may_drop_calls=may_drop_calls)
    for saying in told.sayings:
        if saying.mark in position:
            faults += _misplaced(saying, read[position[saying.mark]], form, has_clear_pairs=told.has_clear_pairs)
    for kind in ("text", "call"):
        order = [position[saying.mark] for saying in told.sayings if saying.kind == kind and saying.mark in position]
        faults += [] if order == sorted(order) else [f"{kind}s in another order"]
    faults += _results_out_of_place(told, position) if told.has_clear_pairs else []
    if form in APIS:
        written = json.dumps(translated.messages)
        faults += [
            f"{form} gets {secret!r} of {origin}"
            for origin, secret in told.secrets
            if origin != form and secret in written
        ]
    if (
        form == "responses"
    ):  # a thought and what follows it keep their ids, or both lose them (vercel/ai#7099, continue#11994)
        ids = {item.get("id") for item in translated.messages}
        faults += [f"{thought} without {item}" for thought, item in told.pairs if (thought in ids) != (item in ids)]
    known = {message.id: place for place, message in enumerate(told.messages)}
    spoken = {saying.mark: known[saying.message_id] for saying in told.sayings}
    faults += [
        f"{mark} is told of {origins}"
        for message, origins in zip(translated.messages, translated.origins, strict=True)
        for mark in marks_in(message)
        if spoken.get(mark, origins[0]) not in origins
    ]
    return faults + [
        f"{drop} says too little"
        for drop in translated.dropped
        if drop.message_id not in known or not (drop.what and drop.why)
    ]


def _silently_lost(lost: list[Saying], translated: Translated, *, may_drop_calls: bool) -> list[str]:
    named = Counter(drop.message_id for drop in translated.dropped)
    left, faults = named.copy(), list[str]()
    for saying in lost:
        if not (saying.may_be_dropped or (may_drop_calls and saying.kind == "call")):
            faults.append(f"{saying} is lost")
        elif not (named if saying.kind == "file" else left)[saying.message_id]:
            faults.append(f"{saying} is dropped in silence")
        left[saying.message_id] -= saying.kind != "file"  # which goes with the result that has it
    return faults


def _misplaced(saying: Saying, mark: Retold, form: str, *, has_clear_pairs: bool) -> list[str]:
    place = {"call": "call", "result": "result"}.get(saying.kind, "words")
    if saying.kind == "file" or (saying.kind == "result" and saying.may_be_dropped):
        return []
    if mark.place != place:
        return [f"{saying} is {mark}"]
    if saying.kind == "result" and has_clear_pairs and mark.answers != saying.answers:
        return [f"{saying} answers {mark.answers}"]
    # What instructs is a user's message where it has no place of its own.
    role = "user" if saying.role == "system" and form in {"anthropic", "google", "strands", "adk"} else saying.role
    return [] if saying.kind != "text" or mark.role == role else [f"{saying} is of {mark.role}"]


def _results_out_of_place(told: Told, position: dict[str, int]) -> list[str]:
    """The results that do not stand behind their call, and before what was said behind them."""
    faults, following = list[str](), len(position)
    for saying in reversed(told.sayings):
        if saying.mark not in position:
            continue
        if saying.kind == "text":
            following = min(following, position[saying.mark])
        if saying.kind == "result" and not saying.may_be_dropped and position[saying.mark] > following:
            faults.append(f"{saying} behind what was said behind it")
    return faults


# 2: as it came, there and back


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@MANY
def test_a_story_of_one_form_is_given_as_it_came(form: str, data: st.DataObject) -> None:
    told = data.draw(stories([form], faults=[]))

    translated = translate(told.chain(), form)

    assert [message.data for message in told.messages] == list(translated.messages)
    assert [] == list(translated.dropped)


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@SOME
def test_there_and_back_the_same_is_said(form: str, data: st.DataObject) -> None:
    told = data.draw(stories([form], faults=[]))
    original = [message.data for message in told.messages]

    for other in FORMS:
        there = translate(told.chain(), other)
        # A UIMessage is stored under its own id, and given out under the id that it is stored under.
        ids = [value.get("id") if other == "ui" else f"n{index}" for index, value in enumerate(there.messages)]
        moved = [
            stored(name, other, name_in(other, value), value) for name, value in zip(ids, there.messages, strict=True)
        ]
        again, back = translate(moved, other), translate(moved, form)

        assert list(there.messages) == list(again.messages), shown(told, other, there.messages)
        assert [] == list(again.dropped)
        assert [] == broken_rules(form, back.messages), shown(told, other, back.messages)
        came_back = {mark.mark for mark in retold(form, back.messages)}
        may_be_lost = {saying.mark for saying in told.sayings if saying.may_be_dropped}
        lost = [mark.mark for mark in retold(form, original) if mark.mark not in came_back]
        assert set(lost) <= may_be_lost, shown(told, other, back.messages)
        assert not lost or there.dropped or back.dropped
        assert _exchanges(form, original, other) == _exchanges(form, back.messages, other), shown(
            told, other, back.messages
        )


def _exchanges(form: str, messages: Sequence[Any], other: str) -> list[Retold]:
    """Words, calls and results in order, with roles; files may stand elsewhere, and thoughts be dropped."""
    marks = [mark for mark in retold(form, messages) if mark.mark[0] in "wcr"]
    if other in {"anthropic", "google"}:  # have no place for who instructs
        return [Retold(mark.mark, mark.place, mark.role.replace("system", "user"), mark.answers) for mark in marks]
    return marks


def name_in(form: str, data: Any) -> str:
    """The name under which a chat stores a message: whose it is."""
    pieces = retold(form, [data])
    if pieces and all(piece.place == "result" for piece in pieces):
        return "tool"
    role = str(data.get("role") or next((piece.role for piece in pieces), "assistant"))
    return {"model": "assistant", "developer": "system"}.get(role, role)


# 3: prefixes


@pytest.mark.parametrize("source", SOURCES)
@given(data=st.data())
@MANY
def test_what_was_told_stays_as_the_chain_grows(source: str, data: st.DataObject) -> None:
    told = data.draw(told_by(source))
    places = cuts(told)
    messages, cut = told.chain(), places[len(places) // 2] if places else 0

    for form in FORMS:
        whole = _blocks(form, translate(messages, form).messages)
        part = _blocks(form, translate(messages[:cut], form).messages)
        assert part == whole[: len(part)], shown(told, form, whole)


def cuts(told: Told) -> list[int]:
    """The places of messages of users behind which nothing answers a call before them."""
    place = {message.id: index for index, message in enumerate(told.messages)}
    calls = {saying.mark: place[saying.message_id] for saying in told.sayings if saying.kind == "call"}
    answers = [
        (calls.get(saying.answers or ""), place[saying.message_id])
        for saying in told.sayings
        if saying.kind == "result"
    ]
    if told.late and not told.has_clear_pairs:
        return []
    return [
        index
        for index, message in enumerate(told.messages)
        if message.name == "user" and not any(call is not None and call < index <= result for call, result in answers)
    ]


def _blocks(form: str, messages: Sequence[Any]) -> list[Any]:
    """The blocks of messages, each with its role: neighbours of a role may be one message or two."""
    key = "content" if form in {"openai", "anthropic"} else "parts"
    blocks = list[Any]()
    for message in messages:
        if form == "responses" or not isinstance(message.get(key), list):
            blocks.append(message)
            continue
        head = {name: value for name, value in message.items() if name not in {key, "tool_calls"}}
        blocks += [[head, block] for block in message[key]]
        blocks += [[head, call] for call in message.get("tool_calls", [])]
    return blocks
