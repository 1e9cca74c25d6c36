# SPDX-License-Identifier: Apache-2.0
"""bindings/swig/docs.i: the header's comments as docstrings, in C's names."""

RENAMED = {  # what the wrapper calls in place of the header's function
    "otr_machine_info": "otr_swig_machine_info", "otr_engine_config": "otr_swig_engine_config", "otr_engine_host_memory": "otr_swig_engine_host_memory",
    "otr_engine_get_progress": "otr_swig_engine_get_progress", "otr_checkpoint_describe": "otr_swig_checkpoint_describe",
    "otr_checkpoint_list": "otr_swig_checkpoint_list",
    "otr_checkpoint_part": "otr_swig_checkpoint_part", "otr_snapshot_part": "otr_swig_snapshot_part",
    "otr_config_check": "otr_swig_config_check", "otr_engine_memory": "otr_swig_engine_memory",
    "otr_engine_estimate": "otr_swig_engine_estimate", "otr_comm_create_custom": "otr_python_comm_create",
}


def generate(header):
    out = ["// SPDX-License-Identifier: Apache-2.0", "// Generated from outrigger.h by bindings/gen; not to be edited.", ""]
    documented = [(RENAMED.get(each.name, each.name), each.doc) for each in header.functions + header.handles + header.structs]
    for struct in header.structs:
        documented += [(f"{struct.name}::{field.name}", field.doc) for field in struct.fields]
    for name, text in documented:
        if text:
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            out.append(f'%feature("docstring") {name} "{escaped}";')
    return "\n".join(out + [""])
