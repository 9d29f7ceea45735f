"""Rules for cells and backends."""

from opgen.comparison.records import ORDER, UNSUPPORTED
from opgen.comparison.rule import CHANGED, REMOVED, Match, listed, rule


@rule(("cells of", CHANGED, "*.*.call"))
def cell_unsupported(match: Match) -> str | None:
    """A backend no longer supports an op for a dtype that the op still has."""
    if str(match.old).startswith(UNSUPPORTED) or not str(match.new).startswith(UNSUPPORTED):
        return None
    backend, dtype = match.matched
    new = match.comparison.new
    method, _, op = match.name.partition(".")
    own = new.op_dtypes(next(each for each in new.methods if each.name == method), op or None)
    is_missing = any(each.missing is not None for each in new.backends if each.name == backend)
    if is_missing or (own is not None and dtype not in own):
        return None
    of = "" if own is None else f" of {dtype}"
    return f"backend '{backend}' no longer has {match.name}{of}"


@rule(("backend", REMOVED, ""))
def backend_removed(match: Match) -> str | None:
    """A backend is removed, along with its devices and its extra."""
    return f"{match.subject} is removed"


@rule(("backend", REMOVED, "runtime.package"))
def backend_runtime_removed(match: Match) -> str | None:
    """A backend loses its runtime. Every call on it raises BackendUnavailable."""
    return f"{match.subject} no longer has a runtime"


@rule(("backend", CHANGED, "runtime.package"))
def backend_package_renamed(match: Match) -> str | None:
    """The subpackage of a backend has another name. Imports of it fail."""
    return f"the package of {match.subject} is {match.new}, and was {match.old}"


@rule(("backend", CHANGED, "class_prefix"))
def backend_class_renamed(match: Match) -> str | None:
    """The classes of a backend, such as its storage, have other names."""
    return f"the classes of {match.subject} begin with {match.new}, and began with {match.old}"


@rule(("backend", CHANGED | REMOVED, "extra"), ("package", REMOVED, "extras.*"))
def extra_removed(match: Match) -> str | None:
    """The package loses or renames an extra. `pip install package[extra]` installs less."""
    return f"{match.subject} no longer has extra '{match.old if match.name != 'package' else match.last}'"


@rule(("backend", CHANGED, "label"))
def device_label_changed(match: Match) -> str | None:
    """The devices of a backend have another label. Device.parse refuses the old one."""
    return f"devices of {match.subject} are written '{match.new}', and were '{match.old}'"


@rule(("backend", CHANGED, "dlpack"))
def device_type_changed(match: Match) -> str | None:
    """The devices of a backend have another DLPack device type. Other libraries refuse or misread the tensors."""
    return f"the DLDeviceType of {match.subject} is {match.new}, and was {match.old}"


@rule((ORDER, CHANGED, ORDER))
def default_device_changed(match: Match) -> str | None:
    """The order of preference of backends changes. Device.default() may return a device of another backend."""
    if match.name != "backend":
        return None
    return f"backends are preferred in the order {listed(match.new)}, and were in {listed(match.old)}"


@rule(("backend", REMOVED, "code_objects.targets.*"))
def target_removed(match: Match) -> str | None:
    """Kernels are no longer compiled for a target ahead of time. Its users need a compiler at run time."""
    return f"kernels of {match.subject} are no longer compiled for {match.last}"
