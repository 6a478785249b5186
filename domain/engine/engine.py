"""The context engine whole."""

from .branching import Branching
from .chat import ChatUpdates
from .inspecting import Inspecting
from .saving import Saving


class Engine(Saving, Inspecting, Branching, ChatUpdates):
    """
    A context engine over a port. Its methods are awaited; over a port that answers at once they never suspend.

    Made for one task or thread at a time, as a file is; several engines may work on one chat.
    """
