"""Block-quantized weights in GGML's formats, in Candle's names: `QTensor` and `QMatMul`."""

from ...quantized_matmul import QMatMul
from .tensor import QTensor

__all__ = ["QMatMul", "QTensor"]
