"""CrewAI: its checkpoints and the states of its flows on a ledger."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
# crewai is not among the development dependencies, with some of which it conflicts.
