"""The state of an agent's graph, where it meets the outside: the clock, the program's log, and those who watch."""
