"""Weights from fp16 to stored forms and back: what each form holds, bit for bit, and which chips stream it."""
