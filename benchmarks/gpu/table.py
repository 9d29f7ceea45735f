"""The table in the terminal: a line for each row, printed as soon as it is measured."""

from __future__ import annotations

from .results import LIBRARIES, PEERS, Results, Row

HEAD = (
    f"{'op':<24} {'dtype':<5} {'size':>5} {'tallow':>9} {'':<7} {'ceiling':>7}"
    f" {'PyTorch':>9} {'ratio':>6} {'CuPy':>9} {'ratio':>6} {'device':>10} {'host':>8} {'PyTorch':>8} {'CuPy':>8}"
)


def line(row: Row, results: Results) -> str:
    """A row of the table: rates, ratios (above 1 tallow is faster), and microseconds on device and host."""
    name = f"{row.op:<24} {row.dtype:<5} {row.size:>5}"
    if row.failure:
        return f"{name} FAILED  {row.failure}"
    peers = " ".join(f"{figure(row.rate(peer)):>9} {number(row.ratio(peer), 2):>6}" for peer in PEERS)
    host = " ".join(f"{micros(row.libraries[name].host_seconds):>8}" for name in LIBRARIES)
    return (
        f"{name} {figure(row.rate('tallow')):>9} {row.unit:<7} {number(results.share(row), 2):>7}"
        f" {peers} {micros(row.libraries['tallow'].seconds):>10} {host}"
    )


def number(value: float | None, digits: int) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def figure(value: float | None) -> str:
    """A number with about three figures, or a dash where there is none."""
    return number(value, 0 if value is None or value >= 100 else 1 if value >= 10 else 2)


def micros(seconds: float | None) -> str:
    """Seconds as microseconds, or a dash where there are none."""
    return figure(None if seconds is None else seconds * 1e6)
