"""Variables, gradients and what is recorded."""

from __future__ import annotations

import copy
import gc
import inspect
import itertools
import pickle
import sys
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import tallow as tl
from tallow import (
    CustomOp1,
    CustomOp2,
    CustomOp3,
    Device,
    GradientError,
    InplaceOp1,
    InplaceOp2,
    InplaceOp3,
    Layout,
    Shape,
    ShapeMismatch,
    Tensor,
    Var,
)
from tallow.op import BinaryOp, UnaryOp
from tallow.runtime.gradient.node import Node, Rule
from tallow.storage import Storage

from .gradcheck import Gradcheck, gradients, like, rand


def test_what_is_recorded(device: Device) -> None:
    x, w = Tensor.ones((2, 3), device=device), Var(Tensor.ones((3, 2), device=device))
    assert type(w) is Var
    assert w.is_recorded
    for recorded in (w * 2, 2 - w, w.T, w[0], x @ w, w.sum(), w.to_dtype("f16"), w.reshape(-1), tl.cat([x, w.T])):
        assert type(recorded) is Tensor
        assert recorded.is_recorded
    for plain in (x, x * 2, w.detach(), w.argmax(), w > 0, w.isnan(), w.argsort(0), w.to_dtype("i64"), w.ones_like()):
        assert type(plain) is Tensor
        assert not plain.is_recorded
    with tl.no_grad():
        assert not (w * 2).is_recorded
        assert not (x @ w).is_recorded
    assert (w * 2).is_recorded


def test_recorded_tensors_read_as_others(device: Device) -> None:
    w = Var(Tensor([[1.0, 2.0], [3.0, 4.0]], device=device))
    y = (w * 2).T
    assert (y.dtype, y.device, y.shape) == (tl.DType.F32, device, Shape((2, 2)))
    assert y.tolist() == [[2, 6], [4, 8]]
    assert y[0, 1].item() == 6
    assert float(y.sum()) == 20
    assert repr(y) == repr(y.detach()).replace("dtype=f32", "dtype=f32, is_recorded=True")
    assert str(w) == str(w.detach()).replace("Tensor(", "Var(").replace("\n        ", "\n     ")
    assert pickle.loads(pickle.dumps(y)).tolist() == y.tolist()
    np.testing.assert_array_equal(np.asarray(y), [[2, 6], [4, 8]])
    assert Tensor(y.to("cpu")).tolist() == y.tolist()


def test_copies_of_variables(device: Device) -> None:
    w = Var(Tensor([1.0, 2.0], device=device))
    for other in (copy.deepcopy(w), pickle.loads(pickle.dumps(w)), Var(w)):
        assert type(other) is Var
        with tl.no_grad():
            other.fill_(0)
        assert w.tolist() == [1, 2]
    plain = Tensor([1.0, 2.0], device=device)
    variable = Var(plain)
    plain.fill_(3)
    assert variable.tolist() == [1, 2]


def test_gradients_by_variable(device: Device) -> None:
    a, b, unused = (Var(Tensor([1.0, 2.0], device=device)) for _ in range(3))
    grads = (a * a * b).sum().backward()
    assert grads[a].tolist() == [2, 8]
    assert grads[b].tolist() == [1, 4]
    assert not grads[a].is_recorded
    assert unused not in grads
    assert grads.get(unused) is None
    assert len(grads) == 2
    with pytest.raises(GradientError, match=r"grads: the result does not depend on this Var of shape \(2,\)"):
        grads[unused]
    for wrong in (a * 2, a.detach(), "a", None):
        with pytest.raises(GradientError, match="variable must be a Var"):
            grads.get(wrong)
        assert wrong not in grads


def test_backward_of_more_elements(device: Device) -> None:
    w = Var(Tensor([1.0, 2.0], device=device))
    with pytest.raises(ShapeMismatch, match=r"the gradient of 2 elements is required; write x\.sum\(\)\.backward"):
        (w * 2).backward()
    with pytest.raises(ShapeMismatch, match="the gradient has the shape of the tensor"):
        (w * 2).backward(Tensor.ones(3, device=device))
    assert (w * w).backward(Tensor([1.0, 10.0], device=device))[w].tolist() == [2, 40]
    assert w.backward(Tensor([5.0, 6.0], device=device))[w].tolist() == [5, 6]


def test_gradients_are_summed_up_in_place(device: Device) -> None:
    a, b, c = (Var(Tensor([1.0, 2.0], device=device)) for _ in range(3))
    grads, others = ((a + b).relu().sum().backward() for _ in range(2))
    for variable in (a, b):
        grads[variable].add_(others[variable])
        assert grads[variable].tolist() == [2, 2]
        grads[variable] += others[variable]
    assert [grads[variable].tolist() for variable in (a, b)] == [[3, 3], [3, 3]]
    assert [others[variable].tolist() for variable in (a, b)] == [[1, 1], [1, 1]]
    grads[c] = others[a]
    assert grads[c] is others[a]
    matrix = Var(Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], device=device))
    grads = (matrix.T.reshape(-1) * Tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], device=device)).sum().backward()
    grads[matrix].mul_(2)
    assert grads[matrix].tolist() == [[2, 8], [4, 10], [6, 12]]
    with pytest.raises(GradientError, match="grads: variable must be a Var, not a view of it"):
        grads[matrix.T]
    with pytest.raises(ShapeMismatch, match=r"grads: .*the gradient has the shape of the variable"):
        grads[a] = others[a][:1]
    with pytest.raises(tl.DTypeMismatch, match=r"grads: .*dtype of its variable, f32, not f16"):
        grads[a] = others[a].to_dtype("f16")
    for wrong in (a * 2, "a"):
        with pytest.raises(GradientError, match="variable must be a Var"):
            grads[wrong] = others[a]


