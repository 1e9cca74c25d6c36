// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a call of the safe crate takes, for the benchmark case `calls`, whose lines it answers (scripts/bench/peers/worker.py has them):
//! a gradient of 16 elements added to an open pass, or a pass without gradients and its step.
//!
//!     cargo run --release --example calls add_grad
use outrigger::{Comm, Context, Plan, Result, Tensor};
use std::io::BufRead;
use std::time::Instant;

const VALUES: usize = 16;
const CONFIG: &str =
    r#"{"optimizer": {"type": "SGD", "params": {"lr": 0.0}}, "gradient_clipping": 0}"#;

fn main() -> Result<()> {
    let adds = std::env::args().nth(1).as_deref() == Some("add_grad");
    let mut plan = Plan::new(
        &Comm::alone(&Context::builder().workers(1).build()?)?,
        CONFIG,
    )?;
    let gradient = [1.0_f32; VALUES];
    let w = plan.parameter("w", &Tensor::new(&gradient, &[VALUES])?)?;
    let mut engine = plan.commit()?;
    println!("{{\"ready\": {{}}}}");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
        if command == "check" {
            println!("{{\"checked\": {{}}}}");
        }
        if command != "run" {
            continue;
        }
        let times = argument.parse().expect("how many times");
        let start;
        let taken;
        if adds {
            let pass = engine.pass(&[])?;
            start = Instant::now();
            for _ in 0..times {
                pass.add_grad(w, &Tensor::new(&gradient, &[VALUES])?)?;
            }
            taken = start.elapsed();
            pass.end()?;
            engine.step()?;
        } else {
            start = Instant::now();
            for _ in 0..times {
                engine.pass(&[])?.end()?;
                engine.step()?;
            }
            taken = start.elapsed();
        }
        println!("{{\"run\": [0, {}, {{}}]}}", taken.as_nanos());
    }
    Ok(())
}
