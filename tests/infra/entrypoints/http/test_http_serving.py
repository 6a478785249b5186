"""Serving on a socket: what all contracts have in common."""

import time
from typing import Any

import httpx
import pytest
from tests.support.http_world import serving

import chatledger
from chatledger.errors import ConfigurationError
from chatledger.server import create_app


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_headers() -> None:
    seconds: list[float] = []
    with serving(create_app(chatledger.open_async("memory:"))) as url, httpx.Client(base_url=url) as http:
        for _ in range(10):
            start = time.perf_counter()
            assert http.get("/openapi.json").status_code == 200
            seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.03  # a delayed acknowledgement takes 40 ms


def test_only_what_is_enabled_is_served() -> None:
    app = create_app(chatledger.open_async("memory:"), enable=["langgraph"])
    with serving(app) as url, httpx.Client(base_url=url) as http:
        assert http.get("/ok").status_code == 200
        assert http.get("/api/v1/chats").status_code == 404
    with pytest.raises(ConfigurationError, match="cannot serve gopher"):
        create_app(chatledger.open_async("memory:"), enable=["gopher"])


def test_a_ledger_that_is_open_is_no_location() -> None:
    wrong: Any = chatledger.Ledger
    with pytest.raises(
        ConfigurationError, match=r"takes the location of a ledger, or chatledger\.open_async\(location\), not type"
    ):
        create_app(wrong)
