"""Phase 0: what a target takes as it stands, what stands in for the rest, and what it refuses."""
