"""The rules by which a change of the spec breaks callers. docs/rules.md is made of their docstrings.

A rule is a function of one difference: it returns how that breaks callers, or None.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from opgen.comparison.changes import Change, Comparison, Difference
from opgen.comparison.records import ORDER, UNSUPPORTED, Keys
from opgen.docstrings import docstring_of
from opgen.model.functors import Functor
from opgen.model.spec import Spec
from opgen.problem import Location, Problem, SpecError

_OLD_BOUND = re.compile(r">= ?3\.(\d+)")
# In a pattern: any one step of a path, which belongs to the name of what breaks; and any steps at all.
_ANY, _REST = "*", "**"


@dataclass(frozen=True)
class Found:
    """A difference that a rule is asked about."""

    comparison: Comparison
    change: Change
    difference: Difference | None  # None where the whole subject is added or removed
    matched: Keys  # the steps of the path that stand for `*`

    @property
    def name(self) -> str:
        """The name of the subject."""
        return self.change.subject.name

    @property
    def subject(self) -> str:
        """What messages call the subject."""
        return f"{self.change.subject.kind} '{self.name}'"

    @property
    def what(self) -> str:
        """What an exception calls it: the subject, and the names inside it."""
        return ".".join((self.name, *self.matched))

    @property
    def last(self) -> str:
        """The last name that matched."""
        return self.matched[-1]

    @property
    def old(self) -> object:
        """The old value."""
        return self.difference and self.difference.old

    @property
    def new(self) -> object:
        """The new value."""
        return self.difference and self.difference.new

    def is_changed(self, *path: str) -> bool:
        """Whether another value of the subject differs, at a path or below it."""
        return any(other.path[: len(path)] == path for other in self.change.differences)

    def loses_dtype(self) -> bool:
        """Whether other dtypes are written than before, and one that is still there is not among them.

        Of a dtype that is removed, or leaves a group, that is what breaks callers.
        """
        path = self.difference.path[:-1] if self.difference is not None else ()
        new = self.comparison.new
        is_written = any(other.path == path for other in self.change.differences)
        return is_written and self.last in (*new.groups["all"], *new.sets["blocks"])

    def keeps_tensor_method(self) -> bool:
        """Whether what differs is of a tensor method that was there and still is."""
        return not self.is_changed("has_tensor_method")


Test: TypeAlias = Callable[[Found], str | None]


@dataclass(frozen=True)
class Place:
    """Where a rule is looked for: a kind of subjects, what happens, and a pattern of paths."""

    subject: str
    kinds: frozenset[str]
    path: Keys

    def matches(self, kind: str, subject: str, path: Keys) -> Keys | None:
        """The steps that stand for `*`; None where the pattern does not fit."""
        if kind not in self.kinds or subject != self.subject:
            return None
        pattern = self.path[:-1] if self.path[-1:] == (_REST,) else self.path
        if len(path) < len(pattern) or (len(path) > len(pattern) and self.path[-1:] != (_REST,)):
            return None
        if any(step not in ((_ANY, own) if own != ORDER else (own,)) for step, own in zip(pattern, path, strict=False)):
            return None
        return tuple(own for step, own in zip(pattern, path, strict=False) if step == _ANY)


@dataclass(frozen=True)
class Rule:
    """A rule by which a change breaks callers."""

    name: str
    doc: str
    places: tuple[Place, ...]
    test: Test


@dataclass(frozen=True, order=True)
class Break:
    """What breaks callers."""

    location: Location
    rule: str
    what: str
    message: str
    is_gone: bool  # whether the location is one of the old spec
    exception: str | None = None  # the reason why the package breaks them, as the spec says it


class CallersError(SpecError):
    """What breaks callers without an exception, and exceptions that nothing needs."""


RULES: dict[str, Rule] = {}
"""Every rule by its name."""

ADDED, CHANGED, REMOVED = (frozenset({kind}) for kind in ("added", "changed", "removed"))
_ANYHOW = ADDED | CHANGED | REMOVED


def _rule(*places: tuple[str, frozenset[str], str]) -> Callable[[Test], Test]:
    """A rule named after its function, in each of `places`: a kind of subjects, what happens to it, and a path."""

    def register(test: Test) -> Test:
        found = tuple(Place(kind, kinds, tuple(filter(None, path.split(".")))) for kind, kinds, path in places)
        name = test.__name__.upper()
        RULES[name] = Rule(name, docstring_of(test), found, test)
        return test

    return register


def breaks(comparison: Comparison) -> list[Break]:
    """What breaks callers, and the exceptions that the new spec makes."""
    exceptions = comparison.new.package.breaking
    found: dict[tuple[str, str], Break] = {}
    for change in comparison.changes:
        for rule, where in _asked(change):
            at = Found(comparison, change, *where)
            message = rule.test(at)
            if message is None:
                continue
            is_gone = (where[0] or change).kind == "removed"
            reason, _ = exceptions.get(rule.name, {}).get(at.what, (None, None))
            place = where[0].location if where[0] is not None else change.location
            # Several values may be one thing to callers.
            found.setdefault((rule.name, at.what), Break(place, rule.name, at.what, message, is_gone, reason))
    return sorted(found.values())


def mistakes(comparison: Comparison, found: Iterable[Break]) -> Iterator[Problem]:
    """What breaks callers without an exception, and the exceptions that nothing needs."""
    used = {(each.rule, each.what) for each in found}
    for each in found:
        if each.exception is None:
            place = Location(each.location.path) if each.is_gone else each.location
            mend = f"undo it, or write why to 'breaking: {{{each.rule}: {{{each.what}: reason}}}}' of spec/package.yaml"
            yield Problem(place, f"{each.rule}: {each.message}; {mend}")
    for rule, whats in comparison.new.package.breaking.items():
        for what, (_, place) in whats.items():
            if (rule, what) not in used:
                yield Problem(place, f"nothing breaks callers by {rule} of '{what}'; remove the exception")


def _asked(change: Change) -> Iterator[tuple[Rule, tuple[Difference | None, Keys]]]:
    """The rules that a change is asked of, with the difference and what matched."""
    whole: list[tuple[str, Difference | None, Keys]] = [(change.kind, None, ())]
    differences = [(each.kind, each, each.path) for each in change.differences]
    for kind, difference, path in differences or whole:
        for rule in RULES.values():
            for place in rule.places:
                matched = place.matches(kind, change.subject.kind, path)
                if matched is not None:
                    yield rule, (difference, matched)


def _functor(spec: Spec, name: str) -> Functor:
    kind, _, op = name.partition(".")
    return next(functor for functor in spec.functors[kind].functors if functor.name == op)


# Ops.


@_rule(("op", REMOVED, ""))
def op_removed(found: Found) -> str | None:
    """An op is removed, along with its tensor method and its enum member.

    Calls fail with AttributeError. Keep the op until callers have a replacement, or name the replacement in the
    exception.
    """
    return f"{found.subject} is removed"


@_rule(("op", REMOVED, "dtypes.*"))
def op_dtype_removed(found: Found) -> str | None:
    """An op no longer supports a dtype.

    Calls with tensors of this dtype raise UnsupportedDType on every backend.
    """
    return f"{found.subject} no longer has {found.last}" if found.loses_dtype() else None


@_rule(("op", _ANYHOW, "result"))
def op_result_changed(found: Found) -> str | None:
    """An op returns another dtype.

    Everything computed from the result changes its dtype too, and so do files written from it.
    """
    names = [value or "that of its operands" for value in (found.new, found.old)]
    return f"the dtype of the result of {found.subject} is {names[0]}, and was {names[1]}"


@_rule(
    ("op", CHANGED, "computes"),
    ("op", _ANYHOW, "reduction.element"),
    ("op", CHANGED, "reduction.combine"),
    ("op", _ANYHOW, "reduction.finish"),
    ("op", CHANGED, "reduction.of"),
)
def op_formula_changed(found: Found) -> str | None:
    """An op has another formula, or a reduction another element, combine or finish.

    The same call may return other numbers. The rule also reports a formula that was only rewritten, because it may
    round differently; say so in the exception.
    """
    if any(other.path == ("reduction", "of") and other.kind != "changed" for other in found.change.differences):
        return None
    names = [value or "the elements themselves" for value in (found.new, found.old)]
    return f"{found.subject} computes {names[0]}, and computed {names[1]}"


@_rule(("op", CHANGED, "reduction.identity"))
def op_identity_changed(found: Found) -> str | None:
    """A reduction of no elements returns another value."""
    return f"{found.subject} of nothing is {found.new}, and was {found.old}"


@_rule(("op", _ANYHOW, "reduction.accumulate"))
def op_accumulation_changed(found: Found) -> str | None:
    """A reduction of floats accumulates in another dtype.

    Results gain or lose digits.
    """
    names = [value or "the compute dtype" for value in (found.new, found.old)]
    return f"{found.subject} accumulates in {names[0]}, and did in {names[1]}"


@_rule(("op", CHANGED, "edges.*.value"))
def op_edge_changed(found: Found) -> str | None:
    """An op returns another value at an edge that the spec promises, such as NaN or the sign of zero."""
    return f"{found.subject} gives {found.new} for {found.last}, and gave {found.old}"


@_rule(("op", REMOVED, "edges.*.value"))
def op_edge_removed(found: Found) -> str | None:
    """The spec no longer promises what an op returns at an edge, and no test checks it."""
    return f"{found.subject} no longer promises that {found.last} is {found.old}"


@_rule(("op", CHANGED, "named"))
def op_operands_changed(found: Found) -> str | None:
    """An op renames or reorders its operands.

    Calls that name an operand fail; calls by position compute something else.
    """
    return f"the operands of {found.subject} are {_listed(found.new)}, and were {_listed(found.old)}"


@_rule(("op", REMOVED, "condition.*"))
def op_condition_dtype_removed(found: Found) -> str | None:
    """The condition of an op, its first operand, no longer accepts a dtype.

    Calls with a condition of this dtype raise UnsupportedDType.
    """
    return f"the condition of {found.subject} may not be {found.last}" if found.loses_dtype() else None


@_rule(("op", CHANGED, "is_method"))
def op_call_changed(found: Found) -> str | None:
    """An op becomes a storage method of its own, or a member of the enum that a storage method takes.

    Calls through `Storage` and the enum fail. The tensor method stays.
    """
    how = "a storage method" if found.new else "a member of an enum"
    return f"{found.subject} is {how} now, and calls by Storage differ"


@_rule(("op", REMOVED, "reduction.of"), ("op", REMOVED, "reduction.identity"))
def op_reduction_kind_changed(found: Found) -> str | None:
    """A reduction that returned a position returns a value, or the reverse."""
    was = "the position of an element" if found.difference and found.difference.path[-1] == "of" else "a value"
    return f"{found.subject} gives another kind of result; it gave {was}"


# Parameters of ops and of tensor methods.


@_rule(("op", ADDED, "parameters.*"), ("storage method", ADDED, "tensor.types.*"))
def parameter_without_default(found: Found) -> str | None:
    """An op or a tensor method gains a parameter without a default.

    Every call fails until it passes the number. Give the parameter a default with which old calls return what they did.
    """
    has_default = found.change.subject.kind == "op" and found.new is not None
    if has_default or not found.keeps_tensor_method():
        return None
    return f"{found.subject} needs parameter '{found.last}', which has no default"


@_rule(("op", ADDED, "parameters.*"))
def parameter_inserted(found: Found) -> str | None:
    """An op gains a parameter in front of an existing one.

    Calls by position pass their arguments to the wrong parameters. Add the parameter at the end.
    """
    old, new = (list(_functor(spec, found.name).parameters) for spec in (found.comparison.old, found.comparison.new))
    behind = [name for name in new[new.index(found.last) :] if name in old]
    if found.new is None or not behind:
        return None
    return f"parameter '{found.last}' of {found.subject} stands in front of '{behind[0]}', which was there"


@_rule(("op", REMOVED, "parameters.*"), ("storage method", REMOVED, "tensor.types.*"))
def parameter_removed(found: Found) -> str | None:
    """An op or a tensor method loses a parameter. Calls that pass it fail."""
    return f"{found.subject} no longer has parameter '{found.last}'" if found.keeps_tensor_method() else None


@_rule(("op", CHANGED, "parameters.*"))
def parameter_default_removed(found: Found) -> str | None:
    """A parameter loses its default. Calls that omit it fail."""
    return f"parameter '{found.last}' of {found.subject} no longer has a default" if found.new is None else None


@_rule(("op", CHANGED, "parameters.*"))
def parameter_default_changed(found: Found) -> str | None:
    """A parameter has another default. Calls that omit it compute something else."""
    if found.new is None or found.old is None:
        return None
    return f"the default of parameter '{found.last}' of {found.subject} is {found.new}, and was {found.old}"


@_rule(("op", CHANGED, "parameters.(order)"), ("storage method", CHANGED, "tensor.types.(order)"))
def parameters_reordered(found: Found) -> str | None:
    """An op or a tensor method reorders its parameters.

    Calls by position compute something else.
    """
    return f"the parameters of {found.subject} are {_listed(found.new)}, and were {_listed(found.old)}"


@_rule(("storage method", CHANGED, "tensor.types.*"))
def parameter_type_changed(found: Found) -> str | None:
    """A parameter of a tensor method has another type. A type that only accepts more breaks nobody."""
    return _narrowed(found, "parameter")


@_rule(*((kind, CHANGED, "has_tensor_method") for kind in ("op", "storage method")))
def tensor_method_removed(found: Found) -> str | None:
    """Tensor loses the method that is one op or one storage method.

    Calls fail with AttributeError. If the runtime defines a method of this name instead, say so in the exception.
    """
    return None if found.new else f"Tensor no longer has the method of {found.subject}"


# Gradients.


@_rule(*((kind, CHANGED, "is_differentiable") for kind in ("op", "storage method")))
def gradient_removed(found: Found) -> str | None:
    """An op or a method loses its gradient.

    `backward` raises an error if a Var takes part.
    """
    return None if found.new else f"{found.subject} no longer has a gradient"


@_rule(
    ("op", _ANYHOW, "gradients.*"),
    ("storage method", CHANGED, "gradient.functions.*"),
    ("storage method", CHANGED, "gradient.all"),
)
def gradient_changed(found: Found) -> str | None:
    """A written gradient changes, is added or is removed, while the op computes the same.

    Training steps may return other numbers.
    """
    if found.is_changed("computes") or found.is_changed("is_differentiable"):
        return None
    names = [value or "what follows from the formula" for value in (found.new, found.old)]
    return (
        f"the gradient of {'.'.join(found.matched) or 'operands'} in {found.subject} is {names[0]}, and was {names[1]}"
    )


# Storage methods and device methods.

_METHODS = ("storage method", "device method")


def _of_methods(kinds: frozenset[str], *paths: str) -> tuple[tuple[str, frozenset[str], str], ...]:
    return tuple((subject, kinds, path) for subject in _METHODS for path in paths)


@_rule(*_of_methods(REMOVED, ""))
def method_removed(found: Found) -> str | None:
    """A method of Storage or Device is removed."""
    return f"{found.subject} is removed"


@_rule(*_of_methods(ADDED, "signature.types.*"))
def argument_added(found: Found) -> str | None:
    """A method of Storage or Device gains an argument. These methods have no defaults, so every call fails."""
    return f"{found.subject} needs argument '{found.last}'"


@_rule(*_of_methods(REMOVED, "signature.types.*"))
def argument_removed(found: Found) -> str | None:
    """A method of Storage or Device loses an argument. Calls that pass it fail."""
    return f"{found.subject} no longer takes argument '{found.last}'"


@_rule(*_of_methods(CHANGED, "signature.types.(order)"))
def arguments_reordered(found: Found) -> str | None:
    """A method of Storage or Device reorders its arguments. Calls by position pass them to the wrong parameters."""
    return f"the arguments of {found.subject} are {_listed(found.new)}, and were {_listed(found.old)}"


@_rule(*_of_methods(CHANGED, "signature.types.*"))
def argument_type_changed(found: Found) -> str | None:
    """An argument of a method has another type. A type that only accepts more breaks nobody.

    METHOD_OPS_CHANGED reports an argument `op` that takes other ops.
    """
    if found.last == "op" and found.is_changed("kind"):
        return None
    return _narrowed(found, "argument")


@_rule(*_of_methods(CHANGED, "signature.returns"), ("storage method", CHANGED, "tensor.returns"))
def return_type_changed(found: Found) -> str | None:
    """A method returns another type."""
    return f"{found.subject} returns {found.new}, and returned {found.old}"


@_rule(("storage method", CHANGED, "gives"))
def result_changed(found: Found) -> str | None:
    """A storage method gives another dtype or another shape. What is computed from it changes too, or is refused."""
    return f"{found.subject} gives {found.new or 'nothing'}, and gave {found.old or 'nothing'}"


@_rule(("storage method", REMOVED, "operands.*.dtypes.*"), ("device method", REMOVED, "dtypes.*"))
def method_dtype_removed(found: Found) -> str | None:
    """A storage method no longer accepts a dtype for an operand, or a device method no longer makes it.

    Such calls raise UnsupportedDType, or DTypeMismatch if the dtype must match another operand.
    """
    method = next(method for method in found.comparison.new.methods if method.name == found.name)
    is_gone = len(found.matched) > 1 and found.matched[0] not in [operand.name for operand in method.operands]
    if is_gone or not found.loses_dtype():
        return None
    of = f" as '{found.matched[0]}'" if len(found.matched) > 1 else ""
    return f"{found.subject} no longer takes {found.last}{of}"


@_rule(("storage method", CHANGED, "operands.(order)"))
def operands_reordered(found: Found) -> str | None:
    """A storage method reorders its operands.

    The first operand decides the dtype and the cell of a call, and errors name its dtype.
    """
    return f"the operands of {found.subject} are {_listed(found.new)}, and were {_listed(found.old)}"


@_rule(*_of_methods(ADDED, "checks.*.call"))
def check_added(found: Found) -> str | None:
    """A method makes another check before its branch, and may refuse calls that it accepted."""
    return f"{found.subject} checks {found.last} now"


@_rule(*_of_methods(REMOVED, "raises.*"))
def error_removed(found: Found) -> str | None:
    """A method no longer raises an error. Code that catches it is never reached."""
    return f"{found.subject} no longer raises {found.last}"


@_rule(*_of_methods(ADDED, "raises.*"))
def error_added(found: Found) -> str | None:
    """A method raises a new error, which callers do not catch. CHECK_ADDED reports the errors of a new check."""
    return None if found.is_changed("checks") else f"{found.subject} raises {found.last}"


@_rule(("storage method", _ANYHOW, "kind"))
def method_ops_changed(found: Found) -> str | None:
    """A storage method takes the ops of another kind, or none."""
    kinds = [value or "no kind" for value in (found.new, found.old)]
    return f"{found.subject} chooses between the ops of {kinds[0]}, and did between those of {kinds[1]}"


# Cells and backends.


@_rule(("cells of", CHANGED, "*.*.call"))
def cell_unsupported(found: Found) -> str | None:
    """A backend no longer supports an op for a dtype that the op still has."""
    if str(found.old).startswith(UNSUPPORTED) or not str(found.new).startswith(UNSUPPORTED):
        return None
    backend, dtype = found.matched
    new = found.comparison.new
    method, _, op = found.name.partition(".")
    own = new.op_dtypes(next(each for each in new.methods if each.name == method), op or None)
    is_missing = any(each.missing is not None for each in new.backends if each.name == backend)
    if is_missing or (own is not None and dtype not in own):
        return None
    of = "" if own is None else f" of {dtype}"
    return f"backend '{backend}' no longer has {found.name}{of}"


@_rule(("backend", REMOVED, ""))
def backend_removed(found: Found) -> str | None:
    """A backend is removed, along with its devices and its extra."""
    return f"{found.subject} is removed"


@_rule(("backend", REMOVED, "runtime.package"))
def backend_runtime_removed(found: Found) -> str | None:
    """A backend loses its runtime. Every call on it raises BackendUnavailable."""
    return f"{found.subject} no longer has a runtime"


@_rule(("backend", CHANGED, "runtime.package"))
def backend_package_renamed(found: Found) -> str | None:
    """The subpackage of a backend has another name. Imports of it fail."""
    return f"the package of {found.subject} is {found.new}, and was {found.old}"


@_rule(("backend", CHANGED, "class_prefix"))
def backend_class_renamed(found: Found) -> str | None:
    """The classes of a backend, such as its storage, have other names."""
    return f"the classes of {found.subject} begin with {found.new}, and began with {found.old}"


@_rule(("backend", CHANGED | REMOVED, "extra"), ("package", REMOVED, "extras.*"))
def extra_removed(found: Found) -> str | None:
    """The package loses or renames an extra. `pip install package[extra]` installs less."""
    return f"{found.subject} no longer has extra '{found.old if found.name != 'package' else found.last}'"


@_rule(("backend", CHANGED, "label"))
def device_label_changed(found: Found) -> str | None:
    """The devices of a backend have another label. Device.parse refuses the old one."""
    return f"devices of {found.subject} are written '{found.new}', and were '{found.old}'"


@_rule(("backend", CHANGED, "dlpack"))
def device_type_changed(found: Found) -> str | None:
    """The devices of a backend have another DLPack device type. Other libraries refuse or misread the tensors."""
    return f"the DLDeviceType of {found.subject} is {found.new}, and was {found.old}"


@_rule((ORDER, CHANGED, ORDER))
def default_device_changed(found: Found) -> str | None:
    """The order of preference of backends changes. Device.default() may return a device of another backend."""
    if found.name != "backend":
        return None
    return f"backends are preferred in the order {_listed(found.new)}, and were in {_listed(found.old)}"


@_rule(("backend", REMOVED, "code_objects.targets.*"))
def target_removed(found: Found) -> str | None:
    """Kernels are no longer compiled for a target ahead of time. Its users need a compiler at run time."""
    return f"kernels of {found.subject} are no longer compiled for {found.last}"


# Dtypes.


@_rule(("dtype", REMOVED, ""))
def dtype_removed(found: Found) -> str | None:
    """A dtype is removed."""
    return f"{found.subject} is removed"


@_rule(("dtype", CHANGED, "size"))
def dtype_size_changed(found: Found) -> str | None:
    """A dtype has another size. Files and shared memory are read differently."""
    return f"{found.subject} has {found.new} bytes, and had {found.old}"


@_rule(*(("dtype", _ANYHOW, path) for path in ("kind", "exponent", "fraction", "bias", "specials")))
def dtype_format_changed(found: Found) -> str | None:
    """The elements of a dtype have another encoding. Files, shared memory and NumPy arrays are read differently."""
    name = found.difference.name if found.difference is not None else ""
    return f"{name} of {found.subject} is {found.new}, and was {found.old}"


@_rule(("dtype", CHANGED, "compute"))
def dtype_compute_changed(found: Found) -> str | None:
    """Arithmetic on a dtype uses another dtype. Results gain or lose digits."""
    return f"arithmetic on {found.subject} is done in {found.new}, and was in {found.old}"


@_rule(("dtype", _ANYHOW, "joined_as"))
def dtype_joined_changed(found: Found) -> str | None:
    """Ranks join the elements of a dtype in another one. Results may be rounded otherwise, or wrap elsewhere."""
    name = found.subject
    return f"ranks join {name} in {found.new or 'the dtype itself'}, and did in {found.old or 'the dtype itself'}"


@_rule(("dtype", CHANGED, "may_index"))
def dtype_index_removed(found: Found) -> str | None:
    """A dtype can no longer be an index."""
    return None if found.new else f"{found.subject} can no longer be an index"


@_rule(("dtype", _ANYHOW, "index_mark"))
def dtype_index_mark_changed(found: Found) -> str | None:
    """Another value of a dtype, or none, means "no row" in an index."""
    if found.is_changed("may_index"):
        return None
    return f"{found.new if found.new is not None else 'no number'} of {found.subject} is no row, and {found.old} was"


@_rule(("dtype", CHANGED, "safetensors"))
def dtype_file_name_changed(found: Found) -> str | None:
    """A dtype has another name in safetensors files. Existing files cannot be read."""
    return f"{found.subject} is {found.new} in safetensors files, and was {found.old}"


@_rule(("dtype", CHANGED, "promotes_to"))
def dtype_promotion_changed(found: Found) -> str | None:
    """A dtype is promoted to other dtypes. Operations on it and another dtype have other results, or are refused."""
    if not found.old:
        return None
    return f"{found.subject} is promoted to {_listed(found.new) or 'nothing'}, and was to {_listed(found.old)}"


@_rule(("dtype", CHANGED | REMOVED, "yields_to"))
def dtype_yields_changed(found: Found) -> str | None:
    """A dtype yields to other dtypes. Operations on it and another dtype have other results, or are refused."""
    return f"{found.subject} yields to {_listed(found.new) or 'nothing'}, and did to {_listed(found.old)}"


# Kernels.


@_rule(("kernel", REMOVED, ""))
def kernel_removed(found: Found) -> str | None:
    """A kernel pattern is removed. Launches of its kernels fail."""
    return f"{found.subject} is removed"


@_rule(("kernel", REMOVED, "kernels.**"))
def kernel_range_narrowed(found: Found) -> str | None:
    """A kernel pattern ranges over fewer ops, dtypes or widths. Launches of the missing kernels fail.

    The rule does not report kernels of an op or a dtype that is removed.
    """
    if found.difference is None or not found.is_changed("over"):
        return None
    return f"{found.subject} no longer makes {found.difference.path[-1]}, and perhaps others"


@_rule(("kernel", CHANGED, "arguments"))
def kernel_struct_changed(found: Found) -> str | None:
    """A kernel takes another struct. Launches that pack the old one pass wrong fields."""
    return f"{found.subject} takes {found.new}, and took {found.old}"


@_rule(("struct", REMOVED, ""))
def struct_removed(found: Found) -> str | None:
    """A kernel struct is removed, along with the function that packs it."""
    return f"{found.subject} is removed"


@_rule(("struct", _ANYHOW, "members.**"))
def struct_changed(found: Found) -> str | None:
    """A kernel struct has other fields, or another order of fields.

    Launches that pack the old fields, and kernels compiled before, read wrong values.
    """
    path = found.difference.path if found.difference is not None else ()
    return f"the fields of {found.subject} differ, first in {'.'.join(path[1:])}"


@_rule(("constant", REMOVED, ""))
def constant_removed(found: Found) -> str | None:
    """A constant that kernels and launches share is removed. Users' kernels that name it do not compile."""
    return f"{found.subject} is removed"


