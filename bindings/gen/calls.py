# SPDX-License-Identifier: Apache-2.0
"""bindings/swig/calls.i: for languages of plain.i, each fallible function as one that returns its output and sets a status.

Such a function is the same in every language of SWIG: an output is its result, not a pointer that each language treats in its own way.
A function of the header that has a parameter of no known form is an error here, unless SKIPPED names it.
"""
import re

SKIPPED = {  # a language has another way, or none yet
    "otr_tensor_init": "Tensor's constructor",
    "otr_engine_backward": "two lines over the pass",
    "otr_comm_create_custom": "functions of the language",
    "otr_comm_all_to_all": "parts of several sizes",
    "otr_device_set_allocator": "functions of the language",
    "otr_device_allocate": "device memory",
    "otr_device_free": "device memory",
    "otr_message_pack": "plain_message.i",
    "otr_message_routes": "plain_message.i",
}
WRITTEN = {"out", "destination", "to", "weights"}  # tensors that the library writes
NUMBERS = {"int32_t", "int64_t", "double"}
RECORDS = {("otr_step_report", "report"), ("otr_save_status", "out_status"), ("otr_snapshot_info", "out_info"), ("otr_message_info", "out_info")}
LISTS = {"otr_engine": "otr_swig_engines", "otr_shard": "otr_swig_shards", "otr_snapshot": "otr_swig_snapshots"}

DECLARE = """%rename(engine_declare_parameter) otr_plain_engine_declare_parameter;
%inline %{
static int64_t otr_plain_engine_declare_parameter(otr_engine *engine, const char *name, const int64_t *shape, int64_t ndim, const otr_param_options *options, int32_t *status) {
  int64_t made = 0;
  *status = otr_swig_engine_declare_parameter(engine, name, shape, ndim, options, &made);
  return made;
}
%}
"""


