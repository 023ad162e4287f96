"""What people type: the name, the arguments, the options and the help of every command, a module for each group.

A declaration calls the module of its command (``aneforge/cli/check.py`` for ``aneforge check``), which is imported
when the command runs: the program starts, helps and completes without NumPy and without the library.
"""
