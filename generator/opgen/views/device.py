"""The view of device.py: the dispatch of the device methods."""

from dataclasses import dataclass

from opgen.model import Spec
from opgen.views.method import MethodView, device_method
from opgen.views.python import import_lines, quoted


@dataclass(frozen=True)
class DeviceBackendView:
    """What the device's dispatch needs of one backend."""

    name: str
    device: str
    storage: str
    takes_ordinal: bool
    bound: str  # ` as device` where the label reads it
    label: str
    display: str


@dataclass(frozen=True)
class DeviceView:
    """device.py."""

    doc: str
    imports: tuple[str, ...]
    backends: tuple[DeviceBackendView, ...]
    preferred: tuple[DeviceBackendView, ...]  # from the best one down
    names: str
    example: str
    methods: tuple[MethodView, ...]


def _text(template: str) -> str:
    """A string, or an f-string where the ordinal stands in it."""
    return ("f" if "{ordinal}" in template else "") + quoted(template.replace("{ordinal}", "{device.ordinal}"))


def device(spec: Spec, _: str | None) -> DeviceView:
    """The class Device."""
    backends = tuple(
        DeviceBackendView(
            name=backend.name,
            device=f"{backend.class_prefix}Device",
            storage=f"{backend.class_prefix}Storage",
            takes_ordinal="{ordinal}" in backend.label,
            bound=" as device" if "{ordinal}" in backend.label else "",
            label=_text(backend.label),
            display=_text(backend.display),
        )
        for backend in spec.backends
    )
    methods = tuple(device_method(spec, method) for method in spec.device_methods)
    text = "\n".join(line for method in methods for line in method.checks)
    groups = {group.upper() for group in spec.groups if f" {group.upper()}," in text}
    imports = import_lines(
        {
            "..": {"check"},
            ".backends": {"AnyDevice", *(backend.device for backend in backends)},
            ".dtype": {"Array", "DType", *groups},
            ".error": {"BackendUnavailable", "InvalidArgument", "UnsupportedDType"},
            ".shape": {"Shape"},
            ".storage": {"Storage"},
        }
    )
    preference = {backend.name: backend.preference for backend in spec.backends}
    return DeviceView(
        doc=spec.device_doc,
        imports=tuple(line.replace("from .. ", "from . ") for line in imports),
        backends=backends,
        preferred=tuple(sorted(backends, key=lambda backend: -preference[backend.name])),
        names=", ".join(backend.name for backend in backends),
        example=next((f"{backend.name}:1" for backend in backends if backend.takes_ordinal), backends[0].name),
        methods=methods,
    )
