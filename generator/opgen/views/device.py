"""The view of device.py: the dispatch of the device methods."""

from dataclasses import dataclass

from opgen.model import Backend, Spec
from opgen.views.method import MethodView, device_method
from opgen.views.python import docstring, import_lines, quoted, tuple_of

_STANDARD_IMPORTS = """from collections.abc import Callable, Sequence
from typing import Final, Self, assert_never"""


@dataclass(frozen=True)
class DeviceBackendView:
    """What the device's dispatch needs of one backend."""

    name: str
    device: str
    parameter: str  # of the constructor: the ordinal, for backends that number their devices
    ordinal: str
    label: str
    display: str
    dlpack: int


@dataclass(frozen=True)
class DeviceView:
    """device.py."""

    doc: str
    imports: str
    backends: tuple[DeviceBackendView, ...]
    order: str  # the device classes from the preferred one down
    example: str
    methods: tuple[MethodView, ...]


def _is_numbered(backend: Backend) -> bool:
    return "{ordinal}" in backend.label


def device(spec: Spec, _: str | None) -> DeviceView:
    """The class Device."""
    backends = tuple(
        DeviceBackendView(
            name=backend.name,
            device=f"{backend.class_prefix}Device",
            parameter=", ordinal: int = 0" if _is_numbered(backend) else "",
            ordinal='argument.integer("device", "ordinal", ordinal)' if _is_numbered(backend) else "0",
            label=quoted(backend.label),
            display=quoted(backend.display),
            dlpack=backend.dlpack,
        )
        for backend in spec.backends
    )
    methods = tuple(device_method(spec, method) for method in spec.device_methods)
    text = "\n".join(line for method in methods for line in (method.opening, *(b.body for b in method.branches)))
    dtypes = {group.upper() for group in spec.groups if f" {group.upper()}," in text}
    dtypes |= {"DType"} if "DType." in text else set()
    imports = import_lines(
        {
            ".": {"argument", "check", "pickling"},
            ".backends": {"AnyDevice", *(backend.device for backend in backends)},
            ".argument": {"DTypeLike"},
            ".dtype": {"Array", *dtypes},
            ".error": {"InvalidArgument", "UnsupportedDType"},
            ".shape": {"Shape"},
            ".storage": {"Storage"},
        }
    )
    preference = {backend.name: backend.preference for backend in spec.backends}
    return DeviceView(
        doc=docstring(f"A device of some backend: `inner` is that backend's own. {spec.device_doc}", 4),
        imports=f"{_STANDARD_IMPORTS}\n\n{imports}",
        backends=backends,
        order=tuple_of([backend.device for backend in sorted(backends, key=lambda b: -preference[b.name])]),
        example=next((f"{backend.name}:1" for backend in spec.backends if _is_numbered(backend)), backends[0].name),
        methods=methods,
    )
