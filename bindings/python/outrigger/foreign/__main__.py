# SPDX-License-Identifier: Apache-2.0
"""python -m outrigger.foreign SOURCE DIRECTORY [--tag TAG] [--as TAG] [--replace]: a checkpoint of DeepSpeed or of PyTorch becomes one of
Outrigger's."""
import argparse
import os
import sys

from .. import OutriggerError
from . import ForeignError, convert, open


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m outrigger.foreign", description="Makes a checkpoint of Outrigger's of one of DeepSpeed or PyTorch.")
    parser.add_argument("source", help="the folder that DeepSpeed or torch.distributed.checkpoint saved into")
    parser.add_argument("directory", help="the folder of Outrigger's checkpoints; made if it is not there")
    parser.add_argument("--tag", help="the checkpoint in source; default: the one that its file `latest` names")
    parser.add_argument("--as", dest="name", metavar="TAG", help="its name in directory; default: as in source")
    parser.add_argument("--replace", action="store_true", help="one of that name is replaced")
    arguments = parser.parse_args()
    try:
        checkpoint = open(arguments.source, arguments.tag)
        name = arguments.name or os.path.basename(os.path.normpath(checkpoint.path))
        convert(checkpoint, arguments.directory, name, arguments.replace)
    except (ForeignError, OutriggerError) as error:
        print(f"outrigger.foreign: {error}", file=sys.stderr)
        return 1
    print(f"{checkpoint.kind}: {len(checkpoint.parameters)} parameters, {checkpoint.progress.global_steps} steps; saved as {os.path.join(arguments.directory, name)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
