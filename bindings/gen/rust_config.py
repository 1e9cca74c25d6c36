# SPDX-License-Identifier: Apache-2.0
"""rust/outrigger/src/config/keys.rs: a builder of configurations, from docs/configuration.schema.json."""
import json

from rust import camel, doc

SCALARS = {"integer": "i64", "number": "f64", "boolean": "bool", "string": "&str"}
# Enumerations that several keys share have a name of their own, by one of their texts that no other has.
NAMES = {"torch.fp32": "Dtype", "split": "MasterFormat", "block8": "MomentFormat", "stochastic": "Rounding", "nvme": "OffloadDevice",
         "AdamW": "UpdateRule", "WarmupLR": "Schedule"}
SYNONYMS = {"fp32", "float", "bf16", "fp16", "half"}  # of float32, bfloat16 and float16, as torch.… are


def generate(text):
    enumerations, objects = {}, []

    def kind(leaf, path):
        """The Rust type of a key's value; None: it has no value that a builder would set."""
        if leaf.get("deprecated"):
            return None
        for choice in choices(leaf):
            texts = [text for text in choice.get("enum", []) if isinstance(text, str) and text != "auto"]
            if texts:
                return enumeration(texts, path) if len(texts) > 1 else None
            if choice.get("type") == "array":
                element = kind(choice["items"], path)
                count = choice.get("minItems")
                return f"[{element}; {count}]" if count and count == choice.get("maxItems") else f"&[{element}]"
            if isinstance(choice.get("type"), str) and choice["type"] in SCALARS:
                return SCALARS[choice["type"]]
        return None

    def enumeration(texts, path):
        shared = [NAMES[text] for text in texts if text in NAMES]
        name = shared[0] if shared else "".join(camel(part) for part in path[-2:])
        if name == "Dtype":
            texts = [text for text in texts if text not in SYNONYMS and not text.startswith("torch.")]
        if enumerations.setdefault(name, texts) != texts:
            raise SystemExit(f"{'.'.join(path)}: two enumerations would be called {name}: {texts} and {enumerations[name]}")
        return name

    def object_of(schema, path):
        name = "".join(camel(part) for part in path) or "Config"
        out = [*doc(f"`{'.'.join(path)}`" if path else "A configuration: DeepSpeed's keys, and the library's own under `outrigger`."),
               "#[derive(Clone, Debug, Default, PartialEq)]", f"pub struct {name}(pub(super) Object);", "", f"impl {name} {{"]
        place = len(objects)
        objects.append(out)
        for key, leaf in schema["properties"].items():
            method = "r#type" if key == "type" else key
            if "properties" in leaf:
                nested = object_of(leaf, [*path, key])
                out += [f"    /// `{key}`: sets keys in it.",
                        f"    pub fn {method}(self, keys: impl FnOnce({nested}) -> {nested}) -> Self {{",
                        f'        Self(self.0.nested("{key}", |object| keys({nested}(object)).0))', "    }"]
                continue
            value = kind(leaf, [*path, key])
            if value:
                meaning = leaf["description"][0].upper() + leaf["description"][1:] if leaf.get("description") else f"`{key}`"
                default = leaf.get("default")
                out += [*doc(f"{meaning}." + (f" Default {json.dumps(default)}." if default is not None else ""), "    "),
                        f"    pub fn {method}(self, value: {value}) -> Self {{", f'        Self(self.0.with("{key}", value))', "    }"]
        objects[place] = [*out, "}"]
        return name

    object_of(json.loads(text), [])
    out = ["// SPDX-License-Identifier: Apache-2.0 OR MIT",
           "// Generated from configuration.schema.json by bindings/gen; not to be edited.",
           "use super::{Json, Object};", "use core::fmt;"]
    for lines in objects:
        out += ["", *lines]
    for name, texts in enumerations.items():
        out += ["", "/// What a key may be.", "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]", "#[non_exhaustive]", f"pub enum {name} {{"]
        for each in texts:
            out += [f"    /// `{each}`", f"    {variant(each)},"]
        out += ["}", "", f"impl Json for {name} {{", "    fn write(&self, out: &mut String) {", "        match self {"]
        out += [f'            Self::{variant(each)} => "{each}".write(out),' for each in texts]
        out += ["        }", "    }", "}"]
    out += ["", "impl fmt::Display for Config {", "    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {",
            "        let mut text = String::new();", "        self.0.write(&mut text);", "        f.write_str(&text)", "    }", "}"]
    return "\n".join(out + [""])


def choices(leaf):
    """The schemas of which a value has one."""
    if "anyOf" not in leaf:
        return [leaf]
    return [choice for each in leaf["anyOf"] for choice in choices(each)]


def variant(text):
    """AdamW and WSD as they are, micro_step as MicroStep."""
    return "".join(word[0].upper() + word[1:] for word in text.split("_"))
