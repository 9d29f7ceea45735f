"""How ops become launches: which kernel, on how many blocks, with which arguments."""
