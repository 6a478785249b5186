"""The contract of an adapter: of a store of conversations that an agent framework uses, on a ledger."""

import asyncio
import contextlib
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Protocol, get_args

from chatledger.domain.forms.model import FormName
from chatledger.domain.forms.translate import translate
from chatledger.domain.values import Message

from ..ledger.aio.async_ledger import AsyncLedger
from ..ledger.ledger import Ledger
from ..ledger.open import open as open_ledger
from ..ledger.open import open_async
from . import expect, require

AnyLedger = Ledger | AsyncLedger
_QUESTION: Final = "Where can I hear a fado singer?"
_ANSWER: Final = "In Alfama, most evenings after nine."
_WRITERS: Final = 6
_ATTEMPTS: Final = 200


_FORMS: Final = get_args(FormName)
_IMAGE: Final = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
_STEP: Final = (
    (
        "assistant",
        [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "call_1", "name": "photo", "input": {"of": "Alfama"}},
            {"type": "tool_use", "id": "call_2", "name": "hours", "input": {"of": "Alfama"}},
        ],
    ),
    (
        "user",
        [
            {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "Here."}, _IMAGE]},
            {"type": "tool_result", "tool_use_id": "call_2", "content": "Closed.", "is_error": True},
        ],
    ),
    ("assistant", [{"type": "text", "text": _ANSWER}]),
)
"""A step of two calls with an image and an error as results, as Anthropic has it."""
_UNKNOWN: Final = "unknown fields"
_FIELD: Final = [1]
_ODD: Final = {"large integers": 1 << 70, "NaN": float("nan"), "half an emoji": "\ud83d"}
"""Values that JSON cannot say, and Python's `json` does."""


class Turn(NamedTuple):
    """A message of a conversation as any framework has it: who speaks (`user` or `assistant`), and the text."""

    role: str
    text: str


class ValuesDriver(Protocol):
    """
    The calls by which the checks drive what saves and loads messages whole, made as its framework makes them.

    Messages are given as values: JSON as the framework writes it, of which it makes its objects before a call, and which it
    makes of the objects that a call returns. Each call makes the adapter anew on the ledger that it gets: what one object
    of it remembers must not matter.
    """

    @property
    def name(self) -> str:
        """The name of the adapter: that of its module."""
        ...

    @property
    def form(self) -> str:
        """The form in which the adapter stores messages."""
        ...

    @property
    def losses(self) -> Mapping[str, str]:
        """
        What the framework's own objects cannot keep, and why: of `unknown fields`, `large integers`, `NaN` and `half an emoji`.

        What stands here is checked too: it must be lost.
        """
        ...

    @property
    def notes_saves(self) -> bool:
        """Whether the framework notes each save, also one of nothing new: then it writes no messages, but such a note."""
        ...

    def chat_id(self, conversation_id: str) -> str:
        """Return the id of the chat that keeps a conversation."""
        ...

    def message_with(self, value: Any) -> dict[str, Any]:
        """Return a message that holds a value where the framework takes any JSON, such as in the arguments of a call."""
        ...

    async def save_values(self, ledger: AnyLedger, conversation_id: str, values: Sequence[Any]) -> None:
        """Save these as the messages of a conversation; all that are there already are given again, as they were loaded."""

    async def load_values(self, ledger: AnyLedger, conversation_id: str) -> list[Any]:
        """Load the messages of a conversation."""
        ...


class AdapterDriver(ValuesDriver, Protocol):
    """The calls by which the checks drive an adapter of conversations, which users and assistants have in turn."""

    @property
    def conflicts(self) -> tuple[type[Exception], ...]:
        """The errors by which the framework says that somebody else wrote meanwhile, so that `write` is to be called again."""
        ...

    async def write(self, ledger: AnyLedger, conversation_id: str, turns: Sequence[Turn], *, key: str) -> None:
        """
        Add turns at the end of a conversation, which is made if there is none.

        `key` tells this call from others: called again with the same key it is the same write, with the same ids of messages.
        """

    async def read(self, ledger: AnyLedger, conversation_id: str) -> list[Turn]:
        """Return the conversation as the framework would go on with it; an empty list when there is none."""
        ...

    async def delete(self, ledger: AnyLedger, conversation_id: str) -> None:
        """Delete a conversation by the framework's own call."""


