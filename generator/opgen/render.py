"""Stage 5: templates and views to text."""

import traceback
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from opgen.banner import GENERATE
from opgen.cache.views import ViewCache
from opgen.folders import TEMPLATES
from opgen.plan import COMMENTS, Output
from opgen.problem import Problem, SpecError
from opgen.sources import Sources, location_of
from opgen.views.python import comment, cpp_comment, docstring, quoted

if TYPE_CHECKING:
    import jinja2

# How the file names of templates begin in tracebacks.
_FRAME = f"{TEMPLATES}/"


def render(outputs: Iterable[Output], sources: Sources, views: ViewCache | None = None) -> dict[PurePosixPath, str]:
    """Return the body of every output by its path. Python is not formatted yet."""
    views = views or ViewCache()
    texts: dict[PurePosixPath, str] = {}
    problems: list[Problem] = []
    for output in outputs:
        if sources.text(output.template) is None:
            continue  # which is noted
        try:
            text = views.text(output.path, output.find_view(), sources)
            if text is None:
                template = environment(sources).get_template(str(output.template.relative_to(TEMPLATES)))
                text = template.render(view=output.view())
                views.put(output.path, output.find_view(), sources, text)
            texts[output.path] = text
        except Exception as error:  # a template's expression may raise anything
            problems.append(_problem(error, output))
    if problems or sources.problems:
        raise SpecError([*problems, *sources.problems])
    return texts


def with_banners(outputs: Iterable[Output], bodies: Mapping[PurePosixPath, str]) -> dict[PurePosixPath, str]:
    """The text of every output by its path."""
    template_of = {output.path: output.template for output in outputs}
    return {path: _banner(template_of[path], path, body) + body for path, body in bodies.items()}


@lru_cache(maxsize=1)
def environment(sources: Sources) -> "jinja2.Environment":
    """Return the Jinja environment of the templates."""
    # Importing Jinja takes longest, and is not needed if all texts are cached.
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _source(sources, name)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is source code, not HTML
        bytecode_cache=_bytecode_cache(),
    )
    templates.filters.update(comment=comment, cpp_comment=cpp_comment, docstring=docstring, quoted=quoted)
    return templates


def _bytecode_cache() -> "jinja2.BytecodeCache | None":
    """The templates that this user's earlier runs have compiled; None where there is no safe folder for them."""
    from importlib import metadata

    import jinja2

    class Cache(jinja2.FileSystemBytecodeCache):
        """A damaged file counts as missing, of which Jinja's own class raises errors of pickle."""

        def load_bytecode(self, bucket: "jinja2.bccache.Bucket") -> None:
            try:
                super().load_bytecode(bucket)
            except Exception:
                bucket.reset()

    try:
        return Cache(pattern=f"opgen-jinja-{metadata.version('jinja2')}-%s.cache")
    except (OSError, RuntimeError):
        return None


def _source(sources: Sources, name: str) -> tuple[str, str, None] | None:
    """A template as Jinja takes it, with the file name that its tracebacks then have."""
    path = TEMPLATES / name
    text = sources.text(path)
    return None if text is None else (text, str(path), None)


def _problem(error: Exception, output: Output) -> Problem:
    """An error of a template or of one that it includes, at its line."""
    import jinja2

    where = location_of(output.template)
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.startswith(_FRAME):
            where = location_of(PurePosixPath(frame.f_code.co_filename), line)
    if isinstance(error, jinja2.TemplateSyntaxError):
        where = location_of(TEMPLATES / error.name if error.name else output.template, error.lineno)
    if isinstance(error, jinja2.TemplateNotFound):
        reason = f"there is no template '{error.name}'"
    elif isinstance(error, jinja2.TemplateError):
        reason = str(error)
    else:
        reason = f"{type(error).__name__}: {error}"
    return Problem(where, f"{reason}; fix the template or its view")


def _banner(template: PurePosixPath, path: PurePosixPath, body: str) -> str:
    return GENERATE.line(body, *COMMENTS[path.suffix], source=f"{template} and spec/")
