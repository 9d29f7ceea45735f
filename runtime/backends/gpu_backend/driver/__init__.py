"""A vendor's driver as the backend sees it: streams, events, buffers, uploads, launches and errors.

A vendor derives its own classes from these; no vendor's package is named. Nothing here knows of storages or ops.
"""
