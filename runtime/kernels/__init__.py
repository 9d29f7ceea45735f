"""The sources of the kernels, and what their launchers know of them."""
