// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program that starts without the library and loads it when it needs it: with the feature `dlopen` nothing is linked.
//!
//!     cargo run --example loaded --features dlopen -- build/release/liboutrigger.so
use outrigger::config::{Config, UpdateRule};
use outrigger::{Comm, Context, Plan, Result, Tensor, Value};
use std::process::ExitCode;

const CONFIG: &str =
    r#"{"optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "gradient_clipping": 0}"#;

fn train() -> Result<Vec<f32>> {
    if let Some(file) = std::env::args_os().nth(1) {
        outrigger::load(Some(file.as_ref()))?;
    } // else the first call finds it
    let comm = Comm::alone(&Context::new()?)?;
    let config = Config::default()
        .gradient_clipping(0.0)
        .optimizer(|rule| rule.r#type(UpdateRule::SGD).params(|params| params.lr(0.5)));
    let mut plan = Plan::new(&comm, &config.to_string())?;
    let w = plan.parameter("w", &Tensor::new(&[1.0_f32, 2.0], &[2])?)?;
    let mut engine = plan.commit()?;
    engine.backward(&[], |pass| {
        pass.add_grad(w, &Tensor::new(&[1.0_f32, -1.0], &[2])?)
    })?;
    engine.step()?;
    engine.read(w, Value::Master)
}

fn main() -> ExitCode {
    match train() {
        Ok(weights) => {
            println!("{weights:?} of outrigger {}", outrigger::version());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("no training: {error}");
            ExitCode::FAILURE
        }
    }
}
