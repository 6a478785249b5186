"""All kinds of events there are."""

from .agents.events import AGENT_BODIES
from .events import CHAT_BODIES, Body
from .graph_state.events import STATE_BODIES
from .runs.events import RUN_BODIES

BODIES: tuple[type[Body], ...] = (*CHAT_BODIES, *RUN_BODIES, *AGENT_BODIES, *STATE_BODIES)
