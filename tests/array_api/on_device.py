"""The namespace of a device as a module, for tests that import one: DEVICE names the device."""

import os

from tallow import Tensor

_namespace = Tensor.zeros(0, device=os.environ["DEVICE"]).__array_namespace__()
globals().update({name: getattr(_namespace, name) for name in ("__name__", *_namespace.__all__)})
