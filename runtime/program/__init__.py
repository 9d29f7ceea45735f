"""Programs: how a call runs, as data.

An op of a backend is a function `op(build, operand, ...)` of dtypes, layouts and facts of the device. It appends steps
to a program and touches no device. What differs between runs is a `Value`: an address, a number, the error record.
Executors of the backends run programs; nothing here knows a backend.
"""
