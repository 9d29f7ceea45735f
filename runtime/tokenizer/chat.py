"""Conversations as text, as a model's chat template says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Never

from ..base.error import InvalidArgument, MissingPackage
from ..helpers.installed import installed

_OPERATION: Final = "render_chat"


def render_chat(
    template: str, messages: Iterable[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
) -> str:
    """The text of a conversation: messages are dicts with a `role` and a `content`.

    A template is one of Jinja's, and runs in its sandbox: it comes from a file of unknown origin. What it may
    compute is bounded: a template that loops or makes text for more than some seconds is refused. With
    `add_generation_prompt` the text ends where the model shall go on. `variables` are known to the template too.
    As in transformers, `tools` and `documents` are None unless they are among these.

    `InvalidArgument` where the template fails, computes too much or refuses the messages; `MissingPackage` where jinja2
    is not installed.

    >>> from tallow.tokenizer import render_chat
    >>> template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    >>> render_chat(template, [{"role": "user", "content": "Hello"}])
    '<user>Hello'
    """
    if not installed("jinja2"):
        raise MissingPackage(_OPERATION, "jinja2")
    from .cost import TooMuch
    from .sandbox import Sandbox

    known = {"messages": [*messages], "add_generation_prompt": add_generation_prompt, "tools": None, "documents": None}
    try:
        sandbox = Sandbox({"raise_exception": _refuse, "strftime_now": strftime_now})
        return sandbox.from_string(template).render(known | variables)
    except InvalidArgument:
        raise
    except TooMuch:
        raise _failed("it computes too much") from None
    except Exception as error:  # a stranger's program may raise any
        raise _failed(f"{type(error).__name__}: {error}") from None


def _failed(reason: str) -> InvalidArgument:
    return InvalidArgument(_OPERATION, f"template: {reason}; write the prompt itself")


def _refuse(reason: str) -> Never:
    raise InvalidArgument(_OPERATION, f"messages: the template refuses them: {reason}")


def strftime_now(form: str) -> str:
    """The local time, as templates ask for it."""
    return datetime.now().astimezone().strftime(form)
