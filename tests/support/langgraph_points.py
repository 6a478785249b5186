"""Checkpoints of LangGraph as tests compare them."""

# White-box: what savers keep is looked at, and some of their methods are replaced.
# pyright: reportPrivateUsage=false, reportIncompatibleMethodOverride=false, reportUnknownLambdaType=false

import dataclasses


@dataclasses.dataclass
class Point:
    """A class of the user's."""

    x: int
