"""One flag that hot paths read for rare states: a fork that lost the GPU, captures, and profilers."""

required = False
"""Whether this process was forked from one that had opened a GPU, or a thread captures a graph, or replays are
tracked."""