def test_gradients_share_memory_if_asked_to(device: Device) -> None:
    def shares(one: Tensor, other: Tensor) -> bool:
        return one._storage.inner is other._storage.inner

    x, y = (Var(Tensor([[1.0, 2.0, 4.0], [5.0, 3.0, 1.0]], device=device)) for _ in range(2))
    seed = Tensor([[1.0, -2.0, 0.5], [3.0, 0.0, 1.0]], device=device)
    for function in (lambda x, y: (x + y).layer_norm(), lambda x, y: x.layer_norm().gelu() + y):
        for each in (function, tl.fuse(function)):
            own, shared = each(x, y).backward(seed), each(x, y).backward(seed, share=True)
            for variable in (x, y):
                np.testing.assert_array_equal(own[variable].numpy(), shared[variable].numpy())
            assert not any([shares(own[x], own[y]), shares(own[x], seed), shares(own[y], seed)])
            assert shares(shared[y], shared[x]) or shares(shared[y], seed)
    # What repeats an element has memory of its own.
    grads = x.sum().backward(share=True)
    assert grads[x].tolist() == [[1.0] * 3] * 2
    with pytest.raises(tl.InvalidArgument, match="share"):
        x.sum().backward(share=1)


def test_what_has_no_gradient_says_so(device: Device) -> None:
    w = Var(Tensor([1.0, 2.0], device=device))
    for plain in (w.argmax(), Tensor([1.0], device=device), w.detach()[0]):
        with pytest.raises(GradientError, match=r"does not depend on a Var .* make its operands with tallow\.Var"):
            plain.backward()
    with pytest.raises(GradientError, match="Var: a Var is of floats or complex numbers, and i64 has"):
        Var(Tensor([1, 2], device=device))


def test_second_time(device: Device) -> None:
    w = Var(Tensor([1.0, 2.0], device=device))
    shared = w.exp()
    loss = shared.sum()
    first = loss.backward(keep=True)[w]
    assert loss.backward()[w].tolist() == first.tolist()
    for again in (loss, (shared * 2).sum()):
        with pytest.raises(GradientError, match=r"went back through \w+ already.*write backward\(keep=True\)"):
            again.backward()


def nodes() -> int:
    return sum(type(item) is Node for item in gc.get_objects())


def test_memory_is_let_go_of(device: Device) -> None:
    w = Var(Tensor.ones(3, device=device))
    loss = (w.exp() * w).sum()
    node = loss._storage.inner
    loss.backward()
    assert not node.inputs
    assert len(node.saved) == 1
    del loss, node
    gc.collect()
    before = nodes()
    # No cycle holds a graph: it goes when the last tensor does.
    gc.disable()
    try:
        tensor = w.exp() * w
        assert nodes() == before + 2
        del tensor
        assert nodes() == before
    finally:
        gc.enable()


def test_no_call_holds_its_operand(device: Device) -> None:
    w = Var(Tensor.ones(3, device=device))
    held = []
    gc.disable()
    try:
        for op in (*UnaryOp, *BinaryOp):
            if op.rule is not None and w.dtype in op.dtypes:
                # As before the first call of the op.
                op.rule.depth = Rule("", list).depth
                x = w * 1.0
                storage = weakref.ref(x.storage)
                x = x._unary(op) if isinstance(op, UnaryOp) else x._binary(op, w)
                del x
                held += [op] * (storage() is not None)
    finally:
        gc.enable()
    assert held == []


