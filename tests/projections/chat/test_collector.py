"""The thresholds of the garbage collector while long chains are decoded, and after."""

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from chatledger.projections.chat.pages import WORTH_FROM, only_new_collected


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    """The thresholds of the collector, which are set back whatever a test does."""
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_old_containers_are_left_alone_meanwhile(thresholds: tuple[int, int, int]) -> None:
    """No full collection begins, however many containers are made; new ones are looked at, so that garbage goes."""
    collections: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            collections.append(info["generation"])

    gc.callbacks.append(note)
    try:
        with only_new_collected(WORTH_FROM):
            made = [[number] for number in range(200_000)]
            meanwhile = set(collections)
    finally:
        gc.callbacks.remove(note)

    assert 200_000 == len(made)
    assert {1} == meanwhile
    assert thresholds == gc.get_threshold()


def test_few_messages_are_not_worth_it(thresholds: tuple[int, int, int]) -> None:
    with only_new_collected(WORTH_FROM - 1):
        assert thresholds == gc.get_threshold()


def test_it_ends_with_an_error(thresholds: tuple[int, int, int]) -> None:
    with pytest.raises(ZeroDivisionError), only_new_collected(WORTH_FROM):
        _ = 1 / 0
    assert thresholds == gc.get_threshold()


def test_the_last_of_several_threads_sets_them_back(thresholds: tuple[int, int, int]) -> None:
    """Reads that overlap, in whatever order they end."""
    entered, leave = threading.Event(), threading.Event()

    def read() -> None:
        with only_new_collected(WORTH_FROM):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=read)
    with only_new_collected(WORTH_FROM):
        meanwhile = gc.get_threshold()
        thread.start()
        assert entered.wait(10)
    assert meanwhile == gc.get_threshold() != thresholds
    leave.set()
    thread.join()
    assert thresholds == gc.get_threshold()


def test_what_somebody_else_sets_stays() -> None:
    """A program that sets its thresholds in the meantime keeps them."""
    with only_new_collected(WORTH_FROM):
        gc.set_threshold(123, 4, 5)
    assert (123, 4, 5) == gc.get_threshold()


def test_a_forked_process_has_those_from_before(thresholds: tuple[int, int, int]) -> None:
    """The thread that decodes is not there."""
    with only_new_collected(WORTH_FROM):
        child = os.fork()
        if not child:
            os._exit(0 if gc.get_threshold() == thresholds else 1)
        assert 0 == os.waitpid(child, 0)[1]
