"""How fast chatledger is, next to what else one could use, measured in the same run. `python -m benchmarks --help`."""
