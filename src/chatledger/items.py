"""Items: JSON objects under a namespace and a key, with all their versions, such as what an agent remembers."""

from chatledger.infra.ledger.items.async_item_store import AsyncItemReader, AsyncItemStore
from chatledger.infra.ledger.items.item_store import Item, ItemPut, ItemReader, ItemStore, ItemVersion

__all__ = ["AsyncItemReader", "AsyncItemStore", "Item", "ItemPut", "ItemReader", "ItemStore", "ItemVersion"]
