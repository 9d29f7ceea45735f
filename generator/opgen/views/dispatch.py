"""The modules of the dispatch: the methods of storages and devices."""

import re
from collections.abc import Mapping
from types import SimpleNamespace as View
from typing import Final

from opgen.arguments import accepted
from opgen.errors import errors_of
from opgen.model.methods import Family, Method, inner_name
from opgen.model.spec import Spec
from opgen.problem import Location
from opgen.views.branches import branch
from opgen.views.call_checks import checks_of, checks_of_arguments, coercions, dtypes_constant, op_label, refusals
from opgen.views.call_plans import call_plan, has_plans, plan_numbers
from opgen.views.dispatch_names import argument_names, backend_classes, mixin_name, ops_names
from opgen.views.hand_over import hand_over, written_storages
from opgen.views.python import quoted

# What branch.include.j2 does with what a method makes, by its type; of another type it is the value.
_RESULTS = {
    "None": "nothing",
    "Storage": "storage",
    "tuple[Storage, ...]": "storages",
    "QStorage": "blocks",
    "Device": "device",
}
_RESULTS_OF_CUSTOM_OPS = {"None": "changed", "tuple[Storage, Shape]": "applied"}
# What is of these classes needs no conversion, and a call takes longer than the question.
_DEVICE_SESSION: Final = ">>> device = tl.Device.default()\n>>> device in tl.devices()\nTrue"


def method_doc(spec: Spec, method: Method) -> str:
    """Return the docstring of a method: its doc, its dtypes, its results and its errors."""
    errors = errors_of(spec, method)
    names = {dtype for op in spec.ops(method) for dtype in spec.op_dtypes(method, op) or ()}
    paragraphs = [method.doc]
    if names and not method.holds_blocks and len(names) < len(spec.dtype_names):
        paragraphs.append(f"Dtypes: {', '.join(name for name in spec.dtype_names if name in names)}.")
    if method.results and method.functor is None:
        paragraphs.append(f"Gives {', '.join(f'`{result.text}`' for result in method.results)}.")
    if errors and method.signature.parameters:
        paragraphs.append(f"Raises {', '.join(sorted(errors))}.")
    return "\n\n".join(paragraphs)


def storage_method(spec: Spec, method: Method) -> View:
    """A storage method as the template of its family sees it."""
    is_property = not method.signature.parameters
    stored = ["self", *(operand.name for operand in method.single_operands if operand.name != "self")]
    first = method.operands[0].name
    plan = call_plan(spec, method, stored) if has_plans(method) else None
    subject = ", ".join(f"{name}.inner" if plan is None else inner_name(name) for name in stored)
    dtype = f"{inner_name(first)}.dtype" if is_property or plan is not None else f"{first}.inner.dtype"
    return View(
        **_method(spec, method, "Storage", stored, op_label(method), dtype),
        is_property=is_property,
        # Recorded storages take it from the storage that they hold.
        is_recorded_property=is_property and not method.holds_blocks,
        subject=subject if len(stored) == 1 else f"({subject})",
        checks=() if is_property else (*hand_over(spec, method), *refusals(method), *checks_of(spec, method)),
        # What makes the arguments what the signature says, before all else.
        coercions=() if is_property else tuple(coercions(method)),
        plan=plan,
        others=tuple(stored[1:]),  # these may be on another backend
        # The arguments of the function of a composed method.
        composed=None if method.body is None else ", ".join(["self", *method.signature.arguments]),
        written=[] if plan is None else written_storages(method),
    )


def device_method(spec: Spec, method: Method) -> View:
    """A device method as the template of the device sees it."""
    label, dtype = op_label(method), "None"
    checks = [*coercions(method), *refusals(method)]
    if method.dtypes is not None:
        dtype = "dtype" if "dtype" in method.signature.arguments else "DType.from_numpy(array.dtype)"
        if len(spec.resolve(method.dtypes)) < len(spec.dtype_names):
            reason = quoted(method.unsupported or "")
            checks.append(f"check.known_dtype({label}, dtype, {dtypes_constant(method.dtypes)}, self, {reason})")
    checks += checks_of_arguments(spec, method)
    return View(
        **_method(spec, method, "Device", ["self"], label, dtype),
        subject="self.inner",
        checks=checks,
        plan=None,
        written=[],
    )


