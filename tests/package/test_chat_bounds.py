"""What chat templates may compute: each filter, method, test and operator is bounded by its operands."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from tallow import InvalidArgument

pytest.importorskip("jinja2", reason="what renders chat templates")

from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_TESTS
from tallow.runtime.tokenizer.sandbox import FILTERS
from tallow.tokenizer import render_chat


def repeated(body: str, start: str = "'a'", times: int = 60) -> str:
    """A template that computes `ns.x` again and again from what it was."""
    step = f"{{% for _ in range({times}) %}}{{% set ns.x = {body} %}}{{% endfor %}}"
    return f"{{% set ns = namespace(x={start}) %}}{step}{{{{ ns.x == 1 }}}}"


LONG = "{% set long = 'a' * 400000 %}"
"""What a template may well make; a tenth of what it may do here, and less than a thousandth of it elsewhere."""
TOO_MUCH = {
    "indent of JSON": "{{ messages | tojson(indent=10**9) }}",
    "indent of JSON as a text": "{% set n = 'a' * 99999 %}{{ ([1] * 999) | tojson(indent=n) }}",
    "separators of JSON": "{% set n = 'a' * 99999 %}{{ ([1] * 999) | tojson(separators=(n, n)) }}",
    "a block of an assistant": "{% for _ in range(9999) %}{% generation %}"
    + "x" * 9999
    + "{% endgeneration %}{% endfor %}",
    "depth of JSON": "{% set ns = namespace(x=[1] * 999) %}"
    + repeated("[ns.x]", "[1] * 999")[37:-15]
    + "{{ ns.x | tojson(indent=4000) }}",
    "times": "{% set n = 10**10 %}{{ 'a' * n }}",
    "times, swapped": "{% set n = 10**10 %}{{ n * [1] }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "large integers": repeated("ns.x * ns.x", "9"),
    "digits": "{{ 1.5 | round(10**9, 'ceil') }}",
    "padding by a filter": "{{ 'a' | center(10**10) }}",
    "padding by a method": "{{ 'a'.ljust(10**10) }}",
    "indented text": "{{ 'a\n' | indent(10**9) }}",
    "indented lines": "{{ ('a\n' * 99999) | indent(4000) }}",
    "a batch": "{{ [1] | batch(10**9, 'x') | list }}",
    "slices": "{{ [1] | slice(10**9) | list }}",
    "width": "{{ '%999999999d' % 1 }}",
    "width as an argument": "{{ '%*d' % (10**9, 1) }}",
    "width of a filter": "{{ '%999999999d' | format(1) }}",
    "width in braces": "{{ '{:>1000000000}'.format(1) }}",
    "width in braces as an argument": "{{ '{:{}}'.format(1, 10**9) }}",
    "width of a date": "{{ strftime_now('%999999999d') }}",
    "joined text": repeated("ns.x ~ ns.x"),
    "added text": repeated("ns.x + ns.x"),
    "captured text": repeated("ns.x").replace(
        "{% set ns.x = ns.x %}", "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"
    ),
    "nested lists": repeated("[ns.x, ns.x]"),
    "nested dicts": repeated("dict(a=ns.x, b=ns.x)"),
    "nested sums": repeated("[ns.x] + [ns.x]"),
    "nested namespaces": repeated("namespace(a=ns.x, b=ns.x)").replace("ns.x == 1", "ns.x"),
    "loops": "{% for _ in range(99999) %}{% for _ in range(99999) %}{% endfor %}{% endfor %}",
    "loops that skip": "{% for _ in range(99999) %}{% for _ in range(99999) if false %}{% endfor %}{% endfor %}",
    "text in a loop": "{% for _ in range(9999) %}" + "x" * 9999 + "{% endfor %}",
    "calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a method that replaces": LONG + "{{ long.replace('a', long) }}",
    "a filter that replaces": LONG + "{{ long | replace('a', long) }}",
    "a method that joins": LONG + "{{ long.join(range(9999) | map('string')) }}",
    "a filter that joins": LONG + "{{ range(9999) | map('string') | join(long) }}",
    "sums of lists": "{{ ([[1]] * 1000) | sum(start=[]) }}",
    "comparisons": LONG + "{% set b = long ~ 'b' %}{% for _ in range(999) %}{{ b == long ~ 'b' }}{% endfor %}",
    "parts of a text": LONG + "{% for _ in range(999) %}{{ long[1:] | length }}{% endfor %}",
    "tests of lists": "{% set a = [1] * 9999 %}{% for _ in range(999) %}{{ a is upper }}{% endfor %}",
    "a text that is found from its end": "{{ long.rfind(other) }}",
    "the last part of a text": "{{ long.rpartition(other) }}",
    "parts of a text from its end": "{{ long.rsplit(other) }}",
    "characters that are stripped": "{{ long.strip(other) }}",
    "groups by a long path": "{{ items | groupby(path) }}",
    "a map by a long path": "{{ items | map(attribute=path) | list }}",
    "a sort by a long path": "{{ items | sort(attribute=path) }}",
    "a sort by many keys": "{{ items | sort(attribute=path.replace('.', ',')) }}",
    "many widths": "{{ ('%9999d' * 9999) % numbers }}",
    "many widths in braces": "{{ ('{:9999}' * 9999).format(*numbers) }}",
    "many places": "{{ ('%(a)s' * 9999) % {'a': long} }}",
    "many places in braces": "{{ ('{0}' * 9999).format(long) }}",
    "a list of characters": "{% for _ in range(99) %}{% set x = long | list %}{% endfor %}",
    "the end of a loop": "{% for _ in range(99) %}{% for _ in long %}{{ loop.length }}{% break %}{% endfor %}"
    "{% endfor %}",
    "a long template": "a" * 300000,
}


VARIABLES: dict[str, Any] = {
    "long": "a" * 99999,
    "other": "b" + "a" * 9999,
    "items": [{}] * 9999,
    "numbers": (1,) * 9999,
    "path": "a" + ".a" * 9999,
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_template_that_computes_too_much_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    # So that it is refused at once.
    monkeypatch.setattr("tallow.runtime.tokenizer.sandbox.MAX_WORK", 1 << 18)
    with pytest.raises(InvalidArgument, match="render_chat: template: it computes too much"):
        render_chat(TOO_MUCH[name], [{"role": "user", "content": "hello"}], **VARIABLES)


CONVERSATION = """
{%- macro text(content) %}{% if content is string %}{{ content | trim }}{% else %}{{ content | tojson(indent=2) }}
{%- endif %}
{%- endmacro %}
{%- if messages[0].role == 'system' %}{% set system, rest = messages[0].content, messages[1:] %}
{%- else %}{% set system, rest = '', messages %}{% endif %}
{%- set ns = namespace(turns=[], last=-1) %}
{%- for m in rest if m.role in ['user', 'assistant'] %}
    {%- set ns.turns = ns.turns + [m] %}{% set ns.last = loop.index0 %}
{%- endfor %}
{%- for m in ns.turns %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles alternate') }}{% endif %}
    {{- '<' ~ m['role'] ~ '>' + text(m.content) + ('' if loop.last else '\\n') }}
    {%- if loop.index0 > ns.last - 2 and '</think>' in m.content %}{{ m.content.split('</think>')[-1] }}{% endif %}
    {%- if loop.first and system %}{{ "{}: {:5}|%d%%|".format(system, 1) % 7 }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ ['<', 'assistant', '>'] | join }}{% endif %}"""


def test_a_long_conversation_is_a_small_part_of_what_a_template_may_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    turns = [{"role": ("user", "assistant")[i % 2], "content": f" {i}</think>{'ü ' * 500}"} for i in range(300)]
    messages = [{"role": "system", "content": "be brief"}, *turns, {"role": "user", "content": [{"a": "<b>"}]}]
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    plain.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    expected = plain.from_string(CONVERSATION).render(messages=messages, add_generation_prompt=True)
    monkeypatch.setattr("tallow.runtime.tokenizer.sandbox.MAX_WORK", 1 << 20)
    assert len(expected) > 300000
    assert render_chat(CONVERSATION, messages) == expected.replace(r"\u003c", "<").replace(r"\u003e", ">")


VALUES: dict[str, Any] = {
    "text": "a" * (1 << 16),
    "bytes": b"a",
    "list": ["a"],
    "tuple": ("a",),
    "dict": {"a": "b"},
    "set": {"a"},
    "number": 5,
    "real": 5.0,
    "range": range(3),
    "keys": {"a": 1}.keys(),
    "generator": (each for each in "a"),
}


def methods() -> Iterator[tuple[str, str]]:
    """The public methods of each of Python's types that a template may meet."""
    for name, value in VALUES.items():
        yield from ((name, each) for each in dir(value) if not each.startswith("_") and callable(getattr(value, each)))


