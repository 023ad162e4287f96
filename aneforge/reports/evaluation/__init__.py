"""A model on a whole data set: accuracy on each chip with its interval, what differs, and which samples show it.

``data`` reads samples one at a time, ``metrics`` scores them, ``records`` keeps the scores in a folder,
``evaluate`` runs them, ``result`` is the answer, and ``explained`` names the layer behind the worst samples.
"""

from __future__ import annotations
