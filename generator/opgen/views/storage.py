"""Views of the storage dispatch: a module per family, their base and the class made of them."""

import re
from dataclasses import dataclass

from opgen.model import Backend, Family, Spec
from opgen.views.method import MethodView, class_name, storage_method
from opgen.views.python import docstring, import_lines, wrapped

# Where the types that signatures mention live in the emitted package.
_TYPE_MODULES = {
    "CustomOp": "..custom_op",
    "InplaceOp": "..custom_op",
    "Params": "..conv",
    "DType": "..dtype",
    "DTypeLike": "..argument",
    "Layout": "..layout",
    "Shape": "..shape",
    "Op": "..op",
}


@dataclass(frozen=True)
class FamilyView:
    """One family's module."""

    doc: str
    class_name: str
    class_doc: str
    imports: str
    methods: tuple[MethodView, ...]


def mixin_name(family: Family) -> str:
    """The class of a family's methods: reduce -> ReduceMethods."""
    return "".join(word.capitalize() for word in family.name.split("_")) + "Methods"


def backend_classes(spec: Spec, suffix: str) -> list[str]:
    """The storage or device classes of all backends."""
    return [f"{backend.class_prefix}{suffix}" for backend in spec.backends]


def _module_of(name: str) -> str | None:
    if name.startswith(("CustomOp", "InplaceOp")):
        return _TYPE_MODULES[name.rstrip("0123456789")]
    if name.startswith("Params"):
        return _TYPE_MODULES["Params"]
    return _TYPE_MODULES["Op"] if name.endswith("Op") else _TYPE_MODULES.get(name)


def storage_family(spec: Spec, member: str | None) -> FamilyView:
    """The module of the family named `member`."""
    family = next(family for family in spec.families if family.name == member)
    methods = tuple(storage_method(spec, method) for method in family.methods)
    return FamilyView(
        doc=docstring(family.doc, 0),
        class_name=mixin_name(family),
        class_doc=docstring(family.doc, 4),
        imports=_imports(spec, family, methods),
        methods=methods,
    )


def _imports(spec: Spec, family: Family, methods: tuple[MethodView, ...]) -> str:
    text = "\n".join(
        line for method in methods for line in (method.opening, *(branch.body for branch in method.branches))
    )
    modules: dict[str, set[str]] = {"..backends": set(backend_classes(spec, "Storage"))}
    for name in re.findall(r"[A-Z]\w*", "".join(method.definition for method in methods)):
        module = _module_of(name)
        if module is not None:
            modules.setdefault(module, set()).add(name)
    for method in family.methods:
        if method.kind is not None and f"{class_name(method.kind)}." in text:
            modules.setdefault("..op", set()).add(class_name(method.kind))
    if "UnsupportedDType(" in text:
        modules.setdefault("..error", set()).add("UnsupportedDType")
    if re.search(r"\bDType\.", text):
        modules.setdefault("..dtype", set()).add("DType")
    for group in spec.groups:
        if f" {group.upper()}," in text:
            modules.setdefault("..dtype", set()).add(group.upper())
    base = {"StorageBase"} | {name for name in _BASE_FUNCTIONS if f"{name}(" in text}
    base |= {"device_mismatch"} if any("device_mismatch" in method.otherwise.body for method in methods) else set()
    modules[".base"] = base
    if "require_op(" in text:
        modules["..user_op"] = {"require_op"}
    never = ["assert_never"] if any("assert_never" in method.otherwise.body for method in methods) else []
    own = ["Self"] if any("Self" in method.definition for method in methods) else []
    typing = f"from typing import {', '.join(own + never)}\n\n" if own + never else ""
    packages = set(re.findall(r"(?m)\b(argument|check)\.\w+\(", text))
    packages |= {"device as device_module"} if "device_module." in text else set()
    if packages:
        modules[".."] = packages
    return typing + import_lines(modules)


_BASE_FUNCTIONS = ("backend_name", "require_same_device", "require_same_dtype", "require_dtype")


@dataclass(frozen=True)
class StoragePackageView:
    """storage/__init__.py: the class Storage made of the families."""

    imports: str
    bases: str


def storage_package(spec: Spec, _: str | None) -> StoragePackageView:
    """The package that makes one class of the families' methods."""
    imports = import_lines({f".{family.name}": {mixin_name(family)} for family in spec.families})
    names = [mixin_name(family) for family in spec.families]
    return StoragePackageView(imports, wrapped("class Storage(", names, "):", 0))


@dataclass(frozen=True)
class StorageBaseView:
    """storage/base.py: what the families share."""

    imports: str
    backends: tuple[Backend, ...]


def storage_base(spec: Spec, _: str | None) -> StorageBaseView:
    """The base of the families' methods."""
    classes = {"AnyStorage", *backend_classes(spec, "Storage")}
    imports = import_lines(
        {
            "..": {"device as device_module"},
            "..backends": classes,
            "..dtype": {"Array", "DType"},
            "..error": {"DeviceMismatch", "DTypeMismatch", "UnsupportedDType"},
            "..shape": {"Shape"},
            "..user_op": {"UserOp", "require_made", "require_nothing"},
        }
    )
    return StorageBaseView(imports, spec.backends)
