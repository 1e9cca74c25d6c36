// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A module of burn learns a curve under ZeRO stage 2 with bfloat16 moments.
//!
//!     cargo run --example curve
//!     outrigger run -n 2 -- target/debug/examples/curve
use burn_core as burn;
use burn_core::module::Module;
use burn_core::tensor::{Device, Tensor, TensorData};
use burn_nn::{Linear, LinearConfig};
use outrigger::{Comm, Context};
use outrigger_burn::{Optimizer, Result};

const CONFIG: &str = r#"{
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "outrigger": {"states": {"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}}
}"#;
const ROWS: usize = 64;

#[derive(Module, Debug)]
struct Mlp {
    up: Linear,
    down: Linear,
}

impl Mlp {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.down.forward(self.up.forward(x).tanh())
    }
}

fn main() -> Result<()> {
    let comm = Comm::from_env(&Context::new()?)?;
    let device = Device::default().autodiff();
    let mlp = Mlp {
        up: LinearConfig::new(1, 32).init(&device),
        down: LinearConfig::new(32, 1).init(&device),
    };
    let (mut optimizer, mut mlp) = Optimizer::new(&comm, CONFIG, mlp)?;

    // Each rank has places of its own.
    let place = |i: usize| (i * comm.size() as usize + comm.rank() as usize) as f32;
    let places: Vec<f32> = (0..ROWS)
        .map(|i| place(i) / (ROWS as f32 * comm.size() as f32))
        .collect();
    let x = Tensor::<2>::from_data(TensorData::new(places, [ROWS, 1]), &device);
    let wanted = (x.clone() * 6.0).sin();
    let mut losses = Vec::new();
    for _ in 0..400 {
        let loss = (mlp.forward(x.clone()) - wanted.clone())
            .powi_scalar(2)
            .mean();
        losses.push(loss.clone().into_scalar::<f32>());
        optimizer.backward(loss, &mlp)?;
        (mlp, _) = optimizer.step(mlp)?;
    }
    println!("loss {:.4}, at first {:.4}", losses[399], losses[0]);
    assert!(losses[399] < 0.2 * losses[0]);
    Ok(optimizer.engine_mut().finalize()?)
}
