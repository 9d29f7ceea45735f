"""The drivers' part of the model: operations of a GPU's driver and compiler, and the calls that do them."""

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
    """An operation that the runtime requires of a driver or a compiler."""

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
class Binding:
    """A module of Python that binds a vendor's library, and the calls of it that do what the runtime asks."""

    name: Annotated[str, "The name of the library in messages, such as `the HIP runtime`."]
    binding: Annotated[str, _MODULE, "The module of Python that binds the library."]
    prefix: Annotated[
        Name,
        "The prefix of its functions. Each gives a tuple that its status leads; a status is false for success, and has "
        "a name.",
    ]
    install: Annotated[str, "What to do where the library does not load."]
    imports: Annotated[
        Mapping[str, str],
        Mark.OPTIONAL,
        Example("c_char_p: ctypes"),
        "What calls use of other modules: by the name, the module that has it.",
    ]
    calls: Annotated[
        Mapping[Name, DriverCall],
        "By the name of an operation of the family, the expression that does it, over its parameters and the names of "
        "the binding. Calls of functions that begin with `prefix` raise where their status is an error. Modules of the "
        "backend's package are at hand by their names, `binding` is the binding, and `checked(call, result)` gives the "
        "values of a result after its status.",
    ]

    def is_function(self, name: str) -> bool:
        """Whether a name of the binding is a function whose result a status leads."""
        return name.startswith(self.prefix) and name[len(self.prefix) :][:1].isupper()

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions of the library that it calls, sorted."""
        return tuple(sorted(self._called()))

    def _called(self) -> set[str]:
        return {
            node.func.id
            for call in self.calls.values()
            for node in ast.walk(call.tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and self.is_function(node.func.id)
        }

    def unmatched(self, what: str, operations: tuple[Operation, ...], path: Path) -> Iterator[tuple[Location, str]]:
        """Yield its calls that are no operation, and the operations that lack a call."""
        known = by_name(operations)
        for name, written in self.calls.items():
            if name not in known:
                yield written.location, f"unknown operation '{name}' of {what}{did_you_mean(name, known)}"
        for operation in known.values():
            if operation.name not in self.calls and not operation.is_optional:
                yield Location(path), f"'calls' of {what} lacks '{operation.call}'; add it"


@dataclass(frozen=True)
class CompilerTable(Binding):
    """The vendor's library that compiles kernels at run time."""

    library: Annotated[str, "The name of its file, without lib and ending."]
    advice: Annotated[str, "What to do where a call fails for another reason than the source."]


@dataclass(frozen=True)
class DriverTable(Binding):
    """The driver of a backend on GPUs: by which calls of a binding for Python it does what the runtime asks of it."""

    backend: Annotated[str, Entry("driver '{}'")]
    doc: Annotated[str, "The docstring of the module of its calls."]
    runtime_libraries: Annotated[
        tuple[str, ...], "The names of the libraries that make up the driver, without lib and ending; it is the first."
    ]
    compiler: Annotated[CompilerTable, "The library that compiles kernels at run time, and its calls."]
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
    path: Path

    def _called(self) -> set[str]:
        return {*super()._called(), self.launch, self.launch_cooperative, *filter(None, [self.after_error])}

    def diagnostics(self, what: str) -> Diagnostics:
        """Note that no status says that there is not enough memory."""
        if OUT_OF_MEMORY not in self.statuses:
            yield "statuses", f"'statuses' of {what} lacks '{OUT_OF_MEMORY}', at which tensors give memory back; add it"

    def flaws(
        self, operations: tuple[Operation, ...], of_compiler: tuple[Operation, ...]
    ) -> Iterator[tuple[Location, str]]:
        """Yield the operations that it and its compiler lack, and its entries that are no operation or status."""
        what = f"driver '{self.backend}'"
        yield from self.unmatched(what, operations, self.path)
        yield from self.compiler.unmatched(f"the compiler of {what}", of_compiler, self.path)
        used = {OUT_OF_MEMORY, *(status for operation in operations for status in operation.statuses)}
        for status in self.statuses:
            if status not in used:
                yield Location(self.path), f"unknown status '{status}' of {what}{did_you_mean(status, used)}"
