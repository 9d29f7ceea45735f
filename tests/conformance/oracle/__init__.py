"""The ops' definitions, written by hand in NumPy: extended precision, exact integers, and no line of the spec read.

Floating-point values are handed around as np.longdouble arrays ("extended"), which hold every f64 and every i64
exactly where the platform's long double has a significand of 64 bits or more.
"""