def _method(spec: Spec, method: Method, suffix: str, stored: list[str], label: str, dtype: str) -> Mapping[str, object]:
    """Return the common part of both kinds of methods; `label` and `dtype` are expressions for the op and its dtype."""
    signature = method.signature
    is_own = suffix == "Storage" and not method.holds_blocks

    def annotation(type_text: str) -> str:
        return re.sub(r"\bStorage\b", "Self", type_text) if is_own else type_text

    parameters = ["self", *(f"{p.name}: {annotation(accepted(p.type))}" for p in signature.parameters)]
    results = _RESULTS if method.custom_class is None else _RESULTS_OF_CUSTOM_OPS
    return {
        "made_from": (method.location,),
        "name": method.name,
        "parameters": ", ".join(parameters),
        "returns": annotation(signature.returns),
        "doc": method_doc(spec, method),
        "label": label,
        "dtype": dtype,
        # The beginning of the error that a backend without the method raises.
        "refusal": f"UnsupportedDevice({label}" if dtype == "None" else f"UnsupportedDType({label}, {dtype}",
        "gives_nothing": signature.returns == "None",
        "result": results.get(signature.returns, "value"),
        "branches": tuple(
            branch(spec, method, backend, suffix, stored, dtype) for backend in spec.backends if method.body is None
        ),
    }


def family_module(spec: Spec, family: Family) -> View:
    """The module of a family."""
    return View(
        made_from=(Location(family.path),),
        doc=family.doc,
        class_name=mixin_name(family),
        base="BlocksBase" if family.holds_blocks else "StorageBase",
        methods=[storage_method(spec, method) for method in family.methods],
        # What the module may import.
        names={
            **argument_names(spec),
            "backends": [*(backend_classes(spec, "Storage") + backend_classes(spec, "Storage", "Q")), *ops_names(spec)],
            "dtype": ["Array", "DType", *(group.upper() for group in spec.groups)],
            "ggml_dtype": ["GgmlDType"],
        },
    )


def storage(spec: Spec) -> View:
    """The package that makes one class of the families' methods."""
    has_base = spec.package.base is not None
    lacks = ["WithoutMethods"] * has_base
    return View(
        has_base=has_base,
        families=[(family.name, mixin_name(family)) for family in spec.families],
        classes=[*(mixin_name(family) for family in spec.families if not family.holds_blocks), *lacks],
        block_classes=[*(mixin_name(family) for family in spec.families if family.holds_blocks), *lacks],
    )


def storage_base(spec: Spec) -> View:
    """The base of the families' methods."""
    counts = {method.name: len(plan_numbers(spec, method)) for method in spec.storage_methods() if has_plans(method)}
    return View(
        storages=backend_classes(spec, "Storage"),
        blocks=backend_classes(spec, "Storage", "Q"),
        # The count of numbers that plans of a method take, if any.
        numbers={name: count for name, count in counts.items() if count},
    )


def device(spec: Spec) -> View:
    """The class Device, what it is derived from, and the tensor methods that move there."""
    numbered = [f"{backend.name}:1" for backend in spec.backends if backend.is_numbered]
    classes = backend_classes(spec, "Device")
    openers = [
        View(
            backend=backend,
            parameters="cls, ordinal: int = 0" if backend.is_numbered else "cls",
            ordinal='argument.integer("device", "ordinal", ordinal)' if backend.is_numbered else "0",
            own_parameters="self, ordinal: int = 0" if backend.is_numbered else "self",
            own_arguments="ordinal" if backend.is_numbered else "",
            lacking="".join(f"DType.{name.upper()}, " for name in backend.lacking),
        )
        for backend in spec.backends
    ]
    return View(
        doc=f"A device of some backend: `inner` is that backend's own. {spec.device_doc}\n\n{_DEVICE_SESSION}",
        openers=openers,
        classes=classes,
        names=(*classes, *ops_names(spec)),
        example=[*numbered, spec.backends[0].name][0],
        groups=[group.upper() for group in spec.groups],
        methods=[device_method(spec, method) for method in spec.device_methods],
    )


device_base = tensor_moves = device
