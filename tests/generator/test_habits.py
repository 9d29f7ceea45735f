"""What people write out of habit, from Python, C++, NumPy and YAML 1.1: the error says what to write instead."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import own_spec
import pytest
from opgen.aliases import dtype_name
from opgen.claims.evaluation import Evaluator
from opgen.claims.formats import Integers
from opgen.cli import main
from opgen.formula.kinds import kind_of
from opgen.formula.nodes import FormulaError
from opgen.formula.parsing import parse
from opgen.formula.primitives import Primitives
from opgen.loader import parsed
from opgen.problem import nearest, unknown_dtype
from opgen.unused import _functor_problems

from .project import Project

PATH = Path("spec/functors/unary.yaml")
WRITTEN = re.compile(r"; write (.+?)(?:, or bitwise_xor\(x, y\) for bits)?$")
# No formula has them: a product of matrices, and membership.
WITHOUT = (ast.MatMult, ast.In, ast.NotIn)


def primitives() -> Primitives:
    return own_spec.read().primitives


def advised(text: str) -> str:
    """The formula that the error about `text` says to write."""
    with pytest.raises(FormulaError) as caught:
        parse(text)
    match = WRITTEN.search(str(caught.value))
    assert match is not None, caught.value
    parse(match[1])
    return match[1]


def value(formula: str, **numbers: int) -> object:
    """What a formula gives of integers."""
    evaluator = Evaluator(primitives(), Integers(-(2**63), 2**63 - 1) if "bitwise" in formula else None)
    return evaluator.function(parse(formula), [*numbers])(*numbers.values())


def operators() -> Iterator[str]:
    """Each operator of Python, between x and y."""
    for kind in (ast.operator, ast.unaryop, ast.cmpop, ast.boolop):
        for operator in kind.__subclasses__():
            x, y = ast.Name("x"), ast.Name("y")
            tree: ast.expr
            if kind is ast.unaryop:
                tree = ast.UnaryOp(operator(), x)
            elif kind is ast.operator:
                tree = ast.BinOp(x, operator(), y)
            elif kind is ast.cmpop:
                tree = ast.Compare(x, [operator()], [y])
            else:
                tree = ast.BoolOp(operator(), [ast.Compare(x, [ast.Lt()], [y]), ast.Compare(x, [ast.Gt()], [y])])
            if operator not in WITHOUT:
                yield ast.unparse(tree)


@pytest.mark.parametrize("text", [*operators()])
def test_an_operator_of_python_is_a_formula_or_has_one(text: str) -> None:
    try:
        parse(text)
    except FormulaError:
        formula = advised(text)
        for numbers in ({"x": 7, "y": 3}, {"x": 3, "y": 7}, {"x": 0, "y": 2}):
            expected = numbers["x"] ** numbers["y"] if "^" in text else eval(text, dict(numbers))
            assert value(formula, **{name: numbers[name] for name in ("x", "y")}) == expected, formula


@pytest.mark.parametrize(
    "text",
    [
        "x if x > y else y",
        "x if x > 1 and y > 1 else 0",
        "x if x > 1 or not y > 1 else 0",
        "1 if 1 < x < y else 0",
        "1 < x <= y",
        "x > 1 and (y > 1 or x > 3)",
        "x ** 2 if x else y % 2",
        "(lambda: 2) and x ** 2",
    ],
)
def test_conditions_of_python_are_choices(text: str) -> None:
    formula = advised(text)
    for numbers in ({"x": 7, "y": 3}, {"x": 1, "y": 7}, {"x": 0, "y": 2}):
        assert bool(value(formula, **numbers)) == bool(eval(text, dict(numbers)))


def calls() -> list[tuple[str, list[str]]]:
    return [(each.name, list(each.parameters)) for each in primitives().values() if each.name.isidentifier()]


@pytest.mark.parametrize("prefix", ["np", "numpy", "math", "torch", "torch.nn.functional", "jnp", "tl", "std"])
def test_a_function_of_a_library_is_the_primitive(prefix: str) -> None:
    for name, parameters in calls():
        text = f"{prefix}.{name}({', '.join(parameters)})"
        assert advised(text) == f"{name}({', '.join(parameters)})".replace("where(condition,", "where(condition != 0,")
        if prefix == "std":
            assert advised(text.replace("std.", "std::")).startswith(f"{name}(")


def test_a_method_of_a_tensor_is_the_primitive() -> None:
    for name, (first, *others) in calls():
        if name != "where":
            assert advised(f"{first}.{name}({', '.join(others)})") == f"{name}({', '.join((first, *others))})"


def test_a_primitive_without_its_operands_is_told_with_them() -> None:
    for name, parameters in calls():
        for text in (name, f"np.{name}", f"x.{name}"):
            with pytest.raises(FormulaError) as caught:
                kind_of(parse(text), {"x": "float"}, primitives())
            if text.startswith("x."):
                parameters = ["x", *parameters[1:]]
            assert str(caught.value).endswith(f"; write {name}({', '.join(parameters)})")


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("x && y", "where(x != 0, where(y != 0, 1, 0), 0) != 0"),
        ("x || y", "where(x != 0, 1, where(y != 0, 1, 0)) != 0"),
        ("!x", "where(x != 0, 0, 1) != 0"),
        ("x > 0 ? exp(x) : y", "where(x > 0, exp(x), y)"),
        ("1.5f * x", "1.5 * x"),
        ("2x + 1", "2 * x + 1"),
        ("sqrt x", "sqrt(x)"),
        ("exp(x", "exp(x)"),
        ("exp(x))", "exp(x)"),
        ("return x;", "x"),
        ("x\u00b2", "pow(x, 2)"),
        ("x \u00d7 y \u2212 1", "x * y - 1"),
        ("x = y", "x == y"),
        ("np.clip(x, 0, 1)", "minimum(maximum(x, 0), 1)"),
        ("np.absolute(x)", "abs(x)"),
        ("torch.add(x, y) ** 2", "pow(x + y, 2)"),
        ("np.where(x > 0 and y > 0, x, y)", "where(x > 0, where(y > 0, x, y), y)"),
    ],
)
def test_what_is_no_python_has_a_formula(text: str, formula: str) -> None:
    assert advised(text) == formula


def test_what_has_no_formula_says_what_a_formula_is() -> None:
    for text in ("[x]", "(x, y)", "f'{x}'", "'a'", "None", "2j", "x[0]", "exp(*x)", "await x", "x @ y", "x in y"):
        with pytest.raises(FormulaError, match="cannot stand; write names, numbers, primitives and"):
            parse(text)
    for text in ("x; y", "x :", "for x in y", "#", "x +"):
        with pytest.raises(FormulaError, match="; write it like 'x \\* sigmoid\\(x\\)'"):
            parse(text)


# Names.


def test_the_names_that_numpy_and_c_have_for_dtypes_are_known() -> None:
    dtypes = {
        np.dtype(each.numpy.removeprefix("numpy.")): each.name
        for each in own_spec.read().dtypes
        if "numpy." in each.numpy
    }
    # Of `float` and `int` Python has 64 bits, and C and PyTorch 32.
    # ml_dtypes adds some of its own, where another test has imported it.
    words = {
        str(word): np.dtype(kind)
        for word, kind in np.sctypeDict.items()
        if word not in ("float", "int", "uint") and kind.__module__ == "numpy"
    }
    for word, dtype in words.items():
        assert dtype_name(word) in (None, dtypes.get(dtype)), word
        if word == dtype.name and dtype in dtypes:
            assert dtype_name(f"np.{word}") == dtypes[dtype]
    for each in own_spec.read().dtypes:
        assert dtype_name(each.name) == each.name
        assert dtype_name(each.numpy) == each.name
        assert dtype_name(f"torch.{each.numpy.rpartition('.')[2]}") == each.name
    assert [dtype_name(word) for word in ("fp16", "half", "double", "fp32", "bfloat16")] == [
        "f16",
        "f16",
        "f64",
        "f32",
        "bf16",
    ]


def test_a_dtype_that_the_spec_lacks_is_added_by_a_command() -> None:
    assert unknown_dtype("float32", ["f32", "float"]) == "; did you mean 'f32'?"
    for word in ("bf16", "bfloat16", "torch.bfloat16"):
        assert unknown_dtype(word, ["f16", "f32"]) == "; 'opgen new dtype bf16' adds it"


def mistyped(word: str) -> Iterator[str]:
    """A word without its last letter, with two letters the other way around, and in capitals."""
    yield word[:-1]
    yield word[:-2] + word[-1] + word[-2]
    yield word.upper()


def commands(group: click.Group, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield (*names, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)


def test_a_mistyped_command_names_the_right_one(small: Project) -> None:
    for (*before, name), _ in commands(main):
        for word in mistyped(name):
            if word != name and len(name) > 2:
                result = small.run(*before, word)
                assert result.exit_code == 2
                assert f"'{name}'" in result.stderr, (word, result.stderr)


def test_a_mistyped_op_names_the_right_one() -> None:
    names = [functor.name for kind in own_spec.read().functors.values() for functor in kind.functors]
    for name in names:
        for word in mistyped(name):
            assert word in names or len(name) < 4 or nearest(word, names) is not None, word


def test_help_cites_no_page_that_is_not_installed() -> None:
    for names, command in commands(main):
        texts = [command.help or "", *(getattr(parameter, "help", None) or "" for parameter in command.params)]
        assert not re.search(r"\bdocs/[\w-]+\.md|CONTRIBUTING", " ".join(texts)), names


def test_names_of_the_project_complete_in_the_shell(small: Project) -> None:
    """Each parameter that takes a name of the spec offers all of them, and the rest of one that is begun."""
    offered: dict[str, set[str]] = {}
    for (command, *_), actual in commands(main):
        for parameter in actual.params:
            own = getattr(parameter, "_custom_shell_complete", None)
            if own is not None:
                context = click.Context(actual, obj=small.root)
                words = {item.value for item in parameter.shell_complete(context, "")}
                offered[f"{command} {parameter.name}"] = words
                start = min(words)[:1] if words else ""
                begun = {item.value for item in parameter.shell_complete(context, start)}
                assert begun == {word for word in words if word.startswith(start)}
    assert {"neg", "host", "f16", "unary_impl"} <= offered["explain name"]
    assert {"neg", "unary_impl"} <= offered["matrix op"]
    assert (
        offered["matrix backends"]
        == offered["explain backend"]
        == {"host", "accelerator", "accelerator_two", "planned"}
    )
    assert "f16" in offered["matrix dtypes"]
    assert {"compile targets", "compile families", "new family"} <= offered.keys()


def test_completion_outside_of_a_project_and_of_a_broken_one_is_silent(
    small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameter = next(each for each in dict(commands(main))[("explain",)].params if each.name == "name")
    context = click.Context(main, obj=None)
    monkeypatch.chdir(tmp_path)
    assert parameter.shell_complete(context, "") == []
    (small.root / "spec/dtypes.yaml").write_text("<", encoding="utf-8")
    assert parameter.shell_complete(click.Context(main, obj=small.root), "") == []


# YAML.


def problems(text: str) -> list[str]:
    return [f"{each.location.line}: {each.message}" for each in parsed(text, PATH)[1]]


@pytest.mark.parametrize("sign", [*string.punctuation, "\u00a0", "\u3000", "\t"])
def test_a_text_that_is_no_plain_one_is_to_be_quoted(sign: str) -> None:
    """With any sign at its beginning, inside or at its end, a doc is read as it is or is to be put in quotes."""
    for value in (f"{sign}a b", f"{sign} a", f"a {sign} b", f"a{sign} b", f"a{sign}", f"{sign}a{sign} b"):
        for text, line in (
            (f"ops:\n  a:\n    doc: {value}\n    dtypes: all\n", 3),
            (f"ops:\n  a: {{doc: {value}, dtypes: all}}\n", 2),
        ):
            document, actual = parsed(text, PATH)
            if document is not None or (line == 2 and sign in "{}[],"):
                continue
            fixes = ("put it in quotes", "in quotes", "write a space", "close it")
            assert actual[0].location.line == line, (text, actual)
            assert any(fix in actual[0].message for fix in fixes), (text, actual)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n  doc:b\n  c: d\n", "2: 'doc:' has no space after it; write 'doc: b'"),
        ("a:\n  doc = b\n  c: d\n", "2: 'doc = b' is no entry; write 'doc: b'"),
        (
            "a:\n  b: c\n d: e\n",
            "3: the indentation of this line is 1, and of those that it could follow 0 or 2; indent it like one",
        ),
        ("a:\n  b: c\n  - d: e\n", "3: an element of a list stands among keys; write 'd: e' without the dash"),
        ("a: {b: c\nd: e\n", "1: the bracket { is not closed, or lacks a comma; close it with }"),
        ("a: [b, c\nd: e\n", "1: the bracket [ is not closed, or lacks a comma; close it with ]"),
        ('a: "b\nc: d\n', "1: the quote that opens here is not closed; close it, or put the text in quotes as a whole"),
        ("a: 1\n---\nb: 2\n", "2: a second document begins here; remove this line"),
        ("a: 1\na: 2\n", "2: key 'a' stands twice, first at line 1; keep one"),
        ("a:\n\tb: 1\n", "2: a tab indents this line; indent it with spaces"),
    ],
)
def test_an_error_of_yaml_says_what_to_write(text: str, message: str) -> None:
    assert problems(text) == [message]


@pytest.mark.parametrize("file", ["spec/functors/unary.yaml", "templates/tallow/limits.py.j2"])
def test_a_conflict_of_a_merge_is_told_at_its_first_line(small: Project, file: str) -> None:
    path = small.root / file
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join((*lines, "<<<<<<< HEAD", "a", "=======", "b", ">>>>>>> other")) + "\n", encoding="utf-8")
    result = small.run("check")
    assert f"{file}:{len(lines) + 1}:1: a merge left a conflict, which '<<<<<<< HEAD' marks; " in result.stderr


@pytest.mark.parametrize(
    ("text", "fix"), [("yes", "true"), ("no", "false"), ("On", "true"), ("'false'", "false"), ("0", "false")]
)
def test_truth_of_another_kind_says_which_it_is(small: Project, text: str, fix: str) -> None:
    small.edit("spec/functors/unary.yaml", "neg: {", f"neg: {{tensor: {text}, ")
    assert re.search(
        rf"'tensor' of op 'neg' must be true or false, not .*; write {fix}$", small.run("check").stderr, re.MULTILINE
    )


def test_a_parameter_that_no_formula_names_is_refused() -> None:
    spec = own_spec.read()
    for kind in spec.functors.values():
        for functor in kind.functors:
            if not functor.is_gradient and functor.name != "to_dtype":
                assert not [each for each in _functor_problems(spec, functor) if "of 'parameters'" in each.message]
                more = replace(functor, parameters={**functor.parameters, "unnamed": 1.0})
                (result,) = [each for each in _functor_problems(spec, more) if "of 'parameters'" in each.message]
                assert "names 'unnamed' of 'parameters'; remove it, or use it" in result.message
