"""The operands of ops on GPUs."""

from ....program.values import Operand

__all__ = ["Operand"]
