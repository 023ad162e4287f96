"""One importer for all formats: records in, the graph out.

``importer`` walks the records, ``ports`` makes inputs, outputs and states, ``control`` settles branches and loops,
``language`` says what a format adds, and ``host`` writes down what the host computes.
"""
