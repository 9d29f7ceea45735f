"""Decompositions of matrices, which are compared with what they are made of."""

from __future__ import annotations

import numpy as np
import pytest
import tallow

from .. import values
from ..bench import Bench
from ..layouts import Operand
from ..oracle import matrices as oracle
from ..oracle.formats import COMPLEX, NUMPY, Array
from ..oracle.matrices import OTHERS

SQUARE = [
    ((1, 1), "contiguous"),
    ((3, 3), "offset"),
    ((4, 4), "transposed"),
    ((17, 17), "narrowed columns"),
    ((2, 3, 5, 5), "rolled"),
    ((0, 3, 3), "contiguous"),
    ((2, 0, 0), "contiguous"),
]

# Kernels leave it to LAPACK.
LARGE = ((33, 33), "contiguous")


def cholesky(bench: Bench) -> None:
    for shape, placement in (*SQUARE, LARGE):
        x = definite(bench, shape, placement)
        where = bench.where(f"{shape}, {placement}")
        factor = oracle.wide(bench.name, bench.read(x.storage.cholesky(x.layout), bench.name, shape, where))
        check(bench, factor @ oracle.adjoint(factor), oracle.wide(bench.name, x.values), where)
        assert (factor == np.tril(factor)).all(), where
        assert (np.diagonal(factor, 0, -2, -1).real > 0).all(), where
        bench.assert_untouched(x, where)
    negative = bench.lay_out(-np.eye(3, dtype=NUMPY[bench.name]))
    with pytest.raises(tallow.InvalidArgument, match="cholesky: Matrix is not positive definite; there is no result"):
        negative.storage.cholesky(negative.layout)


def det(bench: Bench) -> None:
    for shape, placement in SQUARE:
        x = square(bench, shape, placement)
        where = bench.where(f"{shape}, {placement}")
        expected = oracle.det(oracle.wide(bench.name, x.values))
        got = bench.read(x.storage.det(x.layout), bench.name, shape[:-2], where)
        limit = epsilon(bench, shape) * (1 + np.abs(np.linalg.norm(x.values, axis=(-2, -1))) ** shape[-1])
        assert (np.abs(oracle.wide(bench.name, got) - expected) <= limit).all(), where
        bench.assert_untouched(x, where)
    singular = bench.lay_out(np.ones((3, 3), NUMPY[bench.name]))
    assert bench.read(singular.storage.det(singular.layout), bench.name, (), bench.where("ones")) == 0


def slogdet(bench: Bench) -> None:
    for shape, placement in (*SQUARE, LARGE):
        x = definite(bench, shape, placement)
        where = bench.where(f"{shape}, {placement}")
        expected = oracle.det(oracle.wide(bench.name, x.values))
        signs, logarithms = x.storage.slogdet(x.layout)
        sign = bench.read(signs, bench.name, shape[:-2], where)
        size = bench.read(logarithms, real_name(bench.name), shape[:-2], where)
        np.testing.assert_allclose(sign, 1, epsilon(bench, shape), err_msg=where)
        slack = 64 * epsilon(bench, shape)
        np.testing.assert_allclose(size, np.log(np.abs(expected)).astype(size.dtype), slack, slack, err_msg=where)
    numbers = np.array([[[0, 2], [3, 0]], [[1, 1], [1, 1]]]).astype(NUMPY[bench.name])
    signs, logarithms = bench.lay_out(numbers).storage.slogdet(bench.lay_out(numbers).layout)
    assert bench.read(signs, bench.name, (2,), bench.where("signs")).tolist() == [-1, 0]
    actual = bench.read(logarithms, real_name(bench.name), (2,), bench.where("logarithms"))
    assert abs(actual[0] - np.log(6)) < 1e-6 and actual[1] == -np.inf


def solve(bench: Bench) -> None:
    for shape, placement in (*SQUARE, LARGE):
        for columns in (1, 3):
            x = definite(bench, shape, placement)
            inputs = bench.lay_out(
                values.modest(bench.generator, bench.name, (*shape[:-1], columns)),
                "contiguous" if 0 in shape else "transposed",
            )
            where = bench.where(f"{shape}, {placement}, {columns} columns")
            result = x.storage.solve(x.layout, inputs.storage, inputs.layout)
            got = oracle.wide(bench.name, bench.read(result, bench.name, inputs.values.shape, where))
            check(bench, oracle.wide(bench.name, x.values) @ got, oracle.wide(bench.name, inputs.values), where, 8)
            bench.assert_untouched(x, where)
            bench.assert_untouched(inputs, where)
    singular = bench.lay_out(np.ones((3, 3), NUMPY[bench.name]))
    with pytest.raises(tallow.InvalidArgument, match="solve: Singular matrix; there is no result"):
        singular.storage.solve(singular.layout, singular.storage, singular.layout)


def eig(bench: Bench) -> None:
    name = bench.name if bench.name in COMPLEX else next(c for c, pair in COMPLEX.items() if pair.part == bench.name)
    for shape, placement in SQUARE:
        x = square(bench, shape, placement)
        where = bench.where(f"{shape}, {placement}")
        result, vectors = x.storage.eig(x.layout, True)
        w = oracle.wide(name, bench.read(result, name, shape[:-1], where))
        v = oracle.wide(name, bench.read(vectors, name, shape, where))
        check(bench, oracle.wide(bench.name, x.values) @ v, v * w[..., None, :], where, 8)
        (alone,) = x.storage.eig(x.layout, False)
        sums = oracle.wide(name, bench.read(alone, name, shape[:-1], where)).sum(-1)
        check(bench, sums, np.trace(oracle.wide(bench.name, x.values), 0, -2, -1), where, 128)


