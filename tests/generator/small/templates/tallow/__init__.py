"""A package as small as a package can be."""
