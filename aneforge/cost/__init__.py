"""How long work takes on a chip: a function of shapes, encodings and constants fitted to public measurements."""
