"""What the templates see: for each rendered template the function that makes its view."""

import re
from collections.abc import Callable, Iterable, Mapping

from opgen.model import Spec
from opgen.views.arrays import array_backend, library, vocabulary
from opgen.views.backend import (
    backend_ops,
    backends_module,
    custom_op,
    custom_op_of_one,
    dummy_backend,
    gpu_backend,
    kernel_op,
)
from opgen.views.dispatch import device, storage_base, storage_family, storage_package
from opgen.views.dtype import dtype_module
from opgen.views.flow import flow
from opgen.views.formats import formats
from opgen.views.kernels import arguments, constants, dtypes, host_arguments, kernel_family, states
from opgen.views.libraries import library_functions
from opgen.views.op import functors, op_module, tensor_ops
from opgen.views.package import limits, package, public_module
from opgen.views.support import support
from opgen.views.toolchains import host_toolchains

PLACEHOLDER = re.compile(r"{(.*?)}")
# The families that a `{placeholder}` in a template's path stands for.
PLACEHOLDERS: Mapping[str, Callable[[Spec], Iterable[str]]] = {
    "storage": lambda spec: [family.name for family in spec.families],
    "family": lambda spec: [family.name for family in spec.kernels if not family.host],
    "host": lambda spec: [family.name for family in spec.kernels if family.host],
    "library": lambda spec: [library.name for library in spec.c_libraries],
    "gpu": lambda spec: [
        backend.package for backend in spec.backends if backend.package and "gpu_backend" in spec.packages[backend.name]
    ],
    "array": lambda spec: [
        backend.package for backend in spec.backends if backend.package and backend.array is not None
    ],
    # Of these, the ones that the runtime has no devices for: the library is imported when a device is opened.
    "imported": lambda spec: [
        backend.package
        for backend in spec.backends
        if backend.package and backend.array is not None and "device" not in spec.own_modules.get(backend.package, ())
    ],
    "runtime": lambda spec: [backend.package for backend in spec.backends if backend.package is not None],
    "public": lambda spec: spec.public,
    "dummy": lambda spec: [backend.name for backend in spec.backends if backend.extra is not None],
}

# The folders whose files these families are, where they are not chosen among the backends.
FOLDERS: Mapping[str, str] = {
    "storage": "spec/storage",
    "family": "spec/kernels",
    "library": "spec/libraries",
}

# The view of each rendered template, made from the spec and the member that the placeholder stands for. A template that
# belongs to one backend alone is listed with {runtime} in place of the backend's folder.
FILES: Mapping[str, Callable[[Spec, str | None], object]] = {
    "README.md.j2": package,
    "docs/flow.svg.j2": flow,
    "docs/formats.md.j2": formats,
    "pyproject.toml.j2": package,
    "setup.py.j2": host_toolchains,
    "tallow/__init__.py.j2": package,
    "tallow/array_functors.py.j2": functors,
    "tallow/array_library.py.j2": vocabulary,
    "tallow/backends.py.j2": backends_module,
    "tallow/custom_op.py.j2": custom_op,
    "tallow/device.py.j2": device,
    "tallow/device_base.py.j2": device,
    "tallow/dtype.py.j2": dtype_module,
    "tallow/dummy_{dummy}_backend.py.j2": dummy_backend,
    "tallow/ggml_dtype.py.j2": formats,
    "tallow/{imported}/__init__.py.j2": array_backend,
    "tallow/{imported}/device.py.j2": array_backend,
    "tallow/{array}/library.py.j2": library,
    "tallow/{imported}/storage.py.j2": array_backend,
    "tallow/quantized_matmul.py.j2": custom_op_of_one,
    "tallow/{gpu}/__init__.py.j2": gpu_backend,
    "tallow/{gpu}/device.py.j2": gpu_backend,
    "tallow/{gpu}/storage/__init__.py.j2": gpu_backend,
    "tallow/{gpu}/storage/backend_impl.py.j2": gpu_backend,
    "tallow/{gpu}/storage/slice.py.j2": gpu_backend,
    "tallow/{gpu}/utils.py.j2": gpu_backend,
    "tallow/py.typed.j2": package,
    "tallow/kernels/__init__.py.j2": package,
    "tallow/libraries/__init__.py.j2": package,
    "tallow/{public}.py.j2": public_module,
    "tallow/{runtime}/__init__.py.j2": gpu_backend,
    "tallow/{runtime}/ops/__init__.py.j2": backend_ops,
    "tallow/host_blocks.py.j2": formats,
    "tallow/kernels/arguments.py.j2": arguments,
    "tallow/kernels/blocks.hpp.j2": formats,
    "tallow/kernels/constants.hpp.j2": constants,
    "tallow/kernels/constants.py.j2": constants,
    "tallow/kernels/dtypes.hpp.j2": dtypes,
    "tallow/kernels/states.hpp.j2": states,
    "tallow/kernels/host_arguments.py.j2": host_arguments,
    "tallow/kernels/toolchains.py.j2": host_toolchains,
    "tallow/kernels/{family}.hip.j2": kernel_family,
    "tallow/kernels/{host}.cpp.j2": kernel_family,
    "tallow/kernel_op.py.j2": kernel_op,
    "tallow/libraries/{library}.py.j2": library_functions,
    "tallow/limits.py.j2": limits,
    "tallow/op.py.j2": op_module,
    "tallow/storage/__init__.py.j2": storage_package,
    "tallow/storage/base.py.j2": storage_base,
    "tallow/storage/{storage}.py.j2": storage_family,
    "tallow/support_table.py.j2": support,
    "tallow/tensor_moves.py.j2": device,
    "tallow/tensor_ops.py.j2": tensor_ops,
}
