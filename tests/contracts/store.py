"""
The contract of a ledger, wherever its log is: the operations of the requirements (PS-1), history and feed included.

The module of a subclass gives the fixture `world`. All implementations have to pass all of it; nothing is optional.
"""

from tests.contracts.store_chats import ChatContract
from tests.contracts.store_log import LogContract
from tests.contracts.store_messages import MessageContract
from tests.contracts.store_pointers import PointerContract


class StoreContract(ChatContract, MessageContract, PointerContract, LogContract):
    """Each test uses chats and users of its own, so that all share one ledger."""
