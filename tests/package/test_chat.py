"""Conversations as text and tokens: chat templates as transformers renders them, beginnings as llama.cpp adds them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tallow import InvalidArgument
from tallow.gguf import open_gguf, save_gguf
from tallow.models import ModelRuntime

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
    monkeypatch.setattr(ModelRuntime, "generate", lambda _, prompt, *rest: (seen.append(prompt), iter(()))[1])
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
        monkeypatch.setattr(ModelRuntime, "generate", lambda *_: iter((space, letter)))
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
