"""The engine's language: backend ops, their text, a verifier and their meaning in float64; native layers."""
