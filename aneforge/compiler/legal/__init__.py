"""Phase 0: what a target takes unchanged, what replaces the rest, and what it refuses."""
