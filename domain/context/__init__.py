"""The context that an agent works with: fragments, messages and their codecs, and what a save of them decides."""
