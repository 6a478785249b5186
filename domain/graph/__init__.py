"""The state of an agent's graph: its ready-made schema, the reducers that change it, and what is observed of a change."""
