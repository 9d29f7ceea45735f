"""Launches of kernels for the host: the language of their expressions, and the ops that come of them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping

import pytest
from opgen.launch_ops import ATTRIBUTES, MODULE, buffer, host_package
from opgen.model import Spec
from opgen.project import read_spec_alone
from opgen.terms import DIMS, DTYPE, FLAG, NULL, NUMBER, OPERAND, OPTIONAL, Scope, TermError, Typed
from tallow.kernels import host_arguments, host_launches

from .project import REPOSITORY

NAMES: Mapping[str, tuple[str, str]] = {
    "self": ("x", OPERAND),
    "bias": ("bias", OPERAND + OPTIONAL),
    "dim": ("dim", NUMBER),
    "is_causal": ("is_causal", FLAG),
    "stride": ("stride", DIMS),
    "f32": ("DType.F32", DTYPE),
    "null": ("None", NULL),
    "of_bias": ("None", NULL),
}


def scope() -> Scope:
    names = {name: Typed(ast.parse(text, mode="eval").body, kind) for name, (text, kind) in NAMES.items()}

    def flaw(module: str, name: str, _: int) -> str | None:
        return None if module == "index" else f"no function {module}.{name}; write it"

    return Scope(names, ATTRIBUTES, buffer, flaw)


@pytest.fixture(scope="module")
def spec() -> Spec:
    return read_spec_alone(REPOSITORY)


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("self.count // self.shape[-1]", "x.layout.elem_count // x.shape[-1]"),
        ("product(self.shape[dim + 1:])", "math.prod(x.shape[dim + 1:])"),
        ("max(-(-dim // 64), stride[0] ** 2)", "max(-(-dim // 64), stride[0] ** 2)"),
        ("self.dtype.compute[dim]", "build.empty(x.dtype.compute, dim)"),
        ("f32[self.shape[:dim]]", "build.empty(DType.F32, math.prod(x.shape[:dim]))"),
        ("(*self.shape[:2], dim)", "(*x.shape[:2], dim)"),
        ("min(*stride, dim)", "min(*stride, dim)"),
        ("f32[1] if is_causal else null", "build.empty(DType.F32, 1) if is_causal else None"),
        ("dim if is_causal and bias else 0", "dim if is_causal and bias is not None else 0"),
        ("bias.strides if bias else (0, 0)", "bias.strides if bias is not None else (0, 0)"),
        ("f32[1] if of_bias else null", "None"),
        ("dim if of_bias or is_causal else 0", "dim if is_causal else 0"),
        ("(self.dtype if dim > 0 else f32).index_form.shift", "(x.dtype if dim > 0 else DType.F32).index_form.shift"),
        ("index.stride(self)", "stride(x)"),
    ],
)  # fmt: skip
def test_expressions_become_python(text: str, python: str) -> None:
    assert scope().typed(ast.parse(text, mode="eval").body).text == python


@pytest.mark.parametrize(
    ("text", "python"), [("not bias", "bias is None"), ("not is_causal", "not is_causal"), ("bias", "bias is not None")]
)
def test_optional_operands_are_conditions(text: str, python: str) -> None:
    assert scope().condition(ast.parse(text, mode="eval").body).text == python


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("self.cout", "'self' is an operand, which has no 'cout'; did you mean 'count'?"),
        ("bias.count", "'bias' is an operand or null, which has no 'count'; test it, as in 'x.count if x else 0'"),
        ("self + 1", "'self' is an operand; write a number"),
        ("dim < self.dtype", "'self.dtype' is a dtype; write a number"),
        ("1 if dim else 0", "'dim' is a number, and no condition; write a comparison"),
        ("dim in stride", "'dim in stride' is no part of the language; see spec/README.md"),
        ("lambda: 1", "'lambda: 1' is no part of the language; see spec/README.md"),
        ("product(self)", "'self' is an operand; write dims"),
        ("sum(stride)", "unknown function 'sum'; write module.function"),
        ("sort.stride(self)", "no function sort.stride; write it"),
        ("self.count if bias else null", "'self.count' is a number; write dtype[sizes]"),
    ],
)  # fmt: skip
def test_mistakes_of_expressions_are_explained(text: str, message: str) -> None:
    with pytest.raises(TermError) as caught:
        scope().typed(ast.parse(text, mode="eval").body)
    assert str(caught.value) == message


def test_emitted_ops_are_those_of_launches(spec: Spec) -> None:
    """Each takes the arguments of its method in the order of a call, and packs each field of its struct once."""
    emitted = {
        name: it for name, it in vars(host_launches).items() if getattr(it, "__module__", "") == host_launches.__name__
    }
    assert emitted.keys() == spec.launch_ops.keys()
    for name, op in spec.launch_ops.items():
        assert tuple(inspect.signature(emitted[name]).parameters) == op.callable.parameters
        packer = inspect.signature(getattr(host_arguments, op.packer))
        assert [part.name for part in op.fields] == list(packer.parameters)


def test_cells_call_every_op(spec: Spec) -> None:
    """An op that no cell calls would be emitted for nobody."""
    backends = [backend for backend in spec.backends if backend.package == host_package(spec)]
    called = {
        call.function
        for backend in backends
        for lowerings in spec.lowerings[backend.name].values()
        for lowering in lowerings.values()
        for call in lowering.calls
        if call.module == MODULE
    }
    assert called == spec.launch_ops.keys()
