"""Google's Agent Development Kit (ADK): its session service on a ledger."""
