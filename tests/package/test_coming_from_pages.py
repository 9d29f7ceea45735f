"""The guides for users of PyTorch and NumPy: the calls in their text run, and what they say of both libraries is so."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import math
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tallow as tl
from tallow import Tensor

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("from-pytorch", "from-numpy")
HEADING = "Same name, other call or result"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
CALL = re.compile(r"\(*(?:x|y|w|q|a|mask|integers|array|device|grads|tl|np|bool|float)\b[.\[( ]")


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    result = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text_of(page), re.MULTILINE | re.DOTALL)
    assert result is not None, heading
    return result[1]


def rows(page: str, heading: str) -> list[list[str]]:
    """The rows of the table of a section, without its head."""
    lines = [line for line in section(page, heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def names_of(rank: int, array: Any) -> dict[str, Any]:
    """What calls on the pages name: tensors of 3 in each dim, or of another type, as `array` makes them."""
    ones = array(np.ones((3,) * rank, np.float32))
    integers = array(np.ones((3,) * rank, np.int64))
    weights = tl.Var(Tensor([0.5]))
    grads = (weights * weights).sum().backward()
    vector = array(np.ones(3, np.float32))
    tensors = dict.fromkeys("axyqkv", ones) | dict.fromkeys(("b", "weight", "bias"), vector)
    tensors |= {"w": tl.Var(tl.ones((3,) * rank)), "tensor": tl.ones((3,) * rank), "grads": grads}
    others = {"array": np.ones(3), "mask": ones > 0, "index": integers, "integers": integers}
    return tensors | others | {"device": tl.Device.cpu(), "tl": tl, "np": np}


def run(code: str, array: Any = Tensor) -> list[Exception]:
    """Run code on operands of each rank until one rank does; otherwise, the errors."""
    errors: list[Exception] = []
    for rank in (2, 1, 3, 4, 0):
        try:
            exec(code, names_of(rank, array))
        except tl.BackendUnavailable:
            return []
        except Exception as error:
            errors.append(error)
        else:
            return []
    return errors


def calls(page: str) -> Iterator[str]:
    """The calls in the text of a page: without those of the other library, and what has no values."""
    text = FENCE.sub("", text_of(page))
    for heading in ("What is not here", "Names that differ"):
        text = text.replace(section(page, heading), "")
    for line in text.splitlines():
        own = line.split(" | ")[1] if line.startswith("| ") and " | " in line else line
        yield from (code for code in CODE.findall(own) if CALL.match(code))


@pytest.mark.parametrize(("page", "code"), [(page, code) for page in PAGES for code in dict.fromkeys(calls(page))])
def test_calls_in_the_text_run(page: str, code: str) -> None:
    assert not run(code), page


@pytest.mark.parametrize("page", PAGES)
def test_what_is_said_to_be_refused_is(page: str) -> None:
    table = rows(page, HEADING)
    refused = [left for left, right in table if re.match("(is|are) refused", right)]
    assert len(refused) > 1
    for code in (code for left in refused for code in CODE.findall(left)):
        errors = run(code)
        assert errors, code
        assert all(isinstance(error, tl.TallowError) for error in errors), errors


def test_numpy_takes_what_the_page_says_of_it() -> None:
    for left, _ in rows("from-numpy", HEADING):
        for code in CODE.findall(left):
            if re.match(r"np\.|[\w.]+\(|.* ", code):
                assert not run(code, np.asarray), code


@pytest.mark.parametrize("page", PAGES)
def test_what_is_said_to_be_missing_is(page: str) -> None:
    library = {"from-pytorch": "torch", "from-numpy": "np"}[page]
    missing = [code for code in CODE.findall(section(page, "What is not here")) if code.startswith(f"{library}.")]
    assert len(missing) > 6
    for code in missing:
        _, *path = code.split(".")
        assert not hasattr(Tensor, path[-1]), code
        if path[-1] != "random":
            with pytest.raises(AttributeError):
                attrgetter(".".join(path))(tl)
        value = attrgetter(".".join(path))(np) if library == "np" else None
        if is_function(value):
            with pytest.raises((tl.UnsupportedOperand, TypeError)):
                value(tl.ones(3), *[tl.ones(3)] * code.endswith("interp"))


def is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type)


def test_there_are_three_optimisers() -> None:
    results = {
        name
        for name, value in vars(tl.optim).items()
        if isinstance(value, type) and issubclass(value, tl.optim.Optimizer)
    }
    assert results - {"Optimizer"} == {"SGD", "Adam", "AdamW"}


def test_the_memory_is_shared_as_the_table_says() -> None:
    table = rows("from-numpy", "Arrays in, arrays out")
    assert len(table) == 4
    for left, right in table:
        for code in CODE.findall(left):
            array, x = np.ones(3, np.float32), tl.ones(3)
            result = eval(code, {"array": array, "x": x, "tl": tl, "np": np})
            array[0] = 5.0
            x.fill_(5.0)
            assert (float(result[0]) == 5.0) is right.startswith("shared"), code


@pytest.mark.parametrize("page", PAGES)
def test_views_are_views(page: str) -> None:
    sentence = re.search(r"^(.*?) are views", " ".join(section(page, r"(?:Indexing, v|V)iews and copies").split()))
    assert sentence is not None
    operands = {"view": ((1, 2),), "transpose": (0, 1), "permute": (1, 0), "expand": ((2, 2),), "unsqueeze": (0,)}
    named = re.findall(r"`(?:x\.)?(\w+)`", sentence[1].rpartition(". ")[2])
    assert len(named) > 4
    for name in (name for name in named if name != "None"):
        x = tl.ones((1, 2))
        value = getattr(x, name)
        view = value(*operands.get(name, ())) if callable(value) else value
        assert view.storage is x.storage, name


def test_numpy_and_tallow_differ_as_the_page_says() -> None:
    array = np.array([[3.0, 1.0], [2.0, 5.0]])
    x = Tensor(array)
    assert np.zeros(3).dtype == "float64"
    assert tl.zeros(3).dtype == "f32"
    assert x.std(correction=0).item() == pytest.approx(array.std())
    assert x.std().item() == pytest.approx(array.std(ddof=1))
    assert np.std(x).item() == pytest.approx(array.std())
    halves = np.array([0.5, 2.5])
    assert Tensor(halves).rint().tolist() == np.round(Tensor(halves)).tolist() == halves.round().tolist() == [0.0, 2.0]
    assert Tensor(halves).round().tolist() == [1.0, 3.0]
    assert np.repeat(array, 2).tolist() == x.repeat_interleave(2).tolist()
    assert np.tile(array, 2).tolist() == x.repeat(1, 2).tolist()
    assert array.transpose().tolist() == x.T.tolist()
    assert (np.argsort(array).dtype, np.argmax(array).dtype) == ("int64", "int64")
    assert (x.argsort().dtype, x.argmax().dtype) == ("u32", "u32")
    assert np.cumsum(array).tolist() == np.cumsum(x).tolist()
    assert np.argwhere(array > 2).tolist() == (x > 2).nonzero().tolist()
    assert isinstance(x[0, 0], Tensor)
    assert isinstance(x[0, 0].item(), float)


def test_where_the_dim_comes_last_is_listed() -> None:
    (listed,) = (left for left, right in rows("from-pytorch", HEADING) if right.startswith("the dim comes last"))
    methods = {name: getattr(Tensor, name) for name in dir(Tensor) if not name.startswith("_")}
    signatures = {name: inspect.signature(value).parameters for name, value in methods.items() if callable(value)}
    # `take_along_dim`, whose dim has a default, is called as in PyTorch.
    last = {
        name.rstrip("_")
        for name, own in signatures.items()
        if "indexes" in own and own["dim"].default is not None and [*own].index("indexes") < [*own].index("dim")
    }
    assert last == {name.rstrip("_") for name in re.findall(r"x\.(\w+)\(", listed)}


def test_parameters_of_another_name_are_those() -> None:
    (ours,) = (right for left, right in rows("from-pytorch", HEADING) if left.startswith("parameters"))
    functions = (Tensor.scaled_dot_product_attention, Tensor.backward, tl.optim.Adam)
    known = [name for function in functions for name in inspect.signature(function).parameters]
    assert set(CODE.findall(ours)) <= set(known)


def test_pytorch_and_tallow_differ_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    x = Tensor([[3.0, 1.0], [2.0, 5.0]])
    assert x.max(dim=0).tolist() == [3.0, 5.0]
    assert all(indexes.dtype == "u32" for indexes in (x.argmax(), x.sort()[1], x.topk(2)[1]))
    assert x.nonzero().shape == (4, 2)
    assert Tensor([0.5, 2.5]).round().tolist() == [1.0, 3.0]
    assert Tensor([0.5, 2.5]).rint().tolist() == [0.0, 2.0]
    assert Tensor([1.0], "f64").gelu_erf().item() == pytest.approx((1 + math.erf(0.5**0.5)) / 2)
    tanh = math.tanh((2 / math.pi) ** 0.5 * 1.044715)
    assert Tensor([1.0], "f64").gelu().item() == pytest.approx((1 + tanh) / 2)
    assert isinstance(x.size, int)
    assert (Tensor([1, 2]) / 2).dtype == "f32"
    for left, _ in rows("from-pytorch", HEADING):
        for code in CODE.findall(left):
            ast.parse(code)
    blocks = [code for language, code in FENCE.findall(text_of("from-pytorch")) if language == "python"]
    program = compile("\n".join(blocks), "docs/from-pytorch.md", "exec")
    if importlib.util.find_spec("torch") is not None:
        exec(program, {"tl": tl})
        printed = capsys.readouterr().out.splitlines()
        assert [line.partition(": loss ")[0] for line in printed] == ["step 0", "step 20", "step 40"]
