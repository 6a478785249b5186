"""Full-text search as pure functions: what the terms of a text are, what a query asks for, and which passage answers it."""
