"""Prints the fencing token if this pod is active. Otherwise exits with 1. Usage: reader.py [DIRECTORY OF THE VOLUME]"""
import os, sys


def token(volume):
    # The kubelet replaces ..data as a whole: both files of one version belong together.
    version = os.readlink(f"{volume}/..data")
    try:
        role, value = [open(f"{volume}/{version}/{name}").read() for name in ("role", "token")]
    except FileNotFoundError:
        return token(volume) if os.readlink(f"{volume}/..data") != version else None
    return value if role == "active" else None


found = token(sys.argv[1] if len(sys.argv) > 1 else "/lease")
print(found) if found else sys.exit(1)
