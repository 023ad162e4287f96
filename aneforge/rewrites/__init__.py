"""Equivalent forms of a graph: what a rewrite is, where it fits, and the forms that tuning and cures share."""
