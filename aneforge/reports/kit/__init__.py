"""A kit of experiments for a Mac or a phone: written, run by somebody who has the chip, judged, and applied.

``experiments.json`` is what is asked; ``predict`` says what each hypothesis would show; ``write`` makes the folder
that is run; ``results`` and ``judge`` read what comes back; ``rows``, ``score``, ``profile`` and ``apply`` use it.
"""
