"""Views of the backends that share the templates of the gpu family."""

from dataclasses import dataclass

from opgen.model import Spec
from opgen.views.python import docstring_body


@dataclass(frozen=True)
class GpuView:
    """What one backend of the family is called."""

    name: str
    prefix: str
    doc: str  # between the template's triple quotes
    extra: str
    dlpack: int


def gpu_backend(spec: Spec, member: str | None) -> GpuView:
    """The backend named `member`."""
    backend = next(backend for backend in spec.backends if backend.name == member)
    return GpuView(
        backend.name,
        backend.class_prefix,
        docstring_body(backend.doc, 0),
        backend.extra or backend.name,
        backend.dlpack,
    )
