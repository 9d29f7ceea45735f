"""Vendor libraries with interfaces that vendors share: BLAS, FFT, decompositions and collectives.

A vendor derives a class from one of these and adds its calls. They build on `driver` and `memory`.
"""