def kept(tensor: Tensor) -> list[bool]:
    """Whether the node that made a tensor keeps the elements of each operand."""
    node = tensor._storage.inner
    return [saved is not None for saved in node.saved[: len(node.inputs) // 2]]


def test_only_what_gradients_need_is_kept(device: Device) -> None:
    w, data = Var(Tensor.ones((2, 2), device=device)), Tensor.ones((2, 2), device=device)
    assert kept(data @ w) == [True, False]
    assert kept(w + data) == [False, False]
    assert kept(w * data) == [False, True]
    assert kept(w.exp()) == [False]
    assert isinstance(w.exp()._storage.inner.result, Storage)
    assert kept(w.sin()) == [True]
    assert w.sin()._storage.inner.result is None


def test_writing_to_variables(device: Device) -> None:
    w = Var(Tensor([1.0, 2.0], device=device))
    for write in (lambda: w.add_(1), lambda: w[0].fill_(0), lambda: w.copy_(w * 2), lambda: w.fill_(0)):
        with pytest.raises(GradientError, match=r"a Var is not written to .* write in `with tallow.no_grad\(\):`"):
            write()
    assert w.tolist() == [1, 2]
    grads = (w * w).sum().backward()
    with tl.no_grad():
        w -= 0.5 * grads[w]
    assert type(w) is Var
    assert w.tolist() == [0, 0]
    assert w.set_(Tensor([3.0, 4.0], device=device)) is w
    assert w.set_(w * 2).tolist() == [6, 8]
    assert (w * w).sum().backward()[w].tolist() == [12, 16]
    with pytest.raises(ShapeMismatch, match=r"set_: .*the shapes must be equal"):
        w.set_(Tensor.ones(3, device=device))
    assert w.set_(Tensor([1.0, 2.0], dtype="f16", device=device)).dtype is tl.DType.F32
    # Of all dtypes f32 takes but complex ones, which not every backend has.
    if any(cell.backend == device.backend and cell.dtype is tl.DType.COMPLEX64 and cell.via for cell in tl.support()):
        with pytest.raises(tl.DTypeMismatch, match="set_: "):
            w.set_(Tensor([1.0, 2.0], dtype="complex64", device=device))


def test_gradients_serve_after_a_step(device: Device) -> None:
    w = Var(Tensor([1.0, 2.0], device=device))
    grads = (w * w).sum().backward()
    w.set_(w - 0.1 * grads[w])
    assert grads[w].tolist() == [2, 4]


def test_writing_in_place_is_recorded(gradcheck: Gradcheck) -> None:
    x, y = rand(3, 4, low=0.5, high=2), rand(4, low=0.5, high=2, seed=1)
    rows, chosen = Tensor([2, 0], dtype="u32"), Tensor([[0, 2, 0, 1], [1, 1, 2, 1]], dtype="u32")

    def written(write):
        def call(x: Tensor, y: Tensor) -> Tensor:
            z = x * 1
            write(z, y)
            return z.sqr()

        return call

    def rest(z: Tensor, y: Tensor) -> None:
        z[:, 1:] = z[:, :3] * 2 + y[1:]

    def overlapping(z: Tensor, _: Tensor) -> None:
        z[:, 1:] = z[:, :-1]
        z[1:] *= z[:-1]

    def repeated(z: Tensor, _: Tensor) -> None:
        z += z
        z *= z

    for write in (
        lambda z, y: z.add_(y),
        lambda z, y: z[1].mul_(y),
        lambda z, y: z.T[1:3].sub_(y[1:3].unsqueeze(1)),
        lambda z, y: z.div_(y),
        lambda z, y: z[1:].div_(3.0),
        lambda z, y: z.remainder_(y * 0.3),
        lambda z, y: z.copy_(y),
        lambda z, y: z[::2].copy_(y * 2),
        lambda z, y: z[1, 2:].fill_(3.0),
        lambda z, y: z.fill_(3.0),
        lambda z, y: z.storage.const_set(3.0, Layout((12,), (0,))),
        lambda z, y: z.slice_set(y.sqr().unsqueeze(0), 0, 1),
        lambda z, y: z.index_copy_(like(rows, z), tl.stack([y, y.sqr()]), 0),
        lambda z, y: z.scatter_(like(chosen, z), tl.stack([y, y.sqr()]), 0),
        lambda z, y: z[1:].scatter_(like(chosen, z), tl.stack([y, y.sqr()]), 1),
        lambda z, y: z.T.scatter_add_(like(chosen, z).T, tl.stack([y, y.sqr()]).T, 1),
        rest,
        overlapping,
        repeated,
    ):
        gradcheck(written(write), x, y)


def test_plain_tensors_that_recorded_values_are_written_to(gradcheck: Gradcheck) -> None:
    y = rand(3)

    def call(y: Tensor) -> Tensor:
        buffer = Tensor.zeros((2, 3), dtype=y.dtype, device=y.device)
        view = buffer[1]
        buffer[0] = y
        view += y * y
        buffer.T[1].mul_(y[:2])
        assert buffer.is_recorded == y.is_recorded
        return view * buffer[0]

    gradcheck(call, y)


def test_copies_of_storages(gradcheck: Gradcheck) -> None:
    y = rand(6)

    def call(y: Tensor) -> Tensor:
        first, second = (Tensor.zeros(10, dtype=y.dtype, device=y.device) for _ in range(2))
        source = y * 1
        source.storage.copy_strided_src(first.storage, 2, source.reshape(2, 3).T.layout)
        source.storage.copy2d(second.storage, 2, 3, 2, 4, 1, 2)
        return first.sqr() + second.sqr()

    gradcheck(call, y)


def test_overwritten_elements_are_noticed(device: Device) -> None:
    w = Var(Tensor([1.0, 2.0], device=device))
    h = w * 1.0
    y = h * h  # the first
    h.add_(1)  # the second
    with pytest.raises(GradientError) as caught:
        y.sum().backward()
    first, second = (call_line(test_overwritten_elements_are_noticed, mark) for mark in ("# the first", "# the second"))
    assert f"mul at {__file__}:{first} needs elements" in str(caught.value)
    assert f"{__file__}:{second} has overwritten" in str(caught.value)


def call_line(function, mark: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if line.rstrip().endswith(mark))


def test_all_ways_to_overwrite_are_noticed(device: Device) -> None:
    w = Var(Tensor([1.0, 2.0], device=device))
    one = Tensor([1.0], device=device)
    index = Tensor([0], dtype="u32", device=device)
    for write in (
        lambda x: x.add_(1),
        lambda x: x[:1].fill_(1),
        lambda x: x[1:].copy_(one),
        lambda x: x.scatter_(index, one, 0),
        lambda x: x.scatter_add_(index, one, 0),
        lambda x: one.storage.copy_strided_src(x.storage, 1, one.layout),
        lambda x: one.storage.copy2d(x.storage, 1, 1, 1, 1, 0, 0),
        lambda x: x.inplace_op1(Double()) if device.is_cpu() else x.add_(1),
        lambda x: x[:1].copy_(w[:1]),
    ):
        plain = Tensor([3.0, 4.0], device=device)
        loss = (w * plain).sum()
        write(plain)
        with pytest.raises(GradientError, match="has overwritten"):
            loss.backward()
    weight = Tensor([1.0, 2.0], device=device)
    for write, x in itertools.product((lambda total: total.add_(1), lambda _: weight.add_(1)), (w, weight.copy())):
        normal, total = x.rms_norm(weight, residual=w)  # a norm
        write(total)
        with pytest.raises(GradientError) as caught:
            normal.sum().backward()
        line = call_line(test_all_ways_to_overwrite_are_noticed, "# a norm")
        assert f"rms_norm at {__file__}:{line} needs elements" in str(caught.value)
    normal, total = weight.rms_norm(w, residual=weight)
    total.add_(1)
    with pytest.raises(GradientError, match="has overwritten"):
        normal.sum().backward()
    plain = Tensor([3.0, 4.0], device=device)
    plain.add_(1)
    loss = (w * plain).sum()
    plain = plain + 1
    assert loss.backward()[w].tolist() == [4, 5]
    loss = (w * w).sum()
    w.set_(w + 1)
    with pytest.raises(GradientError, match="has overwritten"):
        loss.backward()


class Double(InplaceOp1):
    def cpu_fwd(self, storage, layout) -> None:
        view = storage.view(layout)
        view *= 2


def test_ops_of_users_in_place_without_a_gradient(device: Device) -> None:
    w = Var(Tensor([1.0, 2.0], device=device))
    with pytest.raises(GradientError, match=r"class Double gives no gradient; define bwd\(self, x1, result, g\)"):
        (w * 2).inplace_op1(Double())
    if device.is_cpu():
        with pytest.raises(
            GradientError, match=r"DoubleOfTwo gives no gradient; define bwd\(self, x1, x2, result, g\)"
        ):
            (w * 2).inplace_op2(w, DoubleOfTwo())
        with pytest.raises(GradientError, match="a Var is not written to"):
            w.inplace_op1(Square())
        with pytest.raises(tl.InvalidArgument, match="inplace_op1"):
            (w * 2).inplace_op1(None)
        with tl.no_grad():
            assert w.inplace_op1(Double()).tolist() == [2, 4]
            assert (w * 1).inplace_op2(w, Raise()).tolist() == [4, 256]
        # Integers have no gradients.
        counts = Tensor([3, 5], dtype="i64")
        assert not counts.inplace_op2(w, DoubleOfTwo()).is_recorded
        assert counts.tolist() == [6, 10]


class DoubleOfTwo(InplaceOp2):
    def cpu_fwd(self, storage, layout, other, other_layout) -> None:
        view = storage.view(layout)
        view *= 2


class Square(InplaceOp1):
    def cpu_fwd(self, storage, layout) -> None:
        view = storage.view(layout)
        view *= view

    def bwd(self, x: Tensor, result: Tensor, g: Tensor) -> Tensor:
        return g * 2 * x


class Raise(InplaceOp2):
    """x ** y, whose gradients need what was written."""

    def cpu_fwd(self, storage, layout, other, other_layout) -> None:
        view = storage.view(layout)
        view **= other.view(other_layout)

    def bwd(self, x: Tensor, y: Tensor, result: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return g * result * y / x, g * result * x.log()


class Blend(InplaceOp3):
    def cpu_fwd(self, storage, layout, y, y_layout, z, z_layout) -> None:
        view = storage.view(layout)
        view += y.view(y_layout) * z.view(z_layout) ** 2

    def bwd(self, x: Tensor, y: Tensor, z: Tensor, result: Tensor, g: Tensor) -> tuple[Tensor | None, ...]:
        return g, g * z.sqr(), g * y * z * 2


def changed(x: Tensor, change: Callable[[Tensor], object]) -> Tensor:
    """A copy, a part of which is changed in place."""
    copy = x * 1
    change(copy[1:])
    return copy


def test_ops_of_users_in_place(gradcheck: Gradcheck, device: Device) -> None:
    if not device.is_cpu():
        pytest.skip("the ops are written for the CPU")
    x, y, z = rand(3, 2, low=0.5, high=2), rand(2, 2, seed=1), rand(2, 2, seed=2)
    gradcheck(lambda x: changed(x, lambda part: part.inplace_op1(Square())), x)
    gradcheck(lambda x, y: changed(x, lambda part: part.inplace_op2(y, Raise())), x, y)
    gradcheck(lambda x: changed(x, lambda part: part.inplace_op2(part, Raise())), x)
    gradcheck(lambda x, y, z: changed(x, lambda part: part.inplace_op3(y, z, Blend())), x, y, z)
    gradcheck(lambda x, y: changed(x, lambda part: part.inplace_op3(y, part.T, Blend())), x, y)
    # What was plain is recorded from then on.
    gradcheck(lambda y: changed(like(x, y), lambda part: part.inplace_op2(y, Raise())), y)


def test_what_a_user_has_written_is_overwritten(device: Device) -> None:
    if not device.is_cpu():
        pytest.skip("the op is written for the CPU")
    w = Var(Tensor([1.0, 2.0], device=device))
    x = w * 2
    x.inplace_op2(w, Raise())
    loss = x.sum()
    x.add_(1)
    with pytest.raises(GradientError, match="has overwritten"):
        loss.backward()
    x, y = w * 2, Tensor([1.0, 2.0])
    x.inplace_op2(y, Raise())
    y.add_(1)
    with pytest.raises(GradientError, match="has overwritten"):
        x.sum().backward()
    # What was detached takes no part.
    x = w * 1
    x.inplace_op2(x.detach(), Raise())
    assert x.sum().backward()[w].tolist() == [1, 4]


class Cube(CustomOp1):
    def cpu_fwd(self, storage, layout):
        array = storage.view(layout) ** 3
        return storage.device.storage(array), Shape(array.shape)

    def bwd(self, x: Tensor, result: Tensor, g: Tensor) -> Tensor:
        return g * result / x * 3


class Product(CustomOp2):
    """x**2 * y, whose gradients need both, and the result."""

    given = None

    def cpu_fwd(self, storage, layout, other, other_layout):
        array = storage.view(layout) ** 2 * other.view(other_layout)
        return storage.device.storage(array), Shape(array.shape)

    def bwd(self, x: Tensor, y: Tensor, result: Tensor, g: Tensor):
        return (g * x * y * 2, g * result / y) if self.given is None else self.given


class Sum(CustomOp3):
    """x + y**2 + z**3, whose gradients change that of the result."""

    def cpu_fwd(self, storage, layout, y, y_layout, z, z_layout):
        array = storage.view(layout) + y.view(y_layout) ** 2 + z.view(z_layout) ** 3
        return storage.device.storage(array), Shape(array.shape)

    def bwd(self, x: Tensor, y: Tensor, z: Tensor, result: Tensor, g: Tensor) -> tuple[Tensor, ...]:
        return g, g * y * 2, g * 3 * (result - x - y.sqr()) / z


class Tripled(CustomOp1):
    """3 * x, whose gradient is made of that of the result in place."""

    def cpu_fwd(self, storage, layout):
        array = storage.view(layout) * 3
        return storage.device.storage(array), Shape(array.shape)

    def bwd(self, x: Tensor, result: Tensor, g: Tensor) -> Tensor:
        return g.mul_(3)


class Silent(Cube):
    bwd = CustomOp1.bwd


def test_ops_of_users(device: Device, gradcheck: Gradcheck) -> None:
    if not device.is_cpu():
        pytest.skip("the ops are those of the CPU")
    x, y = rand(2, 3), rand(2, 3, seed=1)
    gradcheck(lambda x: x.T.apply_op1(Cube()), x)
    gradcheck(lambda x, y: x.apply_op2(y, Product()), x, y)
    gradcheck(lambda x, y, z: x.apply_op3(y, z, Sum()), x, y, rand(2, 3, seed=2))
    w = Var(x)
    with pytest.raises(
        GradientError, match=r"Silent: class Silent gives no gradient; define bwd\(self, x1, result, g\)"
    ):
        w.apply_op1(Silent()).sum().backward()
    op = Product()
    for inputs, message in (
        (w, "gives one gradient, or None, for each of 2 operands"),
        ((None, w.detach()[0]), r"in the shapes of the operands, \(2, 3\) here, not \(3,\)"),
        (("x", None), r"in the shapes of the operands, \(2, 3\) here, not 'x'"),
    ):
        op.given = inputs
        with pytest.raises(GradientError, match=message):
            w.apply_op2(w, op).sum().backward()
    # A gradient has the dtype of its variable, which a step needs.
    for dtype in ("f32", "i64"):
        op.given = (None, Tensor.ones((2, 3), dtype=dtype))
        with pytest.raises(GradientError, match=rf"f64 here, not {dtype}; end with to_dtype\('f64'\)"):
            w.apply_op2(w, op).sum().backward()
    # The gradient of one number is a number that others have too.
    one = Var(Tensor([2.0], dtype="f64"))
    assert [one.apply_op1(Tripled()).backward()[one].item() for _ in range(2)] == [3, 3]
    op.given = (None, None)
    assert w.apply_op2(w, op).sum().backward().get(w) is None


class Twice(CustomOp2):
    """x + y, whose gradients are what `given` makes of those that the op has."""

    constant = Tensor([1.0, 1.0])

    def __init__(self, given: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        self.given = given

    def cpu_fwd(self, storage, layout, other, other_layout):
        array = storage.view(layout) + other.view(other_layout)
        return storage.device.storage(array), Shape(array.shape)

    def bwd(self, x: Tensor, y: Tensor, result: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return self.given(x, y, result, g)


def test_gradients_of_ops_of_users_share_no_memory(device: Device) -> None:
    if not device.is_cpu():
        pytest.skip("the ops are those of the CPU")
    x, y = Var(Tensor([2.0, 3.0])), Var(Tensor([5.0, 7.0]))
    for create_graph in (False, True):
        for inputs, expected in (
            (lambda x, y, result, g: (g, g), [[1, 1], [1, 1]]),
            (lambda x, y, result, g: (y, x), [[5, 7], [2, 3]]),
            (lambda x, y, result, g: (result, result), [[7, 10], [7, 10]]),
            (lambda x, y, result, g: (Twice.constant, Twice.constant), [[1, 1], [1, 1]]),
            (lambda x, y, result, g: (g * 2, g.mul_(3)), [[2, 2], [3, 3]]),
        ):
            # The gradient of the sum is that of the op and of y.
            loss = (x.apply_op2(y, Twice(inputs)) + y).sum()
            for _ in range(2):
                grads = loss.backward(keep=True, create_graph=create_graph)
                assert [grads[x].tolist(), (grads[y] - 1).tolist()] == expected
                with tl.no_grad():
                    grads[x].add_(10)
                    grads[y].add_(20)
                assert [x.tolist(), y.tolist(), Twice.constant.tolist()] == [[2, 3], [5, 7], [1, 1]]


def test_weights_in_blocks(device: Device) -> None:
    weights = tl.QTensor.quantize(Tensor.randn((4, 32)), "Q8_0").to(device)
    expected = Tensor.ones((3, 4), device=device) @ weights.dequantize()
    for dtype, tolerance in (("bf16", 2**-5), ("f16", 2**-8), ("f32", 1e-5)):
        w = Var(Tensor.randn((3, 32), device=device).to_dtype(dtype))
        gradient = tl.QMatMul(weights).forward(w).sum().backward()[w]
        assert gradient.dtype == w.dtype
        actual = gradient.to_dtype("f32").numpy()
        np.testing.assert_allclose(actual, expected.numpy(), rtol=tolerance, atol=tolerance)
    storage = weights.storage.fwd(4, 32, w.storage, w.layout, None)
    result = Tensor.from_storage(storage, tl.Layout.contiguous((3, 4)))
    np.testing.assert_allclose(result.sum().backward()[w].numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)
    assert tl.QTensor.quantize(w, "Q8_0").shape == (3, 32)


def test_detached_tensors(device: Device) -> None:
    w = Var(Tensor([1.0, 2.0], device=device))
    x = w * 2
    assert (x.detach() * x).sum().backward()[w].tolist() == [4, 8]
    assert w.detach().is_recorded is False
    shown = x.detach()
    with pytest.raises(GradientError, match=r"elements that detach has shown; write to a copy of these"):
        shown[0] = w[0]
    for result in (shown.copy(), shown * 1):  # elements of their own
        result[0] = w[0]
        assert result.sum().backward()[w].tolist() == [1, 0]
    shown.fill_(7)
    assert x.tolist() == [7, 7]


def test_no_grad_decorates_and_is_of_a_thread(device: Device) -> None:
    w = Var(Tensor([1.0], device=device))

    @tl.no_grad()
    def twice(x: Tensor) -> Tensor:
        return x * 2

    assert not twice(w).is_recorded
    actual = []
    with tl.no_grad():
        thread = threading.Thread(target=lambda: actual.append((w * 2).is_recorded))
        thread.start()
        thread.join()
    assert actual == [True]
    with pytest.raises(ValueError, match="inside"), tl.no_grad():
        raise ValueError("inside")
    assert (w * 2).is_recorded


def test_threads_record_on_their_own(device: Device) -> None:
    w = Var(Tensor.ones(4, device=device))
    actual: list[list[float]] = []

    def work(factor: float) -> None:
        for _ in range(20):
            loss = (w * factor).sqr().sum()
            actual.append([factor, *loss.backward()[w].tolist()])

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (1.0, 2.0, 3.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(actual) == 60
    assert all(remaining == [2 * factor * factor] * 4 for factor, *remaining in actual)


def test_value_and_grad(device: Device) -> None:
    x = Tensor([1.0, 2.0], device=device)
    names = Tensor([1, 0], device=device)
    loss, (of_x, of_b) = tl.value_and_grad(lambda x, rows, *, b, scale: (x[rows] * b * scale).sum())(
        x, names, b=x * 2, scale=3.0
    )
    assert (loss.item(), of_x.tolist(), of_b.tolist()) == (24.0, [12, 6], [6, 3])
    assert not loss.is_recorded
    _, (zeros,) = tl.value_and_grad(lambda x: Var(x.detach()).sum())(x)
    assert zeros.tolist() == [0, 0]
    with pytest.raises(tl.InvalidArgument, match="value_and_grad: result must be a Tensor"):
        tl.value_and_grad(lambda x: 3)(x)


def test_value_and_grad_of_functions_that_use_it(device: Device) -> None:
    x, y = Tensor([1.0, 2.0], device=device), Tensor([3.0, 4.0], device=device)
    slope = tl.value_and_grad(lambda x: (x**4).sum())
    curvature = tl.value_and_grad(lambda x: slope(x)[1][0].sum())
    assert curvature(x)[1][0].tolist() == [12, 48]
    assert tl.value_and_grad(lambda x: curvature(x)[1][0].sum())(x)[1][0].tolist() == [24, 48]
    assert tl.value_and_grad(lambda x: slope(x)[0])(x)[1][0].tolist() == [4, 32]

    def product(w: Tensor) -> tuple[Tensor, Tensor]:
        value, (gradient,) = tl.value_and_grad(lambda y: (y * y * w).sum())(y)
        return value, gradient

    # Of what the inner function uses besides its arguments.
    assert tl.value_and_grad(lambda w: product(w)[0])(x)[1][0].tolist() == [9, 16]
    assert tl.value_and_grad(lambda w: (product(w)[1] * w).sum())(x)[1][0].tolist() == [12, 32]
    w = Var(x)
    for argument in (w * 1, w + 0):
        value, (gradient,) = slope(argument)
        grads = (value + gradient.sum()).backward()
        assert grads[w].tolist() == [4 + 12, 32 + 48]
        assert len(grads) == 1
    value, gradient = product(w)
    assert (value + gradient.sum()).backward()[w].tolist() == [9 + 6, 16 + 8]
    with tl.no_grad():
        value, (gradient,) = slope(w * 1)
        assert gradient.tolist() == [4, 32]
    for plain in (value, gradient, *product(w.detach()), slope(w)[0]):
        assert not plain.is_recorded


def test_results_of_value_and_grad_have_memory_of_their_own(device: Device) -> None:
    number, w = Tensor(2.0, device=device), Var(Tensor(5.0, device=device))
    for function in (lambda x: x, lambda x: x.reshape(1)[0], lambda x: w, lambda x: w * x):
        value, (gradient,) = tl.value_and_grad(function)(number)
        with tl.no_grad():
            value.fill_(7)
            gradient.fill_(8)
        assert (value.item(), gradient.item(), number.item(), w.item()) == (7, 8, 2, 5)


def test_recorded_numbers_of_new_tensors(device: Device) -> None:
    xp = Tensor(0.0, device=device).__array_namespace__()
    w = Var(Tensor([2.0, 3.0], device=device))
    filled = xp.full((2, 2), w[0], dtype=tl.DType.F16)
    assert (filled.device, filled.dtype, filled.tolist()) == (device, tl.DType.F16, [[2, 2], [2, 2]])
    assert filled.sum().backward()[w].tolist() == [4, 0]
    assert not xp.full(2, w[0], dtype=xp.int32).is_recorded
    nested = xp.asarray([[w[0], 1.0], [w[1], w[0]]])
    assert (nested.device, nested.tolist()) == (device, [[2, 1], [3, 2]])
    assert nested.sum().backward()[w].tolist() == [2, 1]
    # Without the namespace of a device it is that of the tensors, recorded or not.
    for first in (w[0], w.detach()[0]):
        assert tl.array_api.asarray([first, 1.0]).device == device
    copied = Tensor(w, dtype="f16", device=device)
    with tl.no_grad():
        copied.fill_(0)
    assert w.tolist() == [2, 3]
    assert Tensor(w, device=device).sum().backward()[w].tolist() == [1, 1]
    for call in (
        lambda: xp.linspace(w[0], 3.0, 3, dtype=xp.float32),
        lambda: xp.arange(w[0]),
        lambda: Tensor([1.0, w[0]]),
        lambda: tl.from_dlpack(w),
    ):
        with pytest.raises(GradientError, match="detach"):
            call()


def test_gradients_of_gradients(device: Device) -> None:
    x = Var(Tensor([1.0, 2.0], device=device))
    first = (x**3).sum().backward(create_graph=True)[x]
    assert first.is_recorded
    second = first.sum().backward(create_graph=True)[x]
    assert second.tolist() == [6, 12]
    assert second.sum().backward()[x].tolist() == [6, 6]
    penalty = first.sqr().sum()
    assert (penalty + (x**3).sum()).backward()[x].tolist() == [2 * 3 * 6 + 3, 2 * 12 * 12 + 12]


def test_fused_functions_record_each_op(gradcheck: Gradcheck) -> None:
    @tl.fuse
    def gated(x: Tensor, y: Tensor, scale: float = 2.0) -> Tensor:
        return x.silu() * y * scale

    x, y = rand(2, 3), rand(2, 3, seed=1)
    before = gated(x, y).numpy()
    gradcheck(gated, x, y, second=False)
    np.testing.assert_array_equal(gated(x, y).numpy(), before)
    assert not gated(x, y).is_recorded


def test_moves_between_devices(device: Device) -> None:
    w = Var(Tensor([1.0, 2.0], device=device))
    moved = w.to("cpu", "f64") * Tensor([3.0, 4.0], dtype="f64")
    gradient = moved.sum().backward()[w]
    assert gradient.device == device
    assert gradient.dtype is tl.DType.F32
    assert gradient.tolist() == [3, 4]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_short_floats_are_near(dtype: str, device: Device) -> None:
    x, y = rand(4, 8), rand(8, 4, seed=1)
    weight = rand(8, seed=2)

    def function(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return (x.layer_norm(w) @ y).gelu().softmax(-1) + (x.sum(0) * w).mean() + x.T.silu().max(0)[:4]

    weights = np.random.default_rng(1).normal(size=(4, 4))
    tolerance = {"f32": 1e-5, "f16": 2e-2, "bf16": 1.5e-1}[dtype]
    expected = gradients(function, (x, y, weight), weights)
    short = gradients(function, [tensor.to_dtype(dtype) for tensor in (x, y, weight)], weights)
    for one, other in zip(short, expected, strict=True):
        assert str(one.dtype).endswith({"f32": "32", "f16": "16", "bf16": "bfloat16"}[dtype])
        np.testing.assert_allclose(one.astype("f8"), other, rtol=tolerance, atol=tolerance)


def test_empty_tensors(device: Device, gradcheck: Gradcheck) -> None:
    empty = rand(0, 3)
    gradcheck(lambda x, y: x @ y, empty, rand(3, 2))
    gradcheck(lambda x: x.exp().sum(), empty)
    gradcheck(lambda x, k: x.conv1d(k, stride=2), rand(0, 3, 5), rand(2, 3, 2))
    gradcheck(lambda x, k: x.conv1d(k), rand(2, 3, 5), rand(0, 3, 2), second=False)
    gradcheck(lambda x: x.max_pool2d(2), rand(1, 0, 4, 4), second=False)
    gradcheck(lambda x, k: x.conv_transpose1d(k), rand(0, 3, 5), rand(3, 2, 2), second=False)
    gradcheck(lambda x: x.upsample_bilinear2d(0, 5) + x.upsample_nearest2d(0, 5), rand(1, 1, 2, 3))
    gradcheck(lambda x: x.upsample_bilinear2d(4, 0), rand(1, 1, 2, 3))
    gradcheck(lambda x: tl.cat([x, x + 1]), empty)
    gradcheck(lambda x: x.max(1) + x.min(1) + x.prod(1), empty)
    gradcheck(lambda x: x.T.prod(1), empty)
    gradcheck(lambda x: x.hypot(x + 1) + x.huber_loss(x - 1, "none") + (x > 0).where(x, x.exp()), empty)
    w = Var(Tensor.ones(3, device=device))
    assert w[:0].sum().backward()[w].tolist() == [0, 0, 0]


def test_names_that_others_have(device: Device) -> None:
    w = Var(Tensor([1.0], device=device))
    for name, word in (("grad", r"grads = loss\.backward"), ("requires_grad", r"x\.is_recorded"), ("grad_fn", "Var")):
        with pytest.raises(AttributeError, match=word):
            getattr(w, name)
    with pytest.raises(AttributeError, match=r"use tallow\.Var\(tensor\)"):
        tl.Parameter  # noqa: B018


def test_the_gradient_of_a_loss_leaves_predictions_that_somebody_has(device: Device) -> None:
    x, targets = tl.randn((4, 8), device=device), Tensor([0, 3, 2, 1], device=device)
    w = Var(tl.randn((16, 8), device=device))
    expected = x.linear(w).cross_entropy(targets).backward(keep=True)[w].tolist()
    for keeps in ("nothing", "tensor", "view", "detached", "graph", "another op"):
        predictions = x.linear(w)
        before = predictions.flatten().tolist()
        saved = None
        if keeps in ("tensor", "view", "detached"):
            saved = {"tensor": lambda x: x, "view": lambda x: x.reshape(64), "detached": Tensor.detach}[keeps](
                predictions
            )
        other = predictions.sqr().sum() if keeps == "another op" else None
        loss = predictions.cross_entropy(targets)
        del predictions
        if other is not None:
            both = (loss + other).backward()[w].numpy()
            np.testing.assert_allclose(both, expected + (2 * x.linear(w).detach().T @ x).numpy(), rtol=1e-5, atol=1e-5)
            continue
        assert loss.backward(keep=keeps == "graph")[w].tolist() == expected
        if saved is not None:
            assert saved.flatten().tolist() == before
        if keeps == "graph":
            assert loss.backward()[w].tolist() == expected


def test_predictions_that_a_graph_or_another_loss_needs(device: Device) -> None:
    x, targets = tl.randn((4, 8), device=device), Tensor([0, 3, 2, 1], device=device)
    w = Var(tl.randn((16, 8), device=device))
    predictions = x.linear(w)
    loss, other = predictions.cross_entropy(targets), predictions.sqr().sum()
    del predictions
    loss.backward()
    with pytest.raises(GradientError, match=r"has overwritten|went back through linear already"):
        other.backward()
    # Where the library of a backend has the memory, there are no graphs.
    if not hasattr(device.inner, "allocator"):
        return
    predictions = x.linear(w)
    with tl.Graph(device) as graph:
        with graph.capture(), tl.no_grad():
            doubled = predictions * 2
        expected = [2 * it for it in predictions.flatten().tolist()]
        loss = predictions.cross_entropy(targets)
        del predictions
        loss.backward()
        graph.replay()
        assert doubled.flatten().tolist() == expected


def test_the_gradient_of_a_loss_takes_the_memory_of_predictions(device: Device) -> None:
    allocator = getattr(device.inner, "allocator", None)
    if allocator is None:
        pytest.skip("nothing counts the memory")
    x, targets = tl.randn((64, 8), device=device), Tensor.zeros(64, dtype="i64", device=device)
    w = Var(tl.randn((4096, 8), device=device))
    most = []
    for keeps in (False, False, False, True):
        predictions = x.linear(w)
        loss = predictions.cross_entropy(targets)
        if not keeps:
            del predictions
        allocator.peak = before = allocator.allocated
        loss.backward()
        most.append(allocator.peak - before)
        predictions = None
    assert most[3] - most[2] >= 64 * 4096 * 4


def test_recording_makes_few_calls(device: Device) -> None:
    x, y = tl.randn((4, 4), device=device), Var(tl.randn((4, 4), device=device)) * 1.0

    def calls(op: Callable[[Tensor], object], operand: Tensor) -> int:
        count = 0

        def note(_: object, event: str, __: object) -> None:
            nonlocal count
            count += event == "call"

        def counted() -> int:
            nonlocal count
            count = 0
            sys.setprofile(note)
            try:
                op(operand)
            finally:
                sys.setprofile(None)
            return count

        # The first ones record a plan, what other tests left may be collected in the middle of any, and how far out the
        # call site is was learned of their calls: one in 16 mends that.
        return min(counted() for _ in range(20))

    ops: list[tuple[Callable[[Tensor], object], int]] = [
        (lambda x: x.relu(), 2),
        (lambda x: x + x, 2),
        (lambda x: x @ x, 3),
        (lambda x: x.sum(0), 2),
        (lambda x: x.softmax(1), 2),
    ]
    for op, most in ops:
        assert calls(op, y) - calls(op, x) <= most
