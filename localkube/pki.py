"""The cluster's certificate authority, certificates and keys, made with the ``openssl`` program."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from localkube.errors import LocalKubeError

_DAYS = "365"
# Own configuration instead of the system's: what that adds by itself differs between distributions. Key identifiers
# are there because Python 3.13 verifies strictly and refuses certificates without them.
_CA_CONFIG = """\
[req]
distinguished_name = none
x509_extensions = ca
[none]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign, digitalSignature
subjectKeyIdentifier = hash
"""
_LEAF = """\
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


def create(folder: Path, api_addresses: Sequence[str]) -> None:
    """
    Write ca, apiserver, etcd, kubelet-client and service-account keys into ``folder``.

    ``api_addresses``: IP addresses by which the API server is reached, besides the DNS names of its Service.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    _key(folder, "ca")
    (folder / "ca.cnf").write_text(_CA_CONFIG)
    _openssl(
        folder,
        *("req", "-x509", "-new", "-config", "ca.cnf", "-key", "ca.key", "-out", "ca.crt"),
        *("-days", _DAYS, "-subj", "/CN=localkube-ca"),
    )
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names += ["kubernetes.default.svc.cluster.local"]
    alternative = [f"DNS:{n}" for n in names] + [f"IP:{a}" for a in api_addresses]
    _certificate(folder, "apiserver", "/CN=kube-apiserver", "serverAuth", alternative)
    _certificate(folder, "etcd", "/CN=etcd", "serverAuth,clientAuth", ["DNS:localhost", "IP:127.0.0.1"])
    # The kubelet asks the API server what a caller may do; members of system:masters may do everything.
    _certificate(folder, "kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client", "clientAuth", [])
    _key(folder, "service-account")
    _openssl(folder, "ec", "-in", "service-account.key", "-pubout", "-out", "service-account.pub")


def _key(folder: Path, name: str) -> None:
    _openssl(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")
    (folder / f"{name}.key").chmod(0o600)


def _certificate(folder: Path, name: str, subject: str, usage: str, alternative: Sequence[str]) -> None:
    _key(folder, name)
    extensions = f"{_LEAF}extendedKeyUsage = {usage}\n"
    if alternative:
        extensions += f"subjectAltName = {','.join(alternative)}\n"
    (folder / f"{name}.ext").write_text(extensions)
    _openssl(folder, "req", "-new", "-config", "ca.cnf", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
    _openssl(
        folder,
        *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-days", _DAYS, "-extfile", f"{name}.ext", "-out", f"{name}.crt"),
    )


def _openssl(folder: Path, *arguments: str) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        raise LocalKubeError("openssl is not installed.", "Install it: apt-get install -y openssl")
    ran = subprocess.run([openssl, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise LocalKubeError(f"openssl {arguments[0]} failed: {ran.stderr.strip()}")