class Call:
    """One function of the header, taken apart parameter by parameter."""

    def __init__(self, function, structs):
        self.name, self.structs = function.name.removeprefix("otr_"), structs
        self.takes, self.before, self.gives, self.after = [], [], [], []
        self.result, self.initial, self.callee = "void", None, function.name
        rest = list(function.parameters)
        while rest:
            self.parameter(rest)

    def takes_itself(self, *parameters):
        for each in parameters:
            self.takes.append(each.c)
            self.gives.append(each.name)

    def returns(self, result, declared, given, shown="made"):
        if self.result != "void":
            raise ValueError(f"otr_{self.name} has two results: a form of its own is needed")
        self.result, self.initial, self.shown = result, declared, shown
        self.gives.append(given)

    def takes_tensor(self, name, given, check="otr_swig_readable"):
        self.takes.append(f"const otr_tensor *{name}")
        self.before.append(f"{check}({name}, \"{name}\", status)")
        self.gives += given

    def parameter(self, rest):
        p = rest.pop(0)
        base, stars, name = p.type.base, len(p.type.levels), p.name
        following = rest[0].name if rest else ""
        if base == "int64_t" and stars == 1 and name in ("ids", "shape"):
            self.takes_itself(p, rest.pop(0))
        elif (base, stars, name) == ("otr_tensor", 1, "output_grads"):
            rest.pop(0)
            self.takes.append("const otr_swig_tensors *output_grads")
            self.gives += ["otr_swig_items(output_grads)", "otr_swig_count(output_grads)"]
        elif (base, stars, name) == ("otr_tensor", 1, "values"):
            self.takes.append("const otr_swig_tensors *values")
            self.before.append("otr_swig_one_each(values, count, status)")
            self.gives.append("otr_swig_items(values)")
        elif base == "otr_tensor" and name == "out_tensors":
            self.returns("otr_swig_tensors *", "otr_swig_tensors *made = otr_swig_new_tensors(count, status);", "made->items",
                         "otr_swig_tensors_if_ok(made, status)")
            self.before.append("*status == OTR_OK")
        elif base == "otr_tensor" and name.startswith("out_"):
            self.returns("otr_tensor *", "otr_tensor made = {0};", "&made", "otr_swig_show(&made, 0, status)")
        elif base == "otr_tensor":
            self.takes_tensor(name, [name], "otr_swig_writable" if name in WRITTEN else "otr_swig_readable")
        elif base == "void" and (name, following) in (("data", "bytes"), ("mine", "bytes")):
            rest.pop(0)
            self.takes_tensor(name, [f"otr_swig_data({name})", f"otr_swig_bytes({name})"],
                              "otr_swig_writable" if name == "data" else "otr_swig_readable")
        elif base == "void" and name == "mpi_comm":
            self.takes.append("int64_t mpi_comm")
            self.gives.append("(const void *)(intptr_t)mpi_comm")
        elif base == "void" and (name, following) in (("data", "size"), ("buffer", "size")):
            rest.pop(0)
            self.takes_tensor(name, [f"otr_swig_data({name})", f"otr_swig_bytes({name})"],
                              "otr_swig_writable" if name == "buffer" else "otr_swig_readable")
        elif base == "void" and name == "all":
            self.takes_tensor("all", ["otr_swig_data(all)"], "otr_swig_writable")
            self.before.append("otr_swig_holds_all(comm, mine, all, status)")
        elif base == "double" and (name, following) == ("values", "count"):
            rest.pop(0)
            self.takes_tensor(name, ["(double *)otr_swig_data(values)", "(size_t)otr_swig_elements(values)"], "otr_swig_writable")
            self.before.append('otr_swig_is(values, "values", "float64", status)')
        elif base == "int64_t" and (name, following) == ("count", "out"):
            rest.pop(0)
            self.takes_tensor("out", ["otr_swig_elements(out)", "(float *)otr_swig_data(out)"], "otr_swig_writable")
            self.before.append('otr_swig_is(out, "out", "float32", status)')
        elif stars == 2 and base in LISTS and following == "count":
            rest.pop(0)
            self.takes.append(f"const {LISTS[base]} *{name}")
            self.gives += [f"{LISTS[base]}_items({name})", f"{LISTS[base]}_count({name})"]
        elif (base, name) in RECORDS:
            self.returns(f"{base} *", f"{base} *made = ({base} *)otr_swig_new_record(sizeof(*made), status);", "made",
                         "otr_swig_if_ok(made, status)")
            self.before.append("*status == OTR_OK")
        elif (base, name) == ("otr_step_report", "reports"):
            self.returns("otr_swig_reports *", "otr_swig_reports *made = otr_swig_new_reports(otr_swig_engines_count(engines), status);",
                         "made->items", "otr_swig_reports_if_ok(made, status)")
            self.before.append("*status == OTR_OK")
        elif (base, name) == ("otr_comm", "out_comms"):
            self.returns("otr_swig_comms *", "otr_swig_comms *made = otr_swig_new_comms(world_size, status);", "made->items",
                         "otr_swig_comms_if_ok(made, status)")
            self.before.append("*status == OTR_OK")
        elif base == "char" and name == "buffer":
            rest.pop(0)
            self.callee = f"otr_swig_{self.name}"
            self.returns("char *", "char *made = NULL;", "&made", "otr_swig_if_ok(made, status)")
        elif base == "void" and (name, following) == ("buffer", "inout_size"):
            rest.pop(0)
            self.callee = f"otr_swig_{self.name}"
            self.returns("otr_tensor *", "void *made = NULL;\n  size_t size = 0;", "&made", "otr_swig_own_bytes(made, size, status)")
            self.gives.append("&size")
        elif base == "otr_memory_entry":
            rest.pop(0)
            self.callee = f"otr_swig_{self.name}"
            self.returns("otr_swig_entries *", "otr_memory_entry *made = NULL;\n  size_t count = 0;", "&made",
                         "otr_swig_own_entries(made, count, status)")
            self.gives.append("&count")
        elif name == "out_ndim":
            rest.pop(0)
            self.returns("otr_tensor *", "int32_t made = 0;\n  const int64_t *shape = NULL;", "&made", "otr_swig_shape(made, shape, status)")
            self.gives.append("&shape")
        elif (name, following) == ("out_first", "out_count"):
            rest.pop(0)
            self.returns("otr_swig_range *", "int64_t made = 0, count = 0;", "&made", "otr_swig_new_range(made, count, status)")
            self.gives.append("&count")
        elif name.startswith("out_") and stars == 1 and base in NUMBERS:
            self.returns(base, f"{base} made = 0;", "&made")
        elif name.startswith("out_") and stars == 2:
            self.returns(f"const {base} *" if base == "char" else f"{base} *", f"{'const ' if base == 'char' else ''}{base} *made = NULL;", "&made")
        elif stars == 0 or (stars == 1 and (base in self.structs or base == "char")):
            self.takes_itself(p)
        else:
            raise ValueError(f"otr_{self.name}: the parameter {p.type.c} {name} has no form here")

    @property
    def text(self):
        plain = f"otr_plain_{self.name}"
        lines = [f"%ignore otr_{self.name};", f"%rename({self.name}) {plain};"]
        if "*" in self.result and not self.result.startswith("const"):
            lines.append(f"%newobject {plain};")
        space = "" if self.result.endswith("*") else " "
        lines += ["%inline %{", f"static {self.result}{space}{plain}({', '.join([*self.takes, 'int32_t *status'])}) {{"]
        if self.initial:
            lines.append(f"  {self.initial}")
        call = f"*status = {self.callee}({', '.join(self.gives)});"
        lines.append(f"  if ({' && '.join(self.before)}) {call}" if self.before else f"  {call}")
        if self.initial:
            lines.append(f"  return {self.shown};")
        return "\n".join([*lines, "}", "%}", ""])


def generate(header):
    structs = {each.name for each in header.structs + header.handles}
    out = ["// SPDX-License-Identifier: Apache-2.0", "// Generated from outrigger.h by bindings/gen; not to be edited.", ""]
    for function in header.functions:
        if function.name in SKIPPED:
            out += [f"%ignore {function.name};  // {SKIPPED[function.name]}", ""]
        elif function.result.c == "int32_t" and function.parameters and not re.search("_init$", function.name):
            out.append(Call(function, structs).text)
        if function.name == "otr_engine_add_parameter":
            out.append(DECLARE)
    return "\n".join(out)
