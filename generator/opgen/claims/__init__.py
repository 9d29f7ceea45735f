"""Evaluating the claims of a spec on sample numbers: edges, gradients, reductions and expressions of primitives.

Formulas are evaluated with Python's own numbers: no kernel and no library is called. Claims about dtypes and functions
that are unknown here are left to the tests.
"""

from collections.abc import Sequence

from opgen.cache.memo import memoize
from opgen.claims.context import Context
from opgen.claims.edges import edge_problems
from opgen.claims.implementations import formula_problems, implementation_problems
from opgen.claims.literals import float_literal_problems, literal_problems
from opgen.claims.monoids import reduction_problems
from opgen.claims.rows import row_problems
from opgen.claims.slopes import gradient_problems, primitive_problems
from opgen.formula.primitives import Primitive
from opgen.model.functors import Functor
from opgen.model.spec import Spec
from opgen.problem import Problem, Problems


def check_claims(spec: Spec, problems: Problems) -> None:
    """Note the false claims of a spec whose formulas are valid.

    A file with an error may not say what it means to: its claims are evaluated once the error is corrected.
    """
    context, invalid = Context(spec, spec.primitives), problems.invalid_files
    needed = [*(dtype.location for dtype in spec.dtypes), *(each.location for each in spec.primitives.values())]
    if any(location.path in invalid for location in needed):
        return
    for primitive in spec.primitives.values():
        if not primitive.location.is_of_base:
            problems += of_primitive(context, primitive)
    for kind in spec.functors.values():
        for state in kind.listed if kind.path not in invalid else ():
            problems += float_literal_problems(context, state)
    for functor in spec.every_functor:
        if functor.location.path not in invalid:
            problems += of_functor(context, functor)


@memoize(lambda context, primitive: (primitive, context.primitives))
def of_primitive(context: Context, primitive: Primitive) -> Sequence[Problem]:
    """Return the false claims of a primitive."""
    kinds = (float_literal_problems, formula_problems, implementation_problems, primitive_problems)
    return next(filter(None, ([*problems_of(context, primitive)] for problems_of in kinds)), ())


def _key(context: Context, functor: Functor) -> tuple[object, ...]:
    """Return the records that the claims of an op depend on."""
    spec = context.spec
    others = spec.reductions if functor.reduction is not None or functor.is_of_rows else ()
    states = [state for kind in spec.functors.values() for state in kind.listed] if others else []
    nodes = [node for each in (functor, *others) for node in each.nodes]
    nodes += [formula.node for state in states for formula in state.formulas]
    return (functor, context.primitives.used_by(tuple(nodes)), spec.known_dtypes, spec.package, *others, *states)


@memoize(_key)
def of_functor(context: Context, functor: Functor) -> Sequence[Problem]:
    """Return the false claims of an op; a wrong reduction also makes gradients wrong, and both make edges wrong."""
    kinds = (literal_problems, reduction_problems, gradient_problems, row_problems, edge_problems)
    return next(filter(None, ([*problems_of(context, functor)] for problems_of in kinds)), ())
