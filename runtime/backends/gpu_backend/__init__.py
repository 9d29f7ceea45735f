"""Shared by all backends on GPUs. A vendor supplies a driver and libraries; no vendor's package is named here.

`driver` wraps the vendor's driver, `memory` allocates, `libraries` describes vendor libraries, `execute` launches and
records, `ops` implements the ops. Each builds on those before it. `device` and `runtime` tie them together.
"""
