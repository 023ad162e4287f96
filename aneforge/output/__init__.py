"""How results are written, whatever they are: aligned text, JSON, whole files, and SVG by hand."""
