"""The drivers' part of the model: what the runtime asks of a GPU's driver, and the calls of a vendor's that do it."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from opgen.declarations import CallForm, Declared, by_name
from opgen.decoder import Cursor, Diagnostics
from opgen.expression import ExpressionError, parse_expression
from opgen.notes import Choice, Entry, Example, Key, Mark, Name, Pattern
from opgen.problem import Location, did_you_mean

_MODULE = Pattern(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "package.module")
_FUNCTION = Pattern(r"[A-Za-z_]\w*", "functionOfTheBinding")
VALUE, VALUES = "value", "values"
OUT_OF_MEMORY = "out_of_memory"
"""The status that says that there is not enough memory."""


@dataclass(frozen=True)
class Operation(Declared):
    """An operation that the runtime requires of a driver."""

    call: Annotated[str, Entry("operation '{}'"), CallForm("operation", "wait_event(stream, event)")]
    doc: Annotated[str, "What it does or gives."]
    gives: Annotated[
        str | None,
        Choice((VALUE, VALUES)),
        "The result besides the status: one value, or several as a tuple; none without this key.",
    ]
    unless: Annotated[
        str | None,
        "The status, by its name in the tables, at which it gives None, or False where it gives nothing else; other "
        "statuses are errors.",
    ]
    accepts: Annotated[str | None, "The status, likewise, that is no error."]
    is_optional: Annotated[bool, Key("optional"), "Whether a driver may do without it; it is then None."]
    location: Location = field(compare=False)

    @property
    def statuses(self) -> tuple[str, ...]:
        """The statuses that it handles besides success."""
        return tuple(filter(None, (self.unless, self.accepts)))


@dataclass(frozen=True)
class DriverCall:
    """An expression over the functions and constants of a binding."""

    text: str
    location: Location = field(compare=False)
    FORM: ClassVar = str

    @classmethod
    def decode(cls, cursor: Cursor) -> "DriverCall":
        """An expression of Python's grammar."""
        text = cursor.scalar(str)
        try:
            parse_expression(text or "None")
        except ExpressionError as error:
            cursor.problem(f"{cursor.what} is no expression ({error}); write a call such as 'deviceFree(address)'")
            text = None
        return cls(" ".join((text or "None").split()), cursor.value.location)

    @property
    def tree(self) -> ast.expr:
        """The expression."""
        return parse_expression(self.text)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it uses, each once."""
        return tuple(dict.fromkeys(node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)))


@dataclass(frozen=True)
class DriverTable:
    """The driver of a backend on GPUs: by which calls of a binding for Python it does what the runtime asks of it."""

    backend: Annotated[str, Entry("driver '{}'")]
    doc: Annotated[str, "The docstring of the module of its calls."]
    name: Annotated[str, "What messages call the driver, such as `the HIP runtime`."]
    binding: Annotated[str, _MODULE, "The module of Python that binds the driver."]
    prefix: Annotated[
        Name,
        "What the names of its functions begin with. Each gives a tuple that its status leads; a status is false for "
        "success, and has a name.",
    ]
    install: Annotated[str, "What to do where the driver does not load."]
    runtime_libraries: Annotated[
        tuple[str, ...], "The names of the libraries that make up the driver, without lib and ending; it is the first."
    ]
    compiler: Annotated[
        str,
        Pattern(r"[a-z]\w*\.[A-Z]\w*", "module.Class"),
        "The class of the backend's package that compiles kernels at run time.",
    ]
    imports: Annotated[
        Mapping[str, str],
        Mark.OPTIONAL,
        Example("c_char_p: ctypes"),
        "What calls use of other modules: by the name, the module that has it.",
    ]
    needs_context: Annotated[
        bool,
        "Whether streams, events and graphs are used in their device's context alone; else only default streams are.",
    ]
    opens_in_captures: Annotated[
        bool, "Whether libraries can be opened while a thread captures: what they call may wait for the device."
    ]
    max_threads_along_dim: Annotated[int | None, "The most threads of a launch along a dim, where blocks allow more."]
    after_error: Annotated[
        str | None, _FUNCTION, "The function of the binding to call after each error, whose result is of no interest."
    ]
    statuses: Annotated[
        Mapping[Name, str],
        "By the name that operations have for it, and `out_of_memory`, the driver's name of a status.",
    ]
    unrecoverable: Annotated[tuple[str, ...], "The statuses after which every later call on the device fails too."]
    launch: Annotated[
        str,
        _FUNCTION,
        "The function of the binding that launches a kernel. It takes the kernel, the blocks along three dims, the "
        "threads of a block along three, the bytes of shared memory, the stream, the parameters, and `launch_extra`.",
    ]
    launch_cooperative: Annotated[
        str, _FUNCTION, "The same for blocks that wait for each other, without `launch_extra`."
    ]
    launch_extra: Annotated[DriverCall, "What `launch` takes last."]
    calls: Annotated[
        Mapping[Name, DriverCall],
        "By the name of an operation of the family's `driver`, the expression that does it, over its parameters and "
        "the names of the binding. Calls of functions that begin with `prefix` raise where their status is an error. "
        "Modules of the backend's package are at hand by their names, `binding` is the binding, and `checked(call, "
        "result)` gives the values of a result after its status.",
    ]
    path: Path

    def is_function(self, name: str) -> bool:
        """Whether a name of the binding is a function whose result a status leads."""
        return name.startswith(self.prefix) and name[len(self.prefix) :][:1].isupper()

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions of the driver that it calls, sorted."""
        called = {
            node.func.id
            for call in self.calls.values()
            for node in ast.walk(call.tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and self.is_function(node.func.id)
        }
        return tuple(sorted({*called, self.launch, self.launch_cooperative, *filter(None, [self.after_error])}))

    def diagnostics(self, what: str) -> Diagnostics:
        """Note that no status says that there is not enough memory."""
        if OUT_OF_MEMORY not in self.statuses:
            yield "statuses", f"'statuses' of {what} lacks '{OUT_OF_MEMORY}', at which tensors give memory back; add it"

    def flaws(self, operations: tuple[Operation, ...]) -> Iterator[tuple[Location, str]]:
        """Yield the operations that it lacks, and its entries that are no operation or status."""
        known = by_name(operations)
        for name, written in self.calls.items():
            if name not in known:
                message = f"unknown operation '{name}' of driver '{self.backend}'{did_you_mean(name, known)}"
                yield written.location, message
        for operation in known.values():
            call = self.calls.get(operation.name)
            if call is None and not operation.is_optional:
                yield Location(self.path), f"'calls' of driver '{self.backend}' lacks '{operation.call}'; add it"
        used = {OUT_OF_MEMORY, *(status for operation in operations for status in operation.statuses)}
        for status in self.statuses:
            if status not in used:
                message = f"unknown status '{status}' of driver '{self.backend}'{did_you_mean(status, used)}"
                yield Location(self.path), message
