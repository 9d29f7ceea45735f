"""Conversations as text, as a model's chat template says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Never

from ..error import InvalidArgument, MissingPackage
from ..installed import installed

_OPERATION: Final = "render_chat"


def render_chat(
    template: str, messages: Iterable[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any
) -> str:
    """The text of a conversation: messages are dicts with a `role` and a `content`.

    A template is one of Jinja's, and runs in its sandbox: it comes from a file that somebody else wrote. With
    `add_generation_prompt` the text ends where the model shall go on. `variables` are known to the template too.

    `InvalidArgument` where the template fails or refuses the messages; `MissingPackage` where jinja2 is not installed.
    """
    if not installed("jinja2"):
        raise MissingPackage(_OPERATION, "jinja2", "model")
    from jinja2 import TemplateError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    known = {"messages": [*messages], "add_generation_prompt": add_generation_prompt} | variables
    try:
        return environment.from_string(template).render(known)
    except InvalidArgument:
        raise
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidArgument(_OPERATION, f"template: {type(error).__name__}: {error}; write the prompt itself") from None


def _json(value: Any, indent: int | None = None) -> str:
    # Jinja's own escapes what HTML does not like.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(reason: str) -> Never:
    raise InvalidArgument(_OPERATION, f"messages: the template refuses them: {reason}")


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
