"""The log of a ledger: an event recorder of the eventsourcing library, with what a ledger needs besides."""
