"""What numbers a program can give on a chip: ranges, losses, and where two chips differ.

``analysis`` is the one answer to whether a node can lose a number. The functions that ask about a model are those of
:mod:`aneforge.study`.
"""
