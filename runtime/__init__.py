"""What tallow is besides what the spec says: written by hand, and mounted in the package as `tallow.runtime`."""