def eigh(bench: Bench) -> None:
    real = real_name(bench.name)
    for shape, placement in SQUARE:
        x = square(bench, shape, placement)
        # Of what is given only the lower triangle counts.
        lower = np.tril(oracle.wide(bench.name, x.values))
        diagonal = np.eye(shape[-1]) * lower.real
        matrix = lower * (1 - np.eye(shape[-1])) + oracle.adjoint(lower * (1 - np.eye(shape[-1]))) + diagonal
        where = bench.where(f"{shape}, {placement}")
        result, vectors = x.storage.eigh(x.layout, True)
        w = oracle.wide(real, bench.read(result, real, shape[:-1], where))
        v = oracle.wide(bench.name, bench.read(vectors, bench.name, shape, where))
        check(bench, matrix @ v, v * w[..., None, :], where)
        check(bench, oracle.adjoint(v) @ v, np.broadcast_to(np.eye(shape[-1]), shape), where)
        assert (np.diff(w) >= 0).all(), where
        (alone,) = x.storage.eigh(x.layout, False)
        check(bench, oracle.wide(real, bench.read(alone, real, shape[:-1], where)), w, where)
        bench.assert_untouched(x, where)


def qr(bench: Bench) -> None:
    for shape, placement in (*SQUARE, *OTHERS):
        x = square(bench, shape, placement)
        *outer, m, n = shape
        for is_complete in (False, True):
            count = m if is_complete else min(m, n)
            where = bench.where(f"{shape}, {placement}, complete {is_complete}")
            columns, upper = x.storage.qr(x.layout, is_complete)
            q = oracle.wide(bench.name, bench.read(columns, bench.name, (*outer, m, count), where))
            r = oracle.wide(bench.name, bench.read(upper, bench.name, (*outer, count, n), where))
            check(bench, q @ r, oracle.wide(bench.name, x.values), where)
            check(bench, oracle.adjoint(q) @ q, np.broadcast_to(np.eye(count), (*outer, count, count)), where)
            assert (r == np.triu(r)).all(), where
        bench.assert_untouched(x, where)


def svd(bench: Bench) -> None:
    real = real_name(bench.name)
    for shape, placement in (*SQUARE, *OTHERS):
        x = square(bench, shape, placement)
        *outer, m, n = shape
        few = min(m, n)
        for is_full in (False, True):
            rows, columns = (m, n) if is_full else (few, few)
            where = bench.where(f"{shape}, {placement}, full {is_full}")
            left, result, right = x.storage.svd(x.layout, True, is_full)
            u = oracle.wide(bench.name, bench.read(left, bench.name, (*outer, m, rows), where))
            s = oracle.wide(real, bench.read(result, real, (*outer, few), where))
            v = oracle.wide(bench.name, bench.read(right, bench.name, (*outer, columns, n), where))
            check(bench, (u[..., :few] * s[..., None, :]) @ v[..., :few, :], oracle.wide(bench.name, x.values), where)
            check(bench, oracle.adjoint(u) @ u, np.broadcast_to(np.eye(rows), (*outer, rows, rows)), where)
            check(bench, v @ oracle.adjoint(v), np.broadcast_to(np.eye(columns), (*outer, columns, columns)), where)
            assert (np.diff(s) <= 0).all() and (s >= 0).all(), where
        (alone,) = x.storage.svd(x.layout, False, False)
        check(bench, oracle.wide(real, bench.read(alone, real, (*outer, few), where)), s, where)
        bench.assert_untouched(x, where)


def square(bench: Bench, shape: tuple[int, ...], placement: str) -> Operand:
    return bench.lay_out(values.modest(bench.generator, bench.name, shape), placement)


def definite(bench: Bench, shape: tuple[int, ...], placement: str) -> Operand:
    """Hermitian matrices whose eigenvalues are far above 0."""
    drawn = values.modest(bench.generator, bench.name, shape)
    scale = 1 + np.abs(drawn).max(initial=0)
    matrix = drawn @ oracle.adjoint(drawn) / scale**2 + np.eye(shape[-1])
    return bench.lay_out(matrix.astype(NUMPY[bench.name]), placement)


def real_name(name: str) -> str:
    return COMPLEX[name].part if name in COMPLEX else name


def epsilon(bench: Bench, shape: tuple[int, ...]) -> float:
    return 16 * max(shape[-1], 1) * float(np.finfo(NUMPY[bench.name]).eps)


def check(bench: Bench, got: Array, expected: Array, where: str, factor: float = 1) -> None:
    """The error of a decomposition is one of the whole matrix, or of the whole line of values."""
    assert got.shape == expected.shape, f"{where}: {got.shape}, expected {expected.shape}"
    largest = 1 + np.abs(expected).max(initial=0)
    limit = factor * epsilon(bench, (max(expected.shape, default=1),)) * largest
    error = np.abs(got - expected).max(initial=0)
    assert error <= limit, f"{where}: an error of {error}, at most {limit} expected"


HANDLERS = {
    "cholesky": cholesky,
    "det": det,
    "slogdet": slogdet,
    "solve": solve,
    "eig": eig,
    "eigh": eigh,
    "qr": qr,
    "svd": svd,
}
