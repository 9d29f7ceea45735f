"""Where a line of an output comes from, as explain says it."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from opgen.alignment import lines_before
from opgen.base import with_base
from opgen.explanation import GENERATED, Fact, generated
from opgen.folders import TEMPLATES
from opgen.format import formatted
from opgen.loader import Value, load
from opgen.plan import Output
from opgen.problem import Location, Problems, Refusal, did_you_mean, lines_of
from opgen.project import Project
from opgen.provenance import Origin, Source, marked
from opgen.render import with_banners
from opgen.sources import location_of


def explain_line(project: Project, path: Path, number: int) -> Fact:
    """Where a line of an emitted file comes from. Refusal where there is no such line, or the file is out of date."""
    output, relative = _output_at(project, path)
    texts, origins = emitted_lines(project, [output])[output.path]
    try:
        is_current = (project.root / GENERATED / relative).read_bytes() == "\n".join(texts).encode()
    except OSError:
        is_current = False
    if not is_current:
        raise Refusal(f"{GENERATED}/{relative} is not what the spec says; run 'opgen generate' first")
    if not 1 <= number < len(texts):
        raise Refusal(f"{GENERATED}/{relative} has {len(texts) - 1} lines, and no line {number}")
    return _line_fact(project, generated(output.path, number), texts[number - 1], origins[number - 1])


def emitted_lines(project: Project, outputs: Iterable[Output]) -> dict[PurePosixPath, tuple[list[str], list[Origin]]]:
    """The lines of outputs as they are written, and where each comes from."""
    outputs = list(outputs)
    marked_texts = {output.path: marked(output, project.sources) for output in outputs}
    bodies = {path: body for path, (body, _) in marked_texts.items()}
    laid_out = formatted(bodies)
    texts = with_banners(outputs, laid_out)
    lines_of_outputs = {}
    for output in outputs:
        body, origins = marked_texts[output.path]
        lines = lines_before(body, laid_out[output.path]) if output.path.suffix == ".py" else range(len(origins))
        banner = Origin(location_of(output.template))
        lines_of_outputs[output.path] = (texts[output.path].split("\n"), [banner, *(origins[line] for line in lines)])
    return lines_of_outputs


def _output_at(project: Project, path: Path) -> tuple[Output, PurePosixPath]:
    """The output that a path means, from the project's folder, from that of the outputs or from here."""
    known = {output.path: output for output in project.outputs}
    written = PurePosixPath(path.as_posix())
    tries = [written, written.relative_to(GENERATED) if written.is_relative_to(GENERATED) else written]
    here = (Path.cwd() / path).resolve()
    output = (project.root / GENERATED).resolve()
    tries += [PurePosixPath(here.relative_to(output).as_posix())] if here.is_relative_to(output) else []
    for each in tries:
        if each in known:
            return known[each], each
    sources = [str(source) for source in project.sources.paths]
    if str(written) in sources or here.is_file():
        raise Refusal(f"{written} is not emitted: it is written by hand, so edit it there")
    message = f"no output is '{written}'{did_you_mean(str(written), [f'{GENERATED}/{each}' for each in known])}"
    raise Refusal(message if len(message) < 500 else f"no output is '{written}'; 'opgen list' has them all")


def _line_fact(project: Project, where: Location, text: str, origin: Origin) -> Fact:
    """Return the facts about a line."""

    def read(label: str, location: Location) -> Fact:
        return Fact(label, _line_of(project, location), location)

    entries = _Entries(project)
    values = dict.fromkeys(map(entries.location_of, origin.values))
    around = [location for location in dict.fromkeys(map(entries.location_of, origin.around)) if location not in values]
    parts = [
        read("template", origin.template),
        *(read("called by", location) for location in origin.callers),
        *(read("from", location) for location in values),
        *(read("for", location) for location in around),
    ]
    if not values and not around:
        parts.append(Fact("from", "the template alone, or all of the spec"))
    return Fact("line", text.strip(), where, tuple(parts))


class _Entries:
    """The values of the spec's files by their locations."""

    def __init__(self, project: Project) -> None:
        documents = load(project.root, [])
        with_base(documents, Problems())
        self._roots = {path: document.root for path, document in documents.items()}
        self._values: dict[Location, Value] = {}
        for root in self._roots.values():
            self._add(root)

    def _add(self, value: Value) -> None:
        self._values.setdefault(value.key_location, value)
        content = value.content
        for inner in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
            self._add(inner)

    def location_of(self, source: Source) -> Location:
        """Where the value of a source stands: that of the keys which the template names, as far as they are keys."""
        value = self._values.get(source.location) or self._roots.get(source.location.path)
        location = source.location
        for key in source.keys:
            if value is None or not isinstance(value.content, dict) or key not in value.content:
                break
            value = value.content[key]
            location = value.key_location
        return location


def _line_of(project: Project, location: Location) -> str:
    """The text of a line of the spec or of a template."""
    path = PurePosixPath(location.path.as_posix())
    if path.is_relative_to(TEMPLATES):
        text = project.sources.text(path) or ""
    else:
        try:
            text = (project.root / location.path).read_text(encoding="utf-8")
        except OSError:  # of the base package
            return ""
    lines = lines_of(text)
    if location == Location(location.path):
        return "the complete file"
    return lines[location.line - 1].strip() if location.line <= len(lines) else ""
