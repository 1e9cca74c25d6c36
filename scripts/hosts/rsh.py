# SPDX-License-Identifier: Apache-2.0
"""The remote shell of hosts.py: runs a command line in the namespace of an address.   rsh.py ADDRESS=NAME,… [OPTION…] ADDRESS COMMAND…"""
import os
import sys

names = dict(pair.split("=") for pair in sys.argv[1].split(","))
words = sys.argv[2:]
place = next(i for i, word in enumerate(words) if word in names)
name = names[words[place]]
# With a host's name of its own, by which MPI tells what is near.
os.execvp("ip", ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", f"hostname {name}; {' '.join(words[place + 1:])}"])
