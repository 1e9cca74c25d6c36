// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers as their exact bit patterns.
use super::tensor::{Bf16, Tensor};
use outrigger_sys::otr_step_report;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Write as _};

pub struct Printer(pub io::BufWriter<File>);

impl Printer {
    pub fn line(&mut self, text: impl AsRef<str>) {
        writeln!(self.0, "{}", text.as_ref()).expect("the output can be written");
    }
    pub fn tensor(&mut self, label: &str, tensor: &Tensor) {
        let mut text = format!("{label} {}", shape(tensor.shape()));
        let grown = if tensor.is::<Bf16>() {
            tensor
                .data::<Bf16>()
                .iter()
                .try_for_each(|v| write!(text, " {:04x}", v.0))
        } else {
            tensor
                .data::<f32>()
                .iter()
                .try_for_each(|v| write!(text, " {:08x}", v.to_bits()))
        };
        grown.expect("a String grows");
        self.line(text);
    }
    pub fn report(&mut self, label: &str, r: &otr_step_report) {
        self.line(format!(
            "{label} outcome {} reason {} nonfinite_rank {} nonfinite_param {} nonfinite_count {} micro_steps {} \
             applied_steps {} skipped_steps {} grad_norm {} clip_coefficient {} loss_scale {} lr {} updates {} vanished {}",
            r.outcome, r.reason, r.nonfinite_rank, r.nonfinite_param, r.nonfinite_count, r.micro_steps,
            r.applied_steps, r.skipped_steps, double(r.grad_norm), double(r.clip_coefficient),
            double(r.loss_scale), double(r.lr), r.updates, r.vanished
        ));
    }
}

pub fn double(value: f64) -> String {
    format!("{:016x}", value.to_bits())
}

pub fn shape(extents: &[i64]) -> String {
    let words: Vec<String> = extents.iter().map(i64::to_string).collect();
    format!("[{}]", words.join(","))
}
