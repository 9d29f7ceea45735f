"""Device memory: the caching allocator, the slices it hands out, storages, and memory that peers share.

It builds on `driver`. Nothing here launches kernels or knows of ops.
"""
