"""From a graph to a program: lowering and the four phases, one folder a phase, one file a pass or a few of a kind."""
