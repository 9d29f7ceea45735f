"""Launches of kernels: the language of their expressions, and the ops that come of them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping

import pytest
from opgen.launch_ops import launch_packages
from opgen.launch_writer import ATTRIBUTES, buffer
from opgen.model.callables import Callable
from opgen.model.emitted_ops import DEVICE_MODULE, HOST_MODULE
from opgen.model.spec import Spec
from opgen.project import read_spec_alone
from opgen.terms import DIMS, DTYPE, FLAG, NULL, NUMBER, OPERAND, OPTIONAL, Scope, TermError, Typed
from tallow.kernels import arguments, host_arguments, host_launches, launches

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

    # A function of the runtime may append steps.
    functions = {
        "stride": Callable(("x",), 1, False, {}, "int"),
        "rows": Callable(("build", "x"), 2, False, {}, "Operand"),
    }
    return Scope(names, ATTRIBUTES, buffer, flaw, signature_of=lambda _, name: functions[name])


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
        ("index.stride(self) + 1", "index_ops.stride(x) + 1"),
        ("index.rows(self).count", "index_ops.rows(build, x).layout.elem_count"),
        ("'a' if is_causal else 'b'", "'a' if is_causal else 'b'"),
        ("dim if self else 0", "dim"),
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
        ("index.rows(self) + 1", "'index.rows(self)' is an operand; write a number"),
        ("'a' + 1", "''a'' is a text; write a number"),
    ],
)  # fmt: skip
def test_errors_of_expressions_are_explained(text: str, message: str) -> None:
    with pytest.raises(TermError) as caught:
        scope().typed(ast.parse(text, mode="eval").body)
    assert str(caught.value) == message


SIDES = {HOST_MODULE: (host_launches, host_arguments), DEVICE_MODULE: (launches, arguments)}


@pytest.mark.parametrize("module", SIDES)
def test_emitted_ops_are_those_of_launches(spec: Spec, module: str) -> None:
    """Each takes the arguments of its method in the order of a call, and packs each field of its struct once."""
    emitting, packers = SIDES[module]
    emitted = {name: it for name, it in vars(emitting).items() if getattr(it, "__module__", "") == emitting.__name__}
    described = {name: op for (home, name), op in spec.launch_ops.items() if home == module}
    assert emitted.keys() == described.keys()
    for name, op in described.items():
        assert tuple(inspect.signature(emitted[name]).parameters) == op.callable.parameters
        for launched in op.launched:
            packer = inspect.signature(getattr(packers, launched.packer))
            assert [part.name for part in launched.fields] == list(packer.parameters)


@pytest.mark.parametrize("module", SIDES)
def test_cells_call_every_op(spec: Spec, module: str) -> None:
    """An op that no cell calls would be emitted for nobody."""
    package = launch_packages(spec)[module]
    called = {
        call.function
        for backend in spec.backends
        if package in spec.packages[backend.name]
        for lowerings in spec.lowerings[backend.name].values()
        for lowering in lowerings.values()
        for call in lowering.calls
        if call.module == module
    }
    assert called == {name for home, name in spec.launch_ops if home == module}
