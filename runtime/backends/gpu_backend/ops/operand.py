"""The operands of ops on GPUs."""

from ....program.operand import Operand

__all__ = ["Operand"]
