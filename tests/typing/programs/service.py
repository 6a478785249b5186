"""An asynchronous service: it stores, searches, follows and looks back."""

import asyncio
from typing import assert_type

import chatledger
from chatledger import AsyncLedger, Chat, Message, Recorded, SearchHits, user


class Conversations:
    def __init__(self, ledger: AsyncLedger) -> None:
        self.ledger = ledger

    async def post(self, chat_id: str, text: str) -> list[Message]:
        if await self.ledger.get_chat(chat_id) is None:
            assert_type(await self.ledger.create_chat(chat_id, "ada"), Chat)
        return await self.ledger.append(chat_id, [user(text)])

    async def search(self, words: str) -> list[str]:
        hits = await self.ledger.search(words, limit=5)
        assert_type(hits, SearchHits)
        return [hit.message.text for hit in hits]

    async def events(self, chat_id: str) -> list[Recorded]:
        return [recorded async for recorded in self.ledger.history(chat_id)]


async def main() -> None:
    async with chatledger.open_async("memory:") as ledger:
        conversations = Conversations(ledger)
        assert_type(await conversations.post("trip", "Where to in May?"), list[Message])
        print(await conversations.search("may"), len(await conversations.events("trip")))
        async with ledger.feed(follow=False) as feed:
            async for recorded in feed:
                print(recorded.position + 1, recorded.type)
        async with ledger.as_of(1) as past:
            assert_type(await past.get_messages("trip"), list[Message])


asyncio.run(main())
