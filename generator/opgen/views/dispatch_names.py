"""The names that modules of the dispatch define and import."""

from opgen.model.kinds import METHOD_OP
from opgen.model.methods import Family
from opgen.model.spec import Spec


def op_classes(spec: Spec) -> tuple[str, ...]:
    """The enums of the functors that are chosen by an argument."""
    return spec.op_classes


def mixin_name(family: Family) -> str:
    """The class of a family's methods: reduce -> ReduceMethods."""
    return "".join(word.capitalize() for word in family.name.split("_")) + "Methods"


def backend_classes(spec: Spec, suffix: str, prefix: str = "") -> tuple[str, ...]:
    """The storage or device classes of all backends; those of block-quantized weights have the prefix Q."""
    return tuple(f"{prefix}{backend.class_prefix}{suffix}" for backend in spec.backends)


def ops_names(spec: Spec) -> tuple[str, ...]:
    """How branches call the ops of the backends that have a runtime."""
    return tuple(backend.name for backend in spec.backends if backend.package is not None)


def argument_names(spec: Spec) -> dict[str, list[str]]:
    """Return the names in signatures of storage methods, by the module that has them."""
    classes = spec.argument_classes
    named = {
        "runtime.core.argument": ["DTypeLike"],
        "runtime.core.conv": [name for name in classes if name.startswith("ParamsConv")],
        "runtime.core.pool": [name for name in classes if name.startswith("ParamsPool")],
        "runtime.ranks.group": [name for name in classes if name == "Group"],
        "custom_op": [name for name in classes if name.startswith(("CustomOp", "InplaceOp"))],
        "op": [*op_classes(spec), METHOD_OP],
    }
    return {module: names for module, names in named.items() if names}
