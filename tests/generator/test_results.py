"""`result` of storage methods: the functions that opgen emits, and that each follows from what the spec says."""

from __future__ import annotations

import ast
import inspect
import typing
from dataclasses import replace

import own_spec
import pytest
from opgen.gradients import is_recorded, writes
from opgen.model.methods import Method
from opgen.model.results import Result
from opgen.model.spec import Spec
from opgen.results import arguments_of, results_of
from opgen.views import gradients, results
from tallow import DType
from tallow import results as emitted
from tallow.runtime.core.tensor_type import TensorType


@pytest.fixture(scope="module")
def spec() -> Spec:
    return own_spec.read()


def test_each_method_that_gives_storages_has_a_function(spec: Spec) -> None:
    functions = {name for name, it in vars(emitted).items() if getattr(it, "__module__", "") == emitted.__name__}
    returns = ("Storage", "tuple[Storage, ...]")
    inputs = {each.name for each in spec.storage_methods() if each.signature.returns in returns}
    assert functions == inputs
    for method in spec.storage_methods():
        if method.name in inputs:
            assert len(inspect.signature(getattr(emitted, method.name)).parameters) == len(arguments_of(spec, method))


def test_what_is_emitted_follows_from_each_result(spec: Spec) -> None:
    """Another dtype and another size change the function, and another shape of the first result the gradient."""
    for method in spec.storage_methods():
        for index, result in enumerate(results_of(method)):
            before = _emitted(spec, method)
            for text in (
                "u8[7]",
                ast.unparse(ast.Subscript(ast.Name("u8"), _array(result).slice)),
                f"{_dtype(result)}[7]",
            ):
                if ast.unparse(ast.parse(text)) == ast.unparse(result.node):
                    continue
                changed = [*results_of(method)]
                changed[index] = replace(result, text=text)
                after = _emitted(spec, replace(method, results=tuple(changed)))
                assert after[0] != before[0], f"{method.name}: {text}"
                if index == 0 and text.endswith("[7]") and before[1]:
                    assert after[1] != before[1], f"{method.name}: {text}"


def _emitted(spec: Spec, method: Method) -> tuple[str, str]:
    """The function of results, and the rule of the gradient, which needs the shape of the first one."""
    function = results.function(spec, method)
    rules = gradients.rules_of(spec, [method]) if is_recorded(spec, method) and not writes(method) else []
    return f"{function.parameters} {function.returns} {function.value}", str(rules or "")


def _array(result: Result) -> ast.Subscript:
    node = result.node
    if isinstance(node, ast.IfExp):
        # An optional operand is known in the first array alone.
        node = node.orelse if isinstance(node.orelse, ast.Subscript) else node.body
    return typing.cast("ast.Subscript", node)


def _dtype(result: Result) -> str:
    return ast.unparse(_array(result).value)


def test_functions_give_types() -> None:
    x, weight = TensorType(DType.BF16, (2, 3, 9, 8)), TensorType(DType.BF16, (8,))
    assert emitted.avg_pool2d(x, (2, 3), (2, 1)) == (DType.BF16, (2, 3, 4, 6))
    assert emitted.layer_norm(x, None) == (x, None)
    assert emitted.layer_norm_gradient(x, False, True) == (x, None, weight)
    assert emitted.cat(x, [x, x], 1).shape == (2, 9, 9, 8)
    assert emitted.rfft(TensorType(DType.F64, (5,))) == (DType.COMPLEX128, (3,))
