"""Damaged files for every reader of the command line: what ``make fuzz`` runs."""
