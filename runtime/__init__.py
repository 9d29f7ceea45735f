"""The hand-written part of tallow, which does not depend on the spec; mounted in the package as `tallow.runtime`."""
