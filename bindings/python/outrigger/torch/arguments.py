# SPDX-License-Identifier: Apache-2.0
"""Command-line arguments that DeepSpeed scripts take."""
import argparse


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds --deepspeed, --deepspeed_config and their old spellings to an argparse parser, and returns it."""
    group = parser.add_argument_group("DeepSpeed", "DeepSpeed configurations")
    group.add_argument("--deepspeed", action="store_true", help="enable DeepSpeed; a script may ask for it")
    group.add_argument("--deepspeed_config", default=None, type=str, help="path of the configuration, JSON")
    group.add_argument("--deepscale", action="store_true", help=argparse.SUPPRESS)
    group.add_argument("--deepscale_config", default=None, type=str, help=argparse.SUPPRESS)
    return parser
