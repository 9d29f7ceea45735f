"""The kinds of functors, and the constants that say what each kind has."""

# What the expressions of each kind of functors call their operands; a reduction's combine has a y too. The functors of
# such a kind may be chosen by an argument, which is of an enum.
CHOSEN_KINDS = {"unary": ("x",), "binary": ("x", "y"), "cmp": ("x", "y"), "reduce": ("x",)}
# The others name their operands themselves.
NAMED = "ternary"
# The one whose ops compute of rows, and name their operands too where they have several.
ROW = "row"
RESIDUAL = "residual"
"""The optional operand of row ops that is added to the elements."""
# The gradients of those, as ops of rows.
ROW_GRADIENT = "row_gradient"
# Those that reduce the elements up to each.
SCAN = "scan"
# The one whose ops give the gradients of both operands.
JOINT_KIND = "binary_gradients"
# The derived kinds: the gradients of the ops of other kinds.
GRADIENT_KINDS = {"unary_gradient": ("unary",), "binary_gradient": ("binary",), JOINT_KIND: ("binary", NAMED)}
# Those of which a package has an enum.
ENUM_KINDS = (*CHOSEN_KINDS, *GRADIENT_KINDS)
FUNCTOR_KINDS = (*CHOSEN_KINDS, NAMED, ROW, ROW_GRADIENT, SCAN, *GRADIENT_KINDS)
# The result of a functor whose dtype is an argument.
ANY_RESULT = "any"
REAL_RESULT = "real"
# The enum of the functors that are storage methods of their own.
METHOD_OP = "MethodOp"


def op_class(kind: str) -> str:
    """The enum of the functors of a kind that an argument chooses: unary_gradient -> UnaryGradientOp."""
    return f"{kind.title().replace('_', '')}Op"
