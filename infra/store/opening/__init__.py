"""Opening: from a location and options to a store."""
