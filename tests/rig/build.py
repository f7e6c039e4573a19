"""Build the control plane's programs from their Go modules, once per content, under the user's cache folder.

Run as ``python -m tests.rig.build [--kubectl] [--check]``. Needs only the standard library and Go >= 1.26; an older Go
counts as missing (``GOTOOLCHAIN=local``: no toolchain is ever downloaded). A cold build takes about 15 minutes on two
cores and 2.6 GB of memory; a cached one returns at once.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "v1.37.2"  # the k8s.io/kubernetes version that go.mod pins; stamped so that /version tells the truth
MIN_GO = (1, 26)
STAMP = "k8s.io/component-base/version"
LDFLAGS = " ".join(
    [
        "-s -w",
        f"-X {STAMP}.gitVersion={VERSION}",
        f"-X {STAMP}.gitMajor=1",
        f"-X {STAMP}.gitMinor={VERSION.split('.')[1]}",
        f"-X {STAMP}.gitTreeState=clean",
        f"-X {STAMP}.gitCommit=0000000000000000000000000000000000000000",
        f"-X {STAMP}.buildDate=2026-08-26T00:00:00Z",
    ]
)
FLAGS = ["-trimpath", "-p", "2", "-ldflags", LDFLAGS]
# Order: the API server first, for it compiles what the others share.
PROGRAMS = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "etcd": "go.etcd.io/etcd/server/v3",
}
KUBECTL = {"kubectl": "k8s.io/kubernetes/cmd/kubectl"}


def cache_root() -> Path:
    """The folder under which builds are kept: ``$XDG_CACHE_HOME/queuectl/rig`` or ``~/.cache/queuectl/rig``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "queuectl" / "rig"


def content_hash() -> str:
    """Hash of go.mod, go.sum and the build flags: the name of the folder that holds the binaries."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((HERE / name).read_bytes())
    digest.update(repr(FLAGS).encode())
    return digest.hexdigest()[:16]


def binaries() -> Path | None:
    """The folder of built programs, or None when at least one of them is missing."""
    folder = cache_root() / content_hash()
    return folder if all((folder / name).exists() for name in PROGRAMS) else None


def find_go() -> str | None:
    """Path of a Go >= 1.26 on PATH or at /usr/local/go/bin, else None."""
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go"):
        if not candidate or not os.path.exists(candidate):
            continue
        environment = {**os.environ, "GOTOOLCHAIN": "local"}
        out = subprocess.run(
            [candidate, "version"], capture_output=True, text=True, env=environment, check=False
        ).stdout
        found = re.search(r"go(\d+)\.(\d+)", out)
        if found and (int(found[1]), int(found[2])) >= MIN_GO:
            return candidate
    return None


def build(programs: dict[str, str]) -> Path:
    """Build what is missing of ``programs`` and return their folder. Raises SystemExit with advice without Go."""
    folder = cache_root() / content_hash()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = {name: package for name, package in programs.items() if not (folder / name).exists()}
        if not missing:
            return folder
        go = find_go()
        if go is None:
            raise SystemExit("rig: Go 1.26 or newer is needed to build the control plane; install it or put it on PATH")
        environment = {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        for name, package in missing.items():
            started = time.monotonic()
            print(f"rig: building {name} {VERSION if name != 'etcd' else ''}...", flush=True)
            target = folder / f".{name}.{os.getpid()}"
            subprocess.run([go, "build", *FLAGS, "-o", str(target), package], cwd=HERE, env=environment, check=True)
            os.replace(target, folder / name)
            print(f"rig: built {name} in {time.monotonic() - started:.0f} s", flush=True)
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: build, or with ``--check`` only say whether a build is there (exit 0) or possible (exit 3)."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--kubectl", action="store_true", help="also build kubectl")
    parser.add_argument("--check", action="store_true", help="do not build; exit 0 if built, 3 if not")
    options = parser.parse_args(arguments)
    if options.check:
        return 0 if binaries() else 3
    print(build({**PROGRAMS, **(KUBECTL if options.kubectl else {})}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
