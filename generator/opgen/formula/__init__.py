"""Formulas: what ops compute, over operands, parameters and the primitives of spec/primitives.yaml.

A formula is an expression of Python's grammar: names, numbers, arithmetic, comparisons and calls of primitives. It is
parsed into nodes, checked for the kinds of its parts, differentiated, simplified, and lowered to the languages in which
the primitives have implementations.
"""
