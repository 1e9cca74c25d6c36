// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configurations that the compiler knows the keys of.
//!
//! ```
//! use outrigger::config::{Config, MomentFormat, OffloadDevice, UpdateRule};
//!
//! let config = Config::default()
//!     .gradient_clipping(1.0)
//!     .optimizer(|rule| rule.r#type(UpdateRule::AdamW).params(|params| params.lr(1e-3).betas([0.9, 0.95])))
//!     .zero_optimization(|zero| zero.stage(2).offload_optimizer(|offload| offload.device(OffloadDevice::Cpu)))
//!     .outrigger(|own| own.states(|states| states.exp_avg(|moment| moment.format(MomentFormat::Bfloat16))));
//! assert!(config.to_string().starts_with(r#"{"gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "#));
//! outrigger::check_config(&config.to_string(), 2)?;
//! # Ok::<(), outrigger::Error>(())
//! ```
//!
//! A key that is not set has the library's default, and one that is set again has the last value. [`Config::raw`] sets what a host
//! keeps in the same text, under `outrigger.host_keys`. A name that is no key does not compile:
//!
//! ```compile_fail,E0599
//! outrigger::config::Config::default().gradient_cliping(1.0);
//! ```
#[rustfmt::skip]
mod keys;
pub use keys::*;

/// Keys in the order in which they were set.
#[derive(Clone, Debug, Default, PartialEq)]
struct Object(Vec<(String, Node)>);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Object(Object),
    Text(String),
}

impl Object {
    fn with(self, key: &str, value: impl Json) -> Self {
        let mut text = String::new();
        value.write(&mut text);
        self.put(key, Node::Text(text))
    }

    /// Sets keys in the object under `key`, which keeps those that it has.
    fn nested(mut self, key: &str, keys: impl FnOnce(Object) -> Object) -> Self {
        let found = self.0.iter().position(|(name, _)| name == key);
        let before = match found.map(|place| self.0.remove(place).1) {
            Some(Node::Object(object)) => object,
            _ => Object::default(),
        };
        let after = Node::Object(keys(before));
        self.0
            .insert(found.unwrap_or(self.0.len()), (key.into(), after));
        self
    }

    fn put(mut self, key: &str, node: Node) -> Self {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, before)) => *before = node,
            None => self.0.push((key.into(), node)),
        }
        self
    }
}

impl Config {
    /// Any key at the top, with a value in JSON: what the library leaves to the host, named in `outrigger.host_keys`, or newer keys.
    pub fn raw(self, key: &str, json: &str) -> Self {
        Self(self.0.put(key, Node::Text(json.into())))
    }
}

/// What is written as JSON.
trait Json {
    fn write(&self, out: &mut String);
}

impl Json for Object {
    fn write(&self, out: &mut String) {
        list(out, "{}", &self.0, |(key, node), out| {
            key.as_str().write(out);
            out.push_str(": ");
            match node {
                Node::Object(object) => object.write(out),
                Node::Text(text) => out.push_str(text),
            }
        });
    }
}

fn list<T>(out: &mut String, brackets: &str, items: &[T], write: impl Fn(&T, &mut String)) {
    out.push_str(&brackets[..1]);
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        write(item, out);
    }
    out.push_str(&brackets[1..]);
}

impl Json for i64 {
    fn write(&self, out: &mut String) {
        out.push_str(&self.to_string());
    }
}

impl Json for bool {
    fn write(&self, out: &mut String) {
        out.push_str(if *self { "true" } else { "false" });
    }
}

impl Json for f64 {
    fn write(&self, out: &mut String) {
        out.push_str(&format!("{self:?}")); // NaN and inf are no JSON, and the library says where they stand
    }
}

impl Json for &str {
    fn write(&self, out: &mut String) {
        out.push('"');
        for each in self.chars() {
            match each {
                '"' | '\\' => out.extend(['\\', each]),
                '\0'..='\x1f' => out.push_str(&format!("\\u{:04x}", each as u32)),
                _ => out.push(each),
            }
        }
        out.push('"');
    }
}

impl<T: Json> Json for &[T] {
    fn write(&self, out: &mut String) {
        list(out, "[]", self, T::write);
    }
}

impl<T: Json, const N: usize> Json for [T; N] {
    fn write(&self, out: &mut String) {
        self.as_slice().write(out);
    }
}