def calls(name: str, full: bool) -> Iterator[str]:
    """Calls of every filter, method, test and operator with some arguments, of which a test has one at most."""
    for inputs in ("", *(ARGUMENTS if full else ARGUMENTS[:2])):
        yield from (f"{{{{ {name} | {each}({inputs}) }}}}" for each in DEFAULT_FILTERS)
        yield from (f"{{{{ {name}.{method}({inputs}) }}}}" for value, method in methods() if value == name)
        yield from (f"{{{{ {name} is {each}({inputs}) }}}}" for each in DEFAULT_TESTS if each.isalpha())
        if inputs:
            yield from (
                f"{{{{ {name} {operator} {inputs} }}}}" for operator in ("+", "-", "*", "/", "//", "%", "**", "~")
            )


ARGUMENTS = ("text", "10**9", "list", "number", "-10**9", "3.5", "true", "none")


@pytest.mark.parametrize(
    "name", [each if each in ("text", "list") else pytest.param(each, marks=pytest.mark.full) for each in VALUES]
)
def test_no_call_makes_much_of_little(name: str, full: bool) -> None:
    """Operands of 64 kB make results and memory of some MB at most, whatever is called with whatever."""
    if full:
        tracemalloc.start()
    try:
        for template in calls(name, full):
            if full:
                tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                size = len(render_chat(template, [], **VALUES))
            except InvalidArgument:
                size = 0
            assert size < 1 << 24, template
            assert tracemalloc.get_traced_memory()[1] - before < 1 << 27, template
    finally:
        tracemalloc.stop()


