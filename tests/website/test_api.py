"""The API reference has every public name, with a docstring and an example, and the examples give what they show."""

from __future__ import annotations

import doctest
import inspect
import json
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import tallow
import yaml

from docs.site import api, attributes, entries, observed

ROOT = Path(__file__).parents[2]
PUBLIC = yaml.safe_load((ROOT / "spec/package.yaml").read_text(encoding="utf-8"))["public"]
# Commands, backends, and the standard's namespace with its extensions, of which the reference has one page.
ELSEWHERE = re.compile(r"array_api|fft|linalg|doctor/__main__|launch|run|selftest|\w+_backend")
METHODS = [name for name in dir(tallow.Tensor) if not name.startswith("_")]
# Pages whose names are no calls that a session could show.
WITHOUT_EXAMPLES = ("errors", "internals")
# A number that stands alone.
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?(?![\w])")


def public() -> Iterator[str]:
    """Return the public attributes of the package, of its modules, and of a tensor."""
    yield from (name for name in tallow.__all__ if name != "__version__")
    for name in PUBLIC:
        if not ELSEWHERE.match(name):
            path = name.removesuffix("/__init__").replace("/", ".")
            module = import_module(f"tallow.{path}")
            # The others are annotations.
            yield from (f"{path}.{each}" for each in module.__all__ if callable(getattr(module, each)))
    yield from (f"Tensor.{name}" for name in dir(tallow.Tensor) if not name.startswith("_"))


def documented() -> Iterator[tuple[str, api.Entry]]:
    """Each entry and the page that it is on."""
    for page, own in api.entries().items():
        for entry in own:
            yield page, entry
            yield from ((page, member) for member in entry.members)


def value_of(name: str) -> object:
    owner, attribute = api.owner_of(name)
    return getattr(owner, attribute, None)


def docstring(name: str) -> str:
    """Return the text that `help` prints of a name; of an attribute of a class, the text below it in the source."""
    owner, attribute = api.owner_of(name)
    value = api.resolve(name)
    is_function = callable(getattr(value, "__func__", value)) or isinstance(value, property | cached_property)
    if inspect.isclass(owner) and not is_function:
        return attributes.docstring_of(owner, attribute)
    return inspect.getdoc(getattr(value, "__func__", value)) or ""


def test_each_public_name_has_one_entry() -> None:
    names = [entry.name for _, entry in documented()]
    assert len(names) == len(set(names))
    # Functions at the top that are methods too have one entry.
    known = [value_of(name) for name in names if callable(value_of(name))]
    lacking = [name for name in public() if name not in names and value_of(name) not in known]
    assert lacking == [], "add them to a page of docs/site/api.yaml"
    assert len(names) > 400


def test_each_entry_has_a_docstring() -> None:
    for _, entry in documented():
        text = docstring(entry.name)
        assert text, f"{entry.name} has no docstring"
        assert text.partition("\n\n")[0].endswith((".", ":")), f"{entry.name}: its summary is no sentence"


def test_each_entry_has_an_example() -> None:
    """Of a class, in its docstring, in that of a member, or in that of a tensor method that it names."""
    lacking = []
    for page, own in api.entries().items():
        for entry in own if page not in WITHOUT_EXAMPLES else ():
            texts = [docstring(it.name) for it in (entry, *entry.members)]
            texts += [docstring(name) for name in re.findall(r"`(Tensor\.\w+)`", texts[0])]
            if entry.directive != "data" and not any(">>> " in text for text in texts):
                lacking.append(entry.name)
    assert lacking == []


class Checker(doctest.OutputChecker):
    """Numbers are equal if they are to the precision of f32, since each backend rounds in its own way."""

    def check_output(self, want: str, got: str, flags: int) -> bool:
        if super().check_output(want, got, flags):
            return True
        # Columns are as wide as their numbers.
        if NUMBER.sub("", want).split() != NUMBER.sub("", got).split():
            return False
        pairs = [[float(text) for text in NUMBER.findall(each)] for each in (want, got)]
        return np.allclose(*pairs, rtol=1e-5, atol=1e-6)


def sessions() -> Iterator[doctest.DocTest]:
    parser = doctest.DocTestParser()
    for name in dict.fromkeys(entry.name for _, entry in documented() if entry.directive != "data"):
        if ">>> " in docstring(name):
            names = {"tl": tallow, "np": np}
            yield parser.get_doctest(docstring(name), names, name, None, 0)


