"""What hot paths ask for all at once, because it is rare: a fork that lost the GPU, captures, and profilers."""

required = False
"""Whether this process was forked from one that had opened a GPU, or a thread captures a graph, or replays are
watched."""