def test_two_long_texts_are_never_searched_for_each_other() -> None:
    """An algorithm may take the product of their lengths. A text without places is its own format."""
    texts = {"text": "a" * (1 << 16), "other": "a" * (1 << 15)}
    names = [name for value, name in methods() if value == "text" and not name.startswith("format")]
    for call in (*(f"text | {name}(other)" for name in FILTERS), *(f"text.{name}(other)" for name in names)):
        with pytest.raises(InvalidArgument):
            render_chat(f"{{{{ {call} }}}}", [], **texts)


def test_what_has_no_known_cost_is_not_called() -> None:
    for name in DEFAULT_FILTERS.keys() - FILTERS.keys():
        with pytest.raises(InvalidArgument, match=f"No filter named '{name}'"):
            render_chat(f"{{{{ 'a' | {name} }}}}", [])
    refused = {(value, name) for value, name in methods() if "unsafe" in outcome(f"{{{{ {value}.{name}() }}}}")}
    assert {name for value, name in refused if value == "text"} == {"encode", "expandtabs", "maketrans", "translate"}
    harmless = {"copy", "count", "get", "index", "items", "keys", "values"}
    assert {name for value, name in {*methods()} - refused if value != "text"} == harmless


def outcome(template: str) -> str:
    try:
        return render_chat(template, [], **VALUES)
    except InvalidArgument as error:
        return str(error)
