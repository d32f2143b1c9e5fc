"""Which kind of file system a path lies on."""

from __future__ import annotations

from pathlib import Path

NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "glusterfs", "ceph", "fuse.s3fs")
"""Kinds on which SQLite's locks do not hold, or a sync does not reach a disk."""
MOUNTS = Path("/proc/mounts")


def file_system(path: str) -> str:
    """The name of the kind, such as "ext4"; "" where the system does not tell."""
    if not MOUNTS.exists():
        return ""
    best, kind = "", ""
    for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        _, place, name, *_ = line.split()
        if (path == place or path.startswith(place.rstrip("/") + "/")) and len(place) >= len(best):
            best, kind = place, name
    return kind