# Block formats.


@_rule(("format", REMOVED, ""))
def format_removed(found: Found) -> str | None:
    """A block format is removed. Files with such weights are refused."""
    return f"{found.subject} is removed"


@_rule(("format", CHANGED, "number"))
def format_number_changed(found: Found) -> str | None:
    """A block format has another number in files. Existing files are refused, or read as another format."""
    return f"{found.subject} has number {found.new}, and had {found.old}"


@_rule(
    *(("format", _ANYHOW, path) for path in ("fields.**", "bytes", "elements", "shared", "quant", "scale", "offset"))
)
def format_decoding_changed(found: Found) -> str | None:
    """A block format has another layout or decoding. Existing files decode to other weights."""
    name = found.difference.name if found.difference is not None else ""
    return f"{found.subject} decodes otherwise: {name} is {found.new}, and was {found.old}"


# The package.


@_rule(("package", CHANGED, "name"))
def package_renamed(found: Found) -> str | None:
    """The package has another name. Every import fails."""
    return f"the package is named {found.new}, and was {found.old}"


@_rule(("package", CHANGED, "python"))
def python_narrowed(found: Found) -> str | None:
    """The package no longer supports a version of Python."""
    old, new = (str(text).replace(" ", "").split(",") for text in (found.old, found.new))
    bounds = [[int(match[1]) for text in texts if (match := _OLD_BOUND.fullmatch(text))] for texts in (old, new)]
    others = [{text for text in texts if not _OLD_BOUND.fullmatch(text)} for texts in (old, new)]
    is_narrower = max(bounds[1], default=0) > max(bounds[0], default=0) or bool(others[1] - others[0])
    return f"the package needs Python {found.new}, and needed {found.old}" if is_narrower else None


@_rule(("package", CHANGED, "max_rank"))
def max_rank_lowered(found: Found) -> str | None:
    """Tensors have a lower maximum rank."""
    assert isinstance(found.new, int) and isinstance(found.old, int)
    return f"a tensor has {found.new} dims at most, and had {found.old}" if found.new < found.old else None


@_rule(("public module", REMOVED, ""))
def public_module_removed(found: Found) -> str | None:
    """A module that users import is removed."""
    return f"{found.subject} is removed"


@_rule(("public module", REMOVED, "names.*"))
def public_name_removed(found: Found) -> str | None:
    """A module that users import loses a name."""
    return f"{found.subject} no longer has '{found.last}'"


def _narrowed(found: Found, noun: str) -> str | None:
    """The message about a type that allows less, or other things."""
    old, new = ({*str(text).split(" | ")} for text in (found.old, found.new))
    if old <= new:
        return None
    return f"{noun} '{found.last}' of {found.subject} is {found.new}, and was {found.old}"


def _listed(names: object) -> str:
    return ", ".join(map(str, names)) if isinstance(names, tuple) else ""