def check_adapter(
    driver: AdapterDriver, *, others: Sequence[AdapterDriver] = (), recorded: Sequence[Sequence[Any]] = ()
) -> None:
    """
    Check an adapter: what it saves is there for all, as it came, and is neither lost, repeated nor shown to others.

    Args:
        driver: Drives the adapter.
        others: Drivers of other adapters, whose conversations this one is to read and to go on with, and they with this one's.
        recorded: Conversations that the framework had: the messages of each, as it writes them to JSON.

    Raises:
        AssertionError: A rule is broken; says which.

    Takes a few seconds. See `check_adapter_killed` for what must hold when a process dies.
    """
    for check in _CHECKS:
        asyncio.run(_on_ledger(check, driver))
    for other in others:
        asyncio.run(_on_ledger(_check_shared, driver, other))
        asyncio.run(_on_ledger(_check_shared, other, driver))
    check_values(driver, recorded=recorded)


def check_values(driver: ValuesDriver, *, recorded: Sequence[Sequence[Any]] = ()) -> None:
    """
    Check that messages are loaded as they were saved, also with what JSON cannot say, and that saving them again writes nothing.

    `check_adapter` checks this too; alone it is for what saves messages, but not of users and assistants in turn.

    Args:
        driver: Drives what saves and loads them.
        recorded: See `check_adapter`.

    Raises:
        AssertionError: A rule is broken; says which.
    """
    unknown = driver.losses.keys() - {_UNKNOWN, *_ODD}
    require(not unknown, f"{driver.name}: losses are of {[_UNKNOWN, *_ODD]}, not {sorted(unknown)}")
    odd = {_UNKNOWN: {**driver.message_with("any"), "unknown": {"odd": _FIELD}}}
    odd |= {name: driver.message_with({"odd": value}) for name, value in _ODD.items()}
    for name, value in odd.items():
        asyncio.run(_on_ledger(_check_odd, driver, name, value))
    for chain in [[driver.message_with("any")], *recorded]:
        asyncio.run(_on_ledger(_check_saved_again, driver, chain))