class Runner(doctest.DocTestRunner):
    """Keeps what failed, to show or to write it."""

    def __init__(self) -> None:
        super().__init__(Checker(), verbose=False, optionflags=doctest.ELLIPSIS)
        self.changed: dict[tuple[str, str], str] = {}

    def report_failure(self, out: object, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        if example.exc_msg is not None and got.startswith("Traceback"):
            got = f"Traceback (most recent call last):\n    ...\n{got.splitlines()[-1]}\n"
        self.changed[example.source, example.want] = got


def test_examples_give_what_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """--update-golden writes what they give to the docstrings, and to the spec."""
    monkeypatch.chdir(tmp_path)
    runner, report, count = Runner(), [], 0
    for session in sessions():
        count += len(session.examples)
        runner.run(session, out=report.append)
    if request.config.getoption("--update-golden"):
        for (source, want), got in runner.changed.items():
            rewrite(source, want, got)
    else:
        shown = "\n".join(f">>> {source}expected {want}got {got}" for (source, want), got in runner.changed.items())
        assert not runner.changed, shown
        assert not report, "".join(report)
    assert count > 400


def rewrite(source: str, want: str, got: str) -> None:
    """Write what an example gives into the file that has it."""
    for file in (
        *(ROOT / "runtime").rglob("*.py"),
        *(ROOT / "templates").rglob("*.j2"),
        *(ROOT / "spec").rglob("*.yaml"),
    ):
        old = text = file.read_text(encoding="utf-8")
        if file.suffix == ".yaml":
            call, was, now = (json.dumps(it.strip(), ensure_ascii=False) for it in (source, want, got))
            text = text.replace(f"{call}: {was}", f"{call}: {now}")
        else:
            for margin in {line[: len(line) - len(line.lstrip())] for line in text.splitlines() if ">>>" in line}:
                was, now = (
                    "".join(f"{margin}{line}\n" for line in f">>> {source}{it}".splitlines()) for it in (want, got)
                )
                text = text.replace(was, now)
        if text != old:
            file.write_text(text, encoding="utf-8")


def test_an_example_that_is_wrong_is_found() -> None:
    runner = Runner()
    text = ">>> tl.Tensor([1.0, 2.0]).sqrt()\nTensor([1.0000, 1.5142], dtype=f32)\n"
    runner.run(doctest.DocTestParser().get_doctest(text, {"tl": tallow}, "x", None, 0), out=lambda _: None)
    assert len(runner.changed) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`dim` of x_ * y", r"`dim` of x\_ \* y"),
        ("`x + 1`", "``x + 1``"),
        ("`reshape` of a `Var`", "`reshape` of a `Var <tallow.Var>`"),
        ("a*b:\n\n    x = a * b\n\nc_", "a\\*b:\n\n.. code-block:: python\n\n    x = a * b\n\nc\\_"),
        ("`x`\n\n>>> a * b\n[1_0]", "`x`\n\n>>> a * b\n[1_0]"),
    ],
)
def test_docstrings_are_written_for_sphinx(text: str, expected: str) -> None:
    assert "\n".join(entries.restructured(text.split("\n"))) == expected


def test_the_facts_of_an_entry_are_those_of_the_spec_and_of_calls() -> None:
    expected = {
        "exp": {"Dtypes": "float, complex; :doc:`on each backend </reference/ops/exp>`", "Gradient": "yes"},
        "floor": {"Dtypes": "real; :doc:`on each backend </reference/ops/floor>`", "Gradient": "zero"},
        "one_hot": {"Dtypes": "integer", "Gradient": "none"},
        "masked_fill": {"Dtypes": "all", "Gradient": "yes"},
        "permute": {"Dtypes": "all", "Gradient": "yes"},
        "item": {"Dtypes": "all"},
    }
    for name, own in expected.items():
        facts = dict(line[1:].split(": ", 1) for line in entries.facts(f"Tensor.{name}"))
        assert {key: text for key, text in facts.items() if key in ("Dtypes", "Gradient")} == own


def test_gradients_have_gradients() -> None:
    """The index page says so of all."""
    actual = {name: gradient for name in METHODS if (gradient := observed.gradient_of(name)) is not None}
    assert [name for name, gradient in actual.items() if gradient.exists != gradient.has_gradient] == []
    assert sum(gradient.exists for gradient in actual.values()) > 120
