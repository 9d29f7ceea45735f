"""What hot paths ask for all at once, because it is rare: a fork that lost the GPU, and captures under way."""

required = False
"""Whether this process was forked from one that had opened a GPU, or a thread of it captures a graph."""
