# SPDX-License-Identifier: Apache-2.0
"""Runs every example of outrigger.torch that needs PyTorch alone on the ranks of a launcher, in one process a rank. Each
checks itself."""
import runpy
from pathlib import Path

NEED_MORE = {"gpt2", "accelerate_gpt2", "deepspeed_script", "elastic", "offload", "resume", "trainer_gpt2"}  # are tests of their own
EXAMPLES = [path for path in sorted((Path(__file__).parents[3] / "bindings/python/examples/torch").glob("*.py"))
            if path.stem not in NEED_MORE]
assert len(EXAMPLES) >= 4, EXAMPLES
for example in EXAMPLES:
    runpy.run_path(str(example), run_name="__main__")