async def _on_ledger(check: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
    with open_ledger("memory:") as ledger:
        await check(ledger, *arguments)


async def _check_saved(ledger: Ledger, driver: AdapterDriver) -> None:
    expect([], await driver.read(ledger, "trip"), f"{driver.name}: a conversation that was never written is empty")
    first, second = [Turn("user", _QUESTION)], [Turn("assistant", _ANSWER)]
    await driver.write(ledger, "trip", first, key="1")
    before = ledger.position
    await driver.write(ledger, "trip", second, key="2")
    expect(first + second, await driver.read(ledger, "trip"), f"{driver.name}: what was written is read, in order")
    chat_id = driver.chat_id("trip")
    expect(first + second, _turns(ledger.get_messages(chat_id)), f"{driver.name}: the ledger has it as messages")
    for word in ("fado", "Alfama"):
        hits = {hit.message.chat_id for hit in ledger.search(word)}
        expect({chat_id}, hits, f"{driver.name}: search finds {word!r}")
    with ledger.as_of(before) as then:
        expect(
            first,
            _turns(then.get_messages(chat_id)),
            f"{driver.name}: as of an earlier moment later messages are not there",
        )
    ledger.verify()


async def _check_repeated(ledger: Ledger, driver: AdapterDriver) -> None:
    turns = [Turn("user", _QUESTION), Turn("assistant", _ANSWER)]
    await driver.write(ledger, "trip", turns, key="1")
    # It may be refused as a conflict, and has to be one write all the same.
    with contextlib.suppress(*driver.conflicts):
        await driver.write(ledger, "trip", turns, key="1")
    expect(turns, await driver.read(ledger, "trip"), f"{driver.name}: a write that is repeated is one write")


async def _check_other_ledgers(ledger: Ledger, driver: AdapterDriver) -> None:
    """An `AsyncLedger`, and a location that is opened anew."""
    del ledger
    turns = [Turn("user", _QUESTION), Turn("assistant", _ANSWER)]
    with tempfile.TemporaryDirectory(prefix="chatledger-check-") as folder:
        location = f"sqlite:///{folder}/log.db"
        async with open_async(location, index=f"{folder}/index") as opened:
            await driver.write(opened, "trip", turns[:1], key="1")
            expect(turns[:1], await driver.read(opened, "trip"), f"{driver.name}: it works with an AsyncLedger")
        with open_ledger(location, index=f"{folder}/index") as again:
            await driver.write(again, "trip", turns[1:], key="2")
            expect(
                turns,
                await driver.read(again, "trip"),
                f"{driver.name}: what was written is there when the ledger is opened again",
            )


async def _check_branches(ledger: Ledger, driver: AdapterDriver) -> None:
    turns = [Turn("user", _QUESTION), Turn("assistant", _ANSWER)]
    await driver.write(ledger, "trip", turns, key="1")
    chat_id = driver.chat_id("trip")
    stored = ledger.get_messages(chat_id)
    fork = ledger.fork(chat_id, stored[0].id)
    expect(turns[:1], await driver.read(ledger, "trip"), f"{driver.name}: it reads the active branch")
    other = Turn("assistant", "Ask the barber in Rua da Bica.")
    await driver.write(ledger, "trip", [other], key="2")
    expect([turns[0], other], await driver.read(ledger, "trip"), f"{driver.name}: it goes on with the active branch")
    expect(stored, ledger.get_messages(chat_id, branch="main"), f"{driver.name}: the other branch stays as it was")
    active = ledger.get_active_branch(chat_id)
    active_name = None if active is None else active.name
    expect(fork.name, active_name, f"{driver.name}: the active branch stays active")


async def _check_concurrent(ledger: Ledger, driver: AdapterDriver) -> None:
    await driver.write(ledger, "trip", [Turn("user", _QUESTION)], key="first")

    async def write(number: int) -> None:
        turn = Turn("user", f"question {number}")
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(*driver.conflicts):
                return await driver.write(ledger, "trip", [turn], key=f"w{number}")
            await asyncio.sleep(random.uniform(0, 0.005))  # noqa: S311 - spreads writers, hides nothing
        msg = f"{driver.name}: a writer lost {_ATTEMPTS} races in a row"
        raise AssertionError(msg)

    await asyncio.gather(*map(write, range(_WRITERS)))
    texts = sorted(turn.text for turn in await driver.read(ledger, "trip"))
    expect(
        sorted([_QUESTION, *(f"question {number}" for number in range(_WRITERS))]),
        texts,
        f"{driver.name}: of writers at the same time none is lost or repeated",
    )


async def _check_cancelled(ledger: Ledger, driver: AdapterDriver) -> None:
    written: list[Turn] = []
    pair = [Turn("user", "And on Sundays?"), Turn("assistant", "Then too.")]
    for number in range(12):
        # Each a little later than the one before: earlier than the commit, in it, or after it.
        task = asyncio.create_task(driver.write(ledger, "trip", pair, key=str(number)))
        await asyncio.sleep(number * 0.0005)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        turns = await driver.read(ledger, "trip")
        require(
            turns in (written, written + pair),
            f"{driver.name}: a write that is cancelled is there as a whole or not at all, not {turns[len(written) :]!r}",
        )
        written = turns
    last = [Turn("user", "Thanks!")]
    await driver.write(ledger, "trip", last, key="last")
    expect(
        written + last, await driver.read(ledger, "trip"), f"{driver.name}: after a cancelled write the next one works"
    )


async def _check_deleted(ledger: Ledger, driver: AdapterDriver) -> None:
    await driver.write(ledger, "trip", [Turn("user", _QUESTION)], key="1")
    await driver.write(ledger, "other", [Turn("user", "Another one")], key="2")
    await driver.delete(ledger, "trip")
    expect([], await driver.read(ledger, "trip"), f"{driver.name}: a deleted conversation is empty")
    expect([], ledger.search("fado"), f"{driver.name}: search finds nothing of it")
    contents = [repr(recorded.to_dict()) for recorded in ledger.history()]
    require(not any("fado" in content for content in contents), f"{driver.name}: nothing of it stays on the log")
    expect([Turn("user", "Another one")], await driver.read(ledger, "other"), f"{driver.name}: others stay")
    await driver.delete(ledger, "trip")  # what is not there can be deleted again


async def _check_users(ledger: Ledger, driver: AdapterDriver) -> None:
    ada, bob = ledger.for_user("ada"), ledger.for_user("bob")
    await driver.write(ada, "trip", [Turn("user", _QUESTION)], key="1")
    chat = ledger.get_chat(driver.chat_id("trip"))
    expect("ada", None if chat is None else chat.user_id, f"{driver.name}: in for_user a conversation is that user's")
    expect([], await driver.read(bob, "trip"), f"{driver.name}: another user's conversation is not there")
    # Whether a framework's call fails or does nothing is its own affair; what counts is that nothing comes of it.
    with contextlib.suppress(Exception):
        await driver.delete(bob, "trip")
    with contextlib.suppress(Exception):
        await driver.write(bob, "trip", [Turn("user", "Mine!")], key="2")
    expect(
        [Turn("user", _QUESTION)],
        await driver.read(ada, "trip"),
        f"{driver.name}: nobody else changes it or deletes it",
    )


async def _check_forms(ledger: Ledger, driver: AdapterDriver) -> None:
    """Check that a step of two calls, with an image and an error as results, is read and gone on with, whatever form it came in."""
    for form in _FORMS:
        name, first, last = f"trip {form}", Turn("user", _QUESTION), Turn("user", "Thanks!")
        await driver.write(ledger, name, [first], key=f"{form}-1")
        chat_id, shown = driver.chat_id(name), f"{driver.name}: a chain in the form {form!r}"
        step = [
            Message(
                id=f"{form}-{place}",
                chat_id=chat_id,
                parent_id=None,
                name=role,
                data={"role": role, "content": blocks},
                form="anthropic",
                created_at=0,
            )
            for place, (role, blocks) in enumerate(_STEP)
        ]
        stored = ledger.append(chat_id, translate(step, form).messages, form=form)
        texts = [first.text, "I look.", _ANSWER]
        expect(texts, _in_order(texts, await driver.read(ledger, name)), f"{shown} is read")
        await driver.write(ledger, name, [last], key=f"{form}-2")
        texts.append(last.text)
        expect(texts, _in_order(texts, await driver.read(ledger, name)), f"{shown} goes on")
        after = ledger.get_messages(chat_id)[1 : 1 + len(stored)]
        data = [message.data for message in stored]
        expect(data, [message.data for message in after], f"{shown} stays as it came")
        position = ledger.position
        await driver.read(ledger, name)
        expect(position, ledger.position, f"{driver.name}: reading writes nothing")


async def _check_odd(ledger: Ledger, driver: ValuesDriver, name: str, value: Any) -> None:
    """Check that a message comes back with what JSON cannot say, or does not know; or that it is lost where the driver says so."""
    failure: Exception | None = None
    try:
        await driver.save_values(ledger, "odd", [value])
    except Exception as error:  # noqa: BLE001 - whatever the framework says
        failure = error
    loaded = [] if failure else await driver.load_values(ledger, "odd")
    # A driver whose `message_with` leaves the value out keeps nothing.
    is_in = _written({"odd": {_UNKNOWN: _FIELD, **_ODD}[name]}) in _written(value)
    is_kept = is_in and _written(loaded) == _written([value])
    if name in driver.losses:
        require(not is_kept, f"{driver.name}: it keeps {name}, and losses says that it cannot: {driver.losses[name]}")
    else:
        fault = f"it raised {failure!r}" if failure else f"expected {[value]!r}, not {loaded!r}"
        require(is_kept, f"{driver.name}: messages come back with {name}: {fault}")
        ledger.verify()


async def _check_saved_again(ledger: Ledger, driver: ValuesDriver, chain: Sequence[Any]) -> None:
    await driver.save_values(ledger, "kept", chain)
    loaded = await driver.load_values(ledger, "kept")
    rule = f"{driver.name}: messages come back as they were"
    require(_written(loaded) == _written(chain), f"{rule}: expected {chain!r}, not {loaded!r}")
    chat_id, position = driver.chat_id("kept"), ledger.position
    stored, branches = ledger.get_messages(chat_id), ledger.list_branches(chat_id)
    forms = {message.form for message in stored}
    expect({driver.form}, forms, f"{driver.name}: messages are stored in the form of the framework")
    await driver.save_values(ledger, "kept", loaded)
    rule = f"{driver.name}: saving what was loaded writes nothing"
    expect((stored, branches), (ledger.get_messages(chat_id), ledger.list_branches(chat_id)), rule)
    expect(driver.notes_saves, ledger.position > position, f"{rule}, but a note where the framework makes one")


def _written(values: Any) -> str:
    return json.dumps(values, sort_keys=True)  # as text, in which NaN is equal to itself


async def _check_shared(ledger: Ledger, writer: AdapterDriver, reader: AdapterDriver) -> None:
    """Check that another adapter reads, branches and goes on with what one wrote."""
    names = f"written by {writer.name}, read by {reader.name}"
    turns = [Turn("user", _QUESTION), Turn("assistant", _ANSWER)]
    await writer.write(ledger, "trip", turns, key="1")
    copied = reader.chat_id("trip")
    if copied != writer.chat_id("trip"):
        ledger.import_chat(ledger.export_chat(writer.chat_id("trip")), chat_id=copied)
    expect(turns, await reader.read(ledger, "trip"), f"{names}: the same turns")
    stored = ledger.get_messages(copied)
    ledger.fork(copied, stored[0].id)
    other = Turn("assistant", "Ask the barber in Rua da Bica.")
    await reader.write(ledger, "trip", [other], key="2")
    expect([turns[0], other], await reader.read(ledger, "trip"), f"{names}: it goes on with a branch")
    expect(stored, ledger.get_messages(copied, branch="main"), f"{names}: the other branch stays as it was")


_CHECKS: Final = (
    _check_saved,
    _check_repeated,
    _check_other_ledgers,
    _check_branches,
    _check_concurrent,
    _check_cancelled,
    _check_deleted,
    _check_users,
    _check_forms,
)


def check_adapter_killed(driver: str, *, rounds: int = 3, seed: int = 0) -> None:
    """
    Check that what an adapter acknowledged outlives its process, which is killed in the middle of writing, as a whole.

    Args:
        driver: Where a process of its own finds the driver: `module:name`, or `path/to/file.py:name`. Its call makes one.
        rounds: The number of processes that are killed.
        seed: Of the moments.

    Raises:
        AssertionError: A write is lost, or half of one is there.
    """
    source = random.Random(seed)  # noqa: S311 - moments, no secrets
    with tempfile.TemporaryDirectory(prefix="chatledger-check-") as folder:
        for number in range(rounds):
            after_s = source.uniform(0.02, 0.3)
            command = [sys.executable, "-m", __name__, driver, folder, str(number)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own module
                assert process.stdout is not None, "it is a pipe"
                process.stdout.readline()  # it has begun to write
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(after_s)
                process.kill()
        loaded = _load(driver)
        with open_ledger(f"sqlite:///{folder}/log.db", index=f"{folder}/index") as ledger:
            texts = [turn.text for turn in asyncio.run(loaded.read(ledger, "trip"))]
            ledger.verify()
        # A key is told after its write returned: whatever is told was acknowledged.
        told = Path(folder, "told").read_text(encoding="utf-8").split()
        pairs = texts[::2]
        expect(
            [f"{text}-answered" for text in pairs],
            texts[1::2],
            f"{loaded.name}: no half of a write is there after a kill",
        )
        missing = [key for key in told if key not in pairs]
        expect([], missing, f"{loaded.name}: what was acknowledged is there after a kill")
        expect(len(set(pairs)), len(pairs), f"{loaded.name}: nothing is there twice after a kill")


def _load(driver: str) -> AdapterDriver:
    import importlib
    import importlib.util

    module, _, name = driver.rpartition(":")
    if module.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(module).stem, module)
        assert spec is not None, "a file of Python"
        assert spec.loader is not None, "a file of Python"
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    else:
        loaded = importlib.import_module(module)
    adapter: AdapterDriver = getattr(loaded, name)()
    return adapter


async def _write_until_killed(driver: AdapterDriver, folder: str, number: str, told: IO[str]) -> None:
    with open_ledger(f"sqlite:///{folder}/log.db", index=f"{folder}/index") as ledger:
        for count in itertools.count():
            key = f"{number}-{count}"
            await driver.write(ledger, "trip", [Turn("user", key), Turn("assistant", f"{key}-answered")], key=key)
            told.write(f"{key}\n")
            told.flush()
            if not count:
                print("begun", flush=True)  # noqa: T201 - for the process that kills this one


def _in_order(texts: Sequence[str], turns: Sequence[Turn]) -> list[str]:
    """Return those texts that turns have, each as often as it is there, in order; a turn may have several."""
    return re.findall("|".join(map(re.escape, texts)), "\n".join(turn.text for turn in turns))


def _turns(messages: Sequence[Message]) -> list[Turn]:
    return [Turn(message.name, message.text) for message in messages]


if __name__ == "__main__":
    with Path(sys.argv[2], "told").open("a", encoding="utf-8") as told_file:
        asyncio.run(_write_until_killed(_load(sys.argv[1]), sys.argv[2], sys.argv[3], told_file))
