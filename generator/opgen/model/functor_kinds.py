"""The files of spec/functors."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

from opgen.decoder import Diagnostics
from opgen.model.functors import Functor
from opgen.model.kinds import CHOSEN_KINDS, ENUM_KINDS, NAMED, ROW, ROW_GRADIENT, SCAN, op_class
from opgen.model.reductions import State
from opgen.notes import Entry, Key, Mark, Name, Of

_JOINING = Of((NAMED, ROW, ROW_GRADIENT, SCAN))


@dataclass(frozen=True)
class FunctorKind:
    """A file of spec/functors: ops with the same operands.

    An op with parameters, with operands that it names, or with a result of any dtype is a storage method and a tensor
    method of its own. The argument `op` of the storage method that names the kind in its `ops` chooses the others.

    `opgen check` computes what an op claims, on sample numbers of each dtype: its edges; its gradients, in f64, against
    differences of its formula (at a kink, a slope of one side or 0 is right); that the identity of a reduction changes
    no contribution, that `combine` is associative and commutative, that `state` gives the results of `element` and
    `combine`, and that `result` holds what elements contribute. Formats and functions that opgen does not know are left
    to tests.
    """

    name: Annotated[str, Entry("{}.yaml")]
    unsupported: Annotated[
        str, Of((*ENUM_KINDS, ROW, SCAN)), "Why an op lacks the dtypes that it does not have; errors quote it."
    ]
    functors: Annotated[  # the others are derived
        tuple[Functor, ...], Key("ops"), Of((*CHOSEN_KINDS, NAMED, ROW, SCAN)), "The ops by name."
    ]
    joined: Annotated[Name, Key("family"), _JOINING, "The file of spec/storage that the methods of the ops join."]
    listed: Annotated[
        tuple[State, ...], Key("states"), Mark.OPTIONAL, Of(("reduce",)), "The states of reductions, by name."
    ]
    path: Path

    def diagnostics(self, _: str) -> Diagnostics:
        """Note reasons that ops have of their file."""
        for functor in self.functors:
            if functor.unsupported and functor.unsupported == self.unsupported:
                message = f"'unsupported' of op '{functor.name}' is that of its file; remove it"
                yield ("ops", functor.name, "unsupported"), message

    @property
    def family(self) -> str | None:
        """The file of spec/storage that its methods join, where none chooses between its ops."""
        return None if self.name in ENUM_KINDS else self.joined

    @cached_property
    def states(self) -> Mapping[str, State]:
        """The states of reductions, by their names."""
        return {state.name: state for state in self.listed}

    @cached_property
    def by_name(self) -> Mapping[str, Functor]:
        """The functors by their names."""
        return {functor.name: functor for functor in self.functors}

    @property
    def class_name(self) -> str:
        """The enum of the functors that are chosen by an argument: unary -> UnaryOp."""
        return op_class(self.name)

    @property
    def chosen(self) -> tuple[Functor, ...]:
        """The functors that are chosen by an argument."""
        return tuple(functor for functor in self.functors if not functor.is_method)

    @property
    def max_parameters(self) -> int:
        """How many parameters a functor has at most."""
        return max((len(functor.parameters) for functor in self.functors), default=0)

    @property
    def max_operands(self) -> int:
        """How many operands a functor has at most."""
        return max((len(functor.operands) for functor in self.functors), default=0)

    @property
    def max_results(self) -> int:
        """How many results a functor has at most."""
        return max((len(functor.results) for functor in self.functors), default=0) or 1

    @property
    def methods(self) -> tuple[Functor, ...]:
        """The functors that are storage methods of their own."""
        return tuple(functor for functor in self.functors if functor.is_method)
