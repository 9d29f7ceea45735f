"""Says which backends are available here and, where one is not, what is missing: `python -m tallow.doctor`."""

from .report import BackendReport, Report, doctor

__all__ = ["BackendReport", "Report", "doctor"]
