"""The version of this package: results and files say which one they come from."""

__version__ = "0.1.0"
