// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers as their exact bit patterns.
use half::bf16;
use outrigger::{Element, Error, Report, Result};
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Write as _};

/// An element that is printed.
pub trait Bits: Element {
    fn hex(self) -> String;
}
impl Bits for f32 {
    fn hex(self) -> String {
        format!("{:08x}", self.to_bits())
    }
}
impl Bits for bf16 {
    fn hex(self) -> String {
        format!("{:04x}", self.to_bits())
    }
}

pub struct Printer(pub io::BufWriter<File>);

impl Printer {
    pub fn line(&mut self, text: impl AsRef<str>) {
        writeln!(self.0, "{}", text.as_ref()).expect("the output can be written");
    }
    pub fn values<T: Bits>(&mut self, label: &str, extents: &[usize], values: &[T]) {
        let mut text = format!("{label} {}", shape(extents));
        for value in values {
            write!(text, " {}", value.hex()).expect("a String grows");
        }
        self.line(text);
    }
    /// Of what the library has as bfloat16 or as float32.
    pub fn either<'a>(
        &mut self,
        label: &str,
        extents: &[usize],
        narrow: Result<&'a [bf16]>,
        wide: impl FnOnce() -> Result<&'a [f32]>,
    ) -> Result<()> {
        match narrow {
            Ok(values) => self.values(label, extents, values),
            Err(Error::Dtype(_)) => self.values(label, extents, wide()?),
            Err(error) => return Err(error),
        }
        Ok(())
    }
    pub fn report(&mut self, label: &str, r: &Report) {
        self.line(format!(
            "{label} outcome {} reason {} nonfinite_rank {} nonfinite_param {} nonfinite_count {} micro_steps {} \
             applied_steps {} skipped_steps {} grad_norm {} clip_coefficient {} loss_scale {} lr {} updates {} vanished {}",
            r.outcome as i32,
            r.reason as i32,
            r.nonfinite_rank.unwrap_or(-1),
            r.nonfinite_param.map_or(-1, |id| id.index()),
            r.nonfinite_count,
            r.micro_steps,
            r.applied_steps,
            r.skipped_steps,
            double(r.grad_norm),
            double(r.clip_coefficient),
            double(r.loss_scale),
            double(r.lr),
            r.updates,
            r.vanished
        ));
    }
}

pub fn double(value: f64) -> String {
    format!("{:016x}", value.to_bits())
}

pub fn shape(extents: &[usize]) -> String {
    let words: Vec<String> = extents.iter().map(usize::to_string).collect();
    format!("[{}]", words.join(","))
}
