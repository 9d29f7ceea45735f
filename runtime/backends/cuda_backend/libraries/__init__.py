"""The vendor's libraries: each module calls one, and derives from a class of `gpu_backend.libraries`."""
