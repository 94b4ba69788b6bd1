"""Prints the fencing token if this pod is active. Otherwise exits with 1. Usage: reader.py [DIRECTORY OF THE VOLUME]"""
import os, sys

try:
    # The kubelet replaces ..data as a whole: both files of one version belong together.
    version = os.path.realpath((sys.argv + ["/lease"])[1] + "/..data")
    role, token = [open(f"{version}/{name}").read() for name in ("role", "token")]
except FileNotFoundError:
    sys.exit(1)
print(token) if role == "active" and token else sys.exit(1)
