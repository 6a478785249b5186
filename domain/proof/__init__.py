"""Proof that nothing was changed: anchors, Merkle trees, and what a verification checks. Pure."""
