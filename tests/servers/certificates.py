"""Certificates of servers on loopback, signed by a private authority."""

from __future__ import annotations

from pathlib import Path

__all__ = ["AUTHORITY", "CERTIFICATE", "KEY", "PASSWORD", "USER", "write_certificates"]

AUTHORITY, CERTIFICATE, KEY = "authority.pem", "certificate.pem", "key.pem"
USER, PASSWORD = "secured", "Xq7-hunter2/%"
"""Who may use the ports with TLS."""


def write_certificates(folder: Path) -> None:
    """Write the certificate of an authority, and one of 127.0.0.1 that it has signed, with its key."""
    import trustme  # noqa: PLC0415 - servers are also installed and started without the tests' dependencies
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(folder / AUTHORITY)
    (folder / CERTIFICATE).write_bytes(b"".join(it.bytes() for it in made.cert_chain_pems))
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    (folder / KEY).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / KEY).chmod(0o600)
