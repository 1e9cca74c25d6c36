# SPDX-License-Identifier: Apache-2.0
"""The sections of the report, in the order of the page. Each has measure(context), which returns figures or raises Missing;
lines(figures), which says them in Markdown; command(figures), which measures them; those with a picture have draw(figures, folder)."""
from . import bf16, host_states, memory, multimodal, multimodal_c, step_times

SECTIONS = {"bf16": bf16, "step_times": step_times, "host_states": host_states, "memory": memory, "multimodal": multimodal, "multimodal_c": multimodal_c}
