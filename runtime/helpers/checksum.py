"""Checksums of files in caches."""


def sha256(content: bytes) -> bytes:
    """Return the 32 bytes of the SHA-256 checksum."""
    import hashlib  # loads OpenSSL, which takes longer than the other imports of a program that compiles nothing

    return hashlib.sha256(content).digest()
