"""What decoding bytes raises that are not what they should be."""

from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The second for text that is no UTF-8, the third for what is nested more deeply than Python recurses."""
