"""What a spec may say and this repository's does not: the package that comes of it is as whole as any."""

import os
import subprocess
import sys

from .project import REPOSITORY, Project

LISTS = {
    "spec/storage/elementwise.yaml": {
        "dtypes: float}}\n    unsupported: powers": "dtypes: [f32, f64, f16, bf16, f8e4m3]}}\n    unsupported: powers",
        "dtypes: float}}\n    unsupported: the function": (
            "dtypes: [u8, u32, i16, i32, i64, f32, f64, f16, bf16]}}\n    unsupported: the function"
        ),
    },
    "spec/device.yaml": {
        "dtypes: float\n    unsupported: random numbers are floating point; draw in f32 and convert\n    checks: "
        '["uniform': 'dtypes: [f32]\n    unsupported: they are drawn in f32\n    checks: ["uniform'
    },
    "spec/functors/unary.yaml": {
        "dtypes: float, numpy: np.exp(x)": "dtypes: [bf16, f16, f32, f64], numpy: np.exp(x)",
        "dtypes: float, numpy: np.log(x)": "dtypes: [u8, u32, i16, i32, i64, bf16, f16, f32, f64], numpy: np.log(x)",
    },
}


def edit(project: Project, edits: dict[str, dict[str, str]]) -> None:
    for file, pairs in edits.items():
        for find, replace in pairs.items():
            project.edit(file, find, replace)
    project.generate()


def check_lint(project: Project) -> None:
    # A line of the support matrix is as long as its reason.
    settings = ["--config", str(REPOSITORY / "pyproject.toml"), "--no-cache", "generated"]
    for command in (["format", "--check"], ["check", "--ignore", "E501"]):
        arguments = [sys.executable, "-m", "ruff", *command, *settings]
        result = subprocess.run(arguments, cwd=project.root, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


def run_python(project: Project, code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(project.output), "PYTHONDONTWRITEBYTECODE": "1"}
    arguments = [sys.executable, "-c", code]
    result = subprocess.run(arguments, env=environment, cwd=project.root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_dtypes_may_be_listed_one_by_one(repository: Project) -> None:
    edit(repository, LISTS)
    check_lint(repository)
    code = """
from tallow import DType, Device, Shape, Tensor, UnsupportedDType, UnaryOp
print(Tensor([2.0], DType.F32).powf(2.0).storage.to_numpy().tolist(), len(UnaryOp.LOG.dtypes))
for call in (
    lambda: Tensor([2], DType.U8).powf(2.0),
    lambda: Tensor([2.0], DType.F8E4M3).elu(1.0),
    lambda: Tensor([2.0], DType.F8E4M3).exp(),
    lambda: Device.cpu().rand_uniform_f64(0.0, 1.0, Shape((2,)), DType.F64),
):
    try:
        call()
    except UnsupportedDType as error:
        print(error)
"""
    assert run_python(repository, code).splitlines() == [
        "[4.0] 9",
        "powf: u8 is not supported on cpu: powers are floating point; convert with to_dtype first",
        "elu: f8e4m3 is not supported on cpu: the function is defined for floating-point dtypes; "
        "convert with to_dtype first",
        "exp: f8e4m3 is not supported on cpu: the function is defined for floating-point dtypes; "
        "convert with to_dtype first",
        "rand_uniform_f64: f64 is not supported on cpu: they are drawn in f32",
    ]


def test_a_method_that_a_backend_lacks_does_not_disable_it(repository: Project) -> None:
    """Nobody has written `half` and `nap`; every other method of the backends with a runtime goes on working."""
    none = "{unsupported: not written yet, dtypes: all}"
    edits = {
        "spec/storage/elementwise.yaml": {
            "  powf:\n": '  half:\n    signature: "half(layout: Layout) -> Storage"\n    doc: Half of x.\n'
            "    operands: {self: {layout: layout, dtypes: all}}\n  powf:\n"
        },
        "spec/device.yaml": {"  zeros:\n": '  nap:\n    signature: "nap() -> None"\n    doc: Do nothing.\n  zeros:\n'},
    }
    for backend in ("cpu", "rocm", "metal"):
        file = repository.root / f"spec/backends/{backend}.yaml"
        text = file.read_text(encoding="utf-8").replace("  powf:", f"  half: {none}\n  powf:")
        text = text.replace("  zeros:", "  nap: {unsupported: not written yet}\n  zeros:")
        file.write_text(text, encoding="utf-8")
    edit(repository, edits)
    check_lint(repository)
    code = """
from tallow import Device, Layout, Tensor
from tallow.backend import BackendDevice, BackendStorage
x = Tensor([2.0, 3.0])
print((x + 1).storage.to_numpy().tolist())
print([hasattr(method, "__isabstractmethod__") for method in (BackendStorage.half, BackendDevice.nap)])
for call in (lambda: x.storage.half(x.layout), Device.cpu().nap):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)
"""
    assert run_python(repository, code).splitlines() == [
        "[3.0, 4.0]",
        "[False, False]",
        "UnsupportedDType half: f32 is not supported on cpu: not written yet",
        "UnsupportedDType nap is not supported on cpu: not written yet",
    ]
