"""How kernels move memory, as machine code shows: 16 bytes at a time, once, and through words of shared memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

import own_spec
import pytest

from .conftest import Machine, machine_code, names

SPEC = own_spec.read()
BYTES = {dtype.name: dtype.bytes for dtype in SPEC.dtypes}
RESULTS = {functor.name: functor.result for kind in SPEC.functors.values() for functor in kind.functors}
# The dtype of the parts of each complex one; of others it is itself.
PARTS = {dtype.name: dtype.real or dtype.name for dtype in SPEC.dtypes}
# Without --full, one kernel of so many is looked at.
SAMPLE = {"unary": 36, "binary": 36, "fill": 1}
# 16 bytes, as GCN and CDNA call them, and as RDNA 3 and later do.
WHOLE = r"(?:dwordx4|b128)\b"
# What ends a block of instructions that run together.
BRANCH = re.compile(r"\bs_c?branch\w*")


def widths(kernel: str) -> tuple[int, int]:
    """The bytes of an element that a kernel loads, 0 for none, and of one that it stores."""
    op, _, last = kernel.removesuffix("_contiguous").removesuffix("_number").rpartition("_")
    if op == "fill":
        return 0, int(last.removeprefix("b")) // 8
    if op.startswith("to_dtype_"):
        return BYTES[last], BYTES[op.removeprefix("to_dtype_")]
    result = RESULTS[op] or last
    return BYTES[last], BYTES[PARTS[last] if result == "real" else result]


# Most of a compiler's time goes into headers, so the targets share the families of maps.
SHARED = [("gfx90a", "unary"), ("gfx1100", "binary"), ("gfx90a", "fill"), ("gfx1100", "fill")]


@pytest.mark.parametrize(
    ("target", "family"),
    [
        pytest.param(*each, marks=[] if each in SHARED else pytest.mark.full)
        for each in product(("gfx90a", "gfx1100"), SAMPLE)
    ],
)
def test_whole_packs_are_moved(
    machine: Machine,
    reduced: Callable[[str, Iterable[str]], Path],
    tmp_path: Path,
    full: bool,
    target: str,
    family: str,
) -> None:
    contiguous = [name for name in names(family) if name.endswith("_contiguous")]
    kernels = contiguous[:: 1 if full else SAMPLE[family]]
    result = machine.compile(target, reduced(family, kernels), tmp_path)
    code = machine_code(result.file)
    assert set(kernels) <= code.keys()
    for kernel in kernels:
        loaded, stored = widths(kernel)
        # The narrower side of a conversion has as many elements, and so fewer bytes.
        if loaded >= stored:
            assert re.search(rf"\bglobal_load_{WHOLE}", code[kernel]), kernel
            # Beside a whole pack, no element of it is loaded once more.
            for block in BRANCH.split(code[kernel]):
                if re.search(rf"\bglobal_load_{WHOLE}", block):
                    assert not re.search(rf"\bglobal_load_(?!{WHOLE})", block), kernel
        if stored >= loaded:
            assert re.search(rf"\bglobal_store_{WHOLE}", code[kernel]), kernel


@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_tiles_of_narrow_elements_are_words_of_shared_memory(
    machine: Machine, reduced: Callable[[str, Iterable[str]], Path], tmp_path: Path, target: str
) -> None:
    kernels = ["copy_b8_transposed", "copy_b16_transposed"]
    code = machine_code(machine.compile(target, reduced("copy", kernels), tmp_path).file)
    for kernel in kernels:
        assert re.search(r"\bds_(?:write|store)(?:2|_2addr)?_b32\b", code[kernel]), kernel
        assert not re.search(r"\bds_(?:read|load)_(?:[ui](?:8|16)|b8|b16)\b", code[kernel]), kernel
        # Elements are written one by one only at the edge of a tensor, where a thread has one pack at a time.
        narrow = re.findall(r"\bds_(?:write|store)_b(?:8|16)\w*", code[kernel])
        assert len(narrow) <= 4 // (int(kernel[6:].partition("_")[0]) // 8), kernel


@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_narrow_states_are_words_of_shared_memory(
    machine: Machine, reduced: Callable[[str, Iterable[str]], Path], tmp_path: Path, target: str
) -> None:
    code = machine_code(machine.compile(target, reduced("reduce", ["sum_u8_columns"]), tmp_path).file)
    assert re.search(r"\bds_(?:write|store)\w*_b32\b", code["sum_u8_columns"])
    assert not re.search(r"\bds_(?:read|load|write|store)_(?:[ui](?:8|16)|b8|b16)", code["sum_u8_columns"])
