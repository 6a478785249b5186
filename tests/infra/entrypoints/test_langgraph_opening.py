"""Making a saver: on a ledger of either kind, or at a location; and what is refused, in words."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command
from tests.support.langgraph_programs import Point, asking

import chatledger
from chatledger.domain.errors import ConfigurationError, LedgerClosedError
from chatledger.langgraph import LedgerSaver

CONFIG: Any = {"configurable": {"thread_id": "t"}}


async def talk(saver: Any) -> Any:
    """A run that waits for an answer, gets it, and is looked at."""
    graph = asking(saver)
    await graph.ainvoke({"log": ["go"]}, CONFIG)
    await graph.ainvoke(Command(resume="1"), CONFIG)
    await graph.ainvoke(Command(resume="2"), CONFIG)
    return [one.values async for one in graph.aget_state_history(CONFIG)]


class TestAsyncLedger:
    @pytest.mark.parametrize("is_opened", [True, False])
    def test_it_is_shared_with_the_saver(self, *, is_opened: bool) -> None:
        """Also one that opens on first use: the saver opens it in a thread of its own then."""

        async def run() -> Any:
            async with chatledger.open_async("memory:") as opened:
                ledger = opened if is_opened else chatledger.open_async("memory:")
                found = await talk(LedgerSaver(ledger))
                threads = await ledger.run(lambda blocking: LedgerSaver(blocking).threads())
                assert [one.thread_id for one in threads] == ["t"]
                await ledger.close()
                return found

        assert asyncio.run(run()) == asyncio.run(talk(InMemorySaver()))

    def test_a_user_s_is_limited_to_the_user(self) -> None:
        async def run() -> None:
            async with chatledger.open_async("memory:") as ledger:
                await talk(LedgerSaver(ledger.for_user("ada")))
                assert await LedgerSaver(ledger.for_user("bob")).aget_tuple(CONFIG) is None
                assert [one.owner for one in await LedgerSaver(ledger).athreads()] == ["ada"]

        asyncio.run(run())

    def test_the_blocking_methods_work_on_it_too(self) -> None:
        ledger = chatledger.open_async("memory:")
        found = [
            asking(saver).invoke({"log": ["go"]}, CONFIG)["log"] for saver in (LedgerSaver(ledger), InMemorySaver())
        ]
        asyncio.run(ledger.close())

        assert found[0] == found[1]

    def test_a_closed_one_says_so(self) -> None:
        async def run() -> None:
            async with chatledger.open_async("memory:") as ledger:
                saver = LedgerSaver(ledger)
            with pytest.raises(LedgerClosedError):
                await saver.aget_tuple(CONFIG)

        asyncio.run(run())


class TestLocations:
    def test_what_one_saver_stored_another_one_finds(self, tmp_path: Path) -> None:
        """With `with` and with `async with`, whose ledgers are closed at the end."""
        location = f"sqlite:///{tmp_path}/t.db"
        with LedgerSaver.from_conn_string(location) as first:
            asking(first).invoke({"log": ["go"]}, CONFIG)

        async def go_on() -> Any:
            async with LedgerSaver.from_conn_string(location, by_assistant=False) as saver:
                ended = await asking(saver).ainvoke(Command(resume="1"), CONFIG)
                return ended, saver

        ended, second = asyncio.run(go_on())
        assert ended["log"][0] == "go"
        for saver in (first, second):
            with pytest.raises(LedgerClosedError):
                saver.get_tuple(CONFIG)

    def test_the_options_are_those_of_the_saver_and_of_the_ledger(self, tmp_path: Path) -> None:
        with LedgerSaver.from_conn_string(
            tmp_path / "d", allow=[Point], durability="fast", index=tmp_path / "i"
        ) as saver:
            assert saver.serde.loads_typed(saver.serde.dumps_typed(Point(1))) == Point(1)
        assert (tmp_path / "i").is_dir()

    def test_an_error_inside_goes_through_and_closes(self) -> None:
        with pytest.raises(ZeroDivisionError), LedgerSaver.from_conn_string("memory:") as saver:
            raise ZeroDivisionError
        with pytest.raises(LedgerClosedError):
            saver.get_tuple(CONFIG)

    @pytest.mark.parametrize("options", [{"durability": "never"}, {"allow": ["x"]}, {"encryption": "key"}])
    def test_wrong_options_are_refused_before_anything_is_made(self, tmp_path: Path, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            LedgerSaver.from_conn_string(tmp_path / "none", **options)
        assert not (tmp_path / "none").exists()


class TestRefusals:
    @pytest.mark.parametrize("wrong", [None, "./chatledger-data", Path(), 1, InMemorySaver()])
    def test_what_is_no_ledger(self, wrong: Any) -> None:
        with pytest.raises(
            ConfigurationError, match=r"needs a Ledger or an AsyncLedger, not .*from_conn_string\(location\)"
        ):
            LedgerSaver(wrong)

    @pytest.mark.parametrize("wrong", ["x", ["x"], [("module", "Name")], Point, 3, [Point, None], [Point(1)]])
    def test_what_is_no_class(self, ledger: chatledger.Ledger, wrong: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"allow takes a list of classes, as in allow=\[Plan\], not "):
            LedgerSaver(ledger, allow=wrong)

    def test_classes_for_a_serializer_that_would_not_heed_them(self, ledger: chatledger.Ledger) -> None:
        with pytest.raises(ConfigurationError, match="default serializer"):
            LedgerSaver(ledger, serde=JsonPlusSerializer(), allow=[Point])
