// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A linear regression that no framework computes: a host with its own forward and backward, under ZeRO stage 2 with bfloat16 moments.
//!
//!     cargo run --example regression
//!     outrigger run -n 2 -- target/debug/examples/regression
use outrigger::{Comm, Context, Plan, Report, Result, Tensor};

const CONFIG: &str = r#"{
    "optimizer": {"type": "AdamW", "params": {"lr": 0.05, "weight_decay": 0}},
    "gradient_clipping": 10.0,
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "outrigger": {"states": {"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}}
}"#;
const INPUTS: usize = 8;
const ROWS: usize = 32;
const STEPS: usize = 200;

/// Numbers between -1 and 1 that every machine makes alike.
fn noise(seed: u64) -> f32 {
    let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed >> 40) as f32) / (1_u64 << 23) as f32 - 1.0
}

fn main() -> Result<()> {
    let context = Context::new()?;
    let comm = Comm::from_env(&context)?;
    let (rank, world) = (comm.rank() as usize, comm.size() as f64);
    let mut plan = Plan::new(&comm, CONFIG)?;
    let weight = plan.parameter("weight", &Tensor::new(&[0.0_f32; INPUTS], &[INPUTS])?)?;
    let bias = plan.parameter("bias", &Tensor::scalar(&0.0_f32))?;
    let mut engine = plan.commit()?;

    let truth: Vec<f32> = (0..INPUTS).map(|i| i as f32 / 4.0 - 1.0).collect();
    let mut loss = 0.0;
    for step in 0..STEPS {
        // Each rank has rows of its own.
        let first = (step * world as usize + rank) * ROWS;
        let x: Vec<f32> = (0..ROWS * INPUTS)
            .map(|i| noise((first * INPUTS + i) as u64))
            .collect();
        let weights = engine.acquire(&[weight, bias])?;
        let (w, b) = (weights.get::<f32>(0)?, weights.get::<f32>(1)?[0]);
        let errors: Vec<f32> = x
            .chunks(INPUTS)
            .map(|row| {
                let wanted: f32 = row.iter().zip(&truth).map(|(x, t)| x * t).sum::<f32>() + 0.5;
                row.iter().zip(w).map(|(x, w)| x * w).sum::<f32>() + b - wanted
            })
            .collect();
        loss = errors.iter().map(|e| f64::from(e * e)).sum::<f64>() / ROWS as f64;

        // The gradient of the outputs, one for each row: the library scales it, the host goes on from there.
        let output_grads: Vec<f32> = errors.iter().map(|e| 2.0 * e / ROWS as f32).collect();
        let seed = Tensor::new(&output_grads, &[ROWS])?;
        engine.backward(&[seed], |pass| -> Result<()> {
            let y_grad = pass.output_grad::<f32>(0)?;
            let mut slot = pass.slot(weight)?;
            for (i, grad) in slot.get_mut::<f32>()?.iter_mut().enumerate() {
                let column = x.chunks(INPUTS).map(|row| row[i]);
                *grad = y_grad.iter().zip(column).map(|(g, x)| g * x).sum();
            }
            slot.add()?;
            pass.add_grad(bias, &Tensor::scalar(&y_grad.iter().sum::<f32>()))
        })?;
        drop(weights);
        let report: Report = engine.step()?;
        assert!(report.is_applied(), "{report:?}");
    }
    let mut mean = [loss / world];
    comm.all_reduce_sum(&mut mean)?;
    if rank == 0 {
        println!("loss {:.3e} after {STEPS} steps on {world} ranks", mean[0]);
    }
    engine.finalize()
}
