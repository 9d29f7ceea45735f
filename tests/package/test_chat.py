"""Conversations as text and tokens: chat templates as transformers renders them, beginnings as llama.cpp adds them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tallow import InvalidArgument
from tallow.gguf import open_gguf, save_gguf

pytest.importorskip("tokenizers", reason="what a tokenizer stands on")

from tallow.tokenizer import Tokenizer, render_chat

from . import decoders
from .vocabularies import SYMBOLS, byte_level, sentence_piece


def test_a_conversation_is_written_by_the_template_of_the_file(tmp_path: Path) -> None:
    template = (
        "{{ bos_token }}{% for message in messages %}\n<{{ message.role }}>{{ message.content | tojson }}\n"
        "{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
    )
    metadata = sentence_piece() | {"tokenizer.chat_template": template}
    save_gguf({}, tmp_path / "model.gguf", metadata)
    with open_gguf(tmp_path / "model.gguf") as file:
        tokenizer = Tokenizer(file.metadata)
    messages = [{"role": "user", "content": "<ü>"}]
    assert tokenizer.chat(messages) == '<s><user>"<ü>"\n<answer>'
    assert tokenizer.chat(messages, add_generation_prompt=False) == '<s><user>"<ü>"\n'
    with pytest.raises(InvalidArgument, match="the file has no chat template"):
        Tokenizer(sentence_piece()).chat(messages)


# What adds the token that begins a text: the file, or its kind of vocabulary where the file does not say.
BEGINNINGS = {
    "sentence-piece": (sentence_piece(), True),
    "sentence-piece with it": (sentence_piece(add_bos_token=True), True),
    "sentence-piece without it": (sentence_piece(add_bos_token=False), False),
    "gpt-2": (byte_level(bos_token_id=len(SYMBOLS)), False),
    "gpt-2 with it": (byte_level(bos_token_id=len(SYMBOLS), add_bos_token=True), True),
    "llama-bpe": (byte_level("llama-bpe", bos_token_id=len(SYMBOLS)), True),
    "qwen2": (byte_level("qwen2", bos_token_id=len(SYMBOLS), eos_token_id=len(SYMBOLS) + 1), False),
    "with an end": (sentence_piece(add_eos_token=True), True),
}


@pytest.mark.parametrize("name", BEGINNINGS)
@pytest.mark.parametrize("before", ["", "{{ bos_token }}", "{{ bos_token }}{{ bos_token }}", "a"])
@pytest.mark.parametrize("after", ["", "{{ eos_token }}", "b"])
def test_a_conversation_begins_as_llama_cpp_begins_it(
    name: str, before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tallow.runtime import run

    metadata, adds = BEGINNINGS[name]
    template = before + "{% for m in messages %}{{ m.content }}{% endfor %}" + after
    tokenizer = Tokenizer(metadata | {"tokenizer.chat_template": template})
    text = tokenizer.chat([{"role": "user", "content": "abc"}])
    # common_chat_template's apply cuts what the tokenizer adds.
    own, tokens = text, metadata["tokenizer.ggml.tokens"]
    begin, end = tokenizer.bos, tokenizer.eos
    ends = bool(metadata.get("tokenizer.ggml.add_eos_token"))
    if adds and begin is not None:
        own = own.removeprefix(tokens[begin])
    if ends and end is not None:
        own = own.removesuffix(tokens[end])
    expected = [*[begin] * adds, *tokenizer.encode(own, add_special=False, parse_special=True), *[end] * ends]
    assert tokenizer.encode(text, parse_special=True) == expected
    seen: list[list[int]] = []
    monkeypatch.setattr(run.ModelRuntime, "generate", lambda _, prompt, *rest: (seen.append(prompt), iter(()))[1])
    size = len(tokens)
    arrays = decoders.weights("llama")
    arrays |= {each: np.resize(arrays[each], (size, 24)) for each in ("token_embd.weight", "output.weight")}
    values = {**decoders.metadata("llama"), **metadata, "tokenizer.chat_template": template}
    path = decoders.saved(tmp_path / "m.gguf", arrays, values)
    assert run.main([str(path), "--prompt", "abc", "--chat"]) == 0
    assert seen == [expected]


def test_the_command_writes_the_space_before_the_first_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tallow.runtime import run

    values = {**decoders.metadata("llama"), **decoders.SENTENCES}
    path = decoders.saved(tmp_path / "m.gguf", decoders.weights("llama"), values)
    space, letter = decoders.TEXTS.index("▁"), decoders.TEXTS.index("c")
    for prompt, written in (("ab", " c"), ("", "c")):
        monkeypatch.setattr(run.ModelRuntime, "generate", lambda *_: iter((space, letter)))
        assert run.main([str(path), "--prompt", prompt]) == 0
        assert capsys.readouterr().out == f"{written}\n"


def transformers_environment() -> Any:
    """What transformers renders chat templates with (utils/chat_template_utils.py, _compile_jinja_template)."""
    import json

    from jinja2 import nodes, pass_eval_context
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class AssistantTracker(Extension):
        tags = {"generation"}  # noqa: RUF012 -- as it stands there

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("_generation_support"), [], [], body).set_lineno(line)

        @pass_eval_context
        def _generation_support(self, context: Any, caller: Any) -> Any:
            return caller()

    def tojson(
        x: Any, ensure_ascii: Any = False, indent: Any = None, separators: Any = None, sort_keys: Any = False
    ) -> str:
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    plain = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[AssistantTracker, loopcontrols]
    )
    plain.filters["tojson"] = tojson
    return plain


JSON_OPTIONS: dict[str, list[str]] = {
    "ensure_ascii": ["True", "False"],
    "indent": ["None", "0", "2", "'\t'", "''"],
    "separators": ["None", "(',', ':')", "[' , ', ' : ']"],
    "sort_keys": ["True", "False"],
}
JSON_CALLS = [
    f"messages | tojson({', '.join(f'{name}={value}' for name, value in zip(JSON_OPTIONS, values, strict=True))})"
    for values in itertools.product(*JSON_OPTIONS.values())
]
USED_BY_TEMPLATES = [
    *(f"{{{{ {call} }}}}" for call in JSON_CALLS),
    "{{ messages | tojson }}|{{ messages | tojson(True) }}|{{ messages | tojson(false, 1, (',', ':'), true) }}",
    *(f"{{% if {name} is {test} %}}yes{{% else %}}no{{% endif %}}"
      for name in ("tools", "documents", "messages", "add_generation_prompt", "unheard_of")
      for test in ("none", "not none", "defined", "undefined", "iterable", "false")),
    "{% if tools %}{{ tools | length }}{% endif %}{{ tools or 'no tools' }}{{ documents | default('none') }}",
    "{% for m in messages %}\n  {% generation %}\n{{ m.content }}\n  {% endgeneration %}\n{% endfor %}",
    "{% for m in messages %}{%- generation -%} {{ m.role }} {%- endgeneration -%}{% endfor %}",
    "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% generation %}{% set ns.x = 2 %}{% endgeneration %}{{ ns.x }}",
    "{% macro f(m) %}{% generation %}{{ m.content }}{% endgeneration %}{% endmacro %}{{ f(messages[0]) }}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
]  # fmt: skip


@pytest.mark.parametrize("template", USED_BY_TEMPLATES)
@pytest.mark.parametrize("tools", [None, [], [{"type": "function", "é": {"b": 1, "a": [1.5, None, True]}}]])
def test_templates_render_as_transformers_renders_them(template: str, tools: Any) -> None:
    messages = [
        {"role": "user", "content": "é<'&>"},
        {"role": "assistant", "content": "b", "calls": [{"z": 1, "a": []}]},
    ]
    expected = (
        transformers_environment()
        .from_string(template)
        .render(messages=messages, tools=tools, documents=None, add_generation_prompt=True)
    )
    assert render_chat(template, messages, **({} if tools is None else {"tools": tools})) == expected


def test_templates_know_the_special_tokens_of_the_file() -> None:
    names = ("bos", "eos", "unk", "pad", "sep", "mask")
    template = "|".join(f"{{{{ {name}_token }}}}" for name in names)
    values = sentence_piece(padding_token_id=3, seperator_token_id=4) | {"tokenizer.chat_template": template}
    assert Tokenizer(values).chat([]) == "<s>|</s>|<unk>|<0x00>|<0x01>|"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "messages: the template refuses them: roles must alternate"),
        ("{{ messages.__class__.__mro__ }}", "template: SecurityError"),
        ("{% set _ = messages.append(1) %}", "template: SecurityError"),
        ("{% if %}", "template: TemplateSyntaxError"),
        ("{{ 1 // 0 }}", "template: ZeroDivisionError"),
        ("{% for _ in range(999999999) %}{% endfor %}", "template: OverflowError"),
        ("{{ 'a\t'.expandtabs(10**9) }}", "template: SecurityError"),
        ("{{ (1).to_bytes(10**9) }}", "template: SecurityError"),
        ("{{ 'a'.translate({97: 'aa'}) }}", "template: SecurityError"),
        ("{{ " + "(" * 1000 + ")" * 1000 + " }}", "template: RecursionError"),
        ("{% if 1 %}" * 200 + "{% endif %}" * 200, "template: IndentationError"),
        ("{% for a in b %}" * 30 + "{% endfor %}" * 30, "template: SyntaxError"),
        ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(0) }}", "template: RecursionError"),
    ],
)
def test_a_template_that_fails_or_reaches_too_far_is_refused(template: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^render_chat: {reason}"):
        render_chat(template, [])


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
    "a long template": "a" * 300000,
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_template_that_computes_too_much_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    # So that it is refused at once.
    monkeypatch.setattr("tallow.runtime.tokenizer.sandbox.MOST_WORK", 1 << 18)
    with pytest.raises(InvalidArgument, match="render_chat: template: it computes too much"):
        render_chat(TOO_MUCH[name], [{"role": "user", "content": "hello"}])


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
    monkeypatch.setattr("tallow.runtime.tokenizer.sandbox.MOST_WORK", 1 << 19)
    assert len(expected) > 300000
    assert render_chat(CONVERSATION, messages) == expected.replace(r"\u003c", "<").replace(r"\u003e", ">")
