"""Core AI: assets of Apple's beta package ``coreai-core``."""
