"""Feeds: the events of a log as they come, and the positions that their readers have reached."""

from .feed import AsyncFeed, Cursor, Feed
from .filter import TOPICS, FeedFilter, check_share
from .members import WHOLE, FeedInfo, acknowledge, claim, drop_feed, list_feeds

__all__ = [
    "TOPICS",
    "WHOLE",
    "AsyncFeed",
    "Cursor",
    "Feed",
    "FeedFilter",
    "FeedInfo",
    "acknowledge",
    "check_share",
    "claim",
    "drop_feed",
    "list_feeds",
]
