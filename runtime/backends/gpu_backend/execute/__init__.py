"""How work reaches a device: kernels by name, recorded calls, graphs, and the record of index errors.

It builds on `driver`, `memory` and `libraries`. `ops` decide what is launched; nothing here depends on a particular op.
"""
