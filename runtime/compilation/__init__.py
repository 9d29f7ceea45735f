"""The compilation of the CPU's kernels: in a build of the package, or in the background of programs.

The modules import nothing but the standard library and the modules next to them, since a build has no NumPy.
"""
