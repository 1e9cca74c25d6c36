// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stack of layers under ZeRO stage 3: each rank keeps its part of the weights, and those of a layer are gathered while it runs.
//!
//!     cargo run --example blocks
//!     outrigger run -n 2 -- target/debug/examples/blocks
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{linear, loss::mse, Module, VarBuilder, VarMap};
use outrigger::{Comm, Context};
use outrigger_candle::{Block, Blocks, Result};

const CONFIG: &str = r#"{
    "optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
    "zero_optimization": {"stage": 3}
}"#;
const WIDTH: usize = 16;
const LAYERS: usize = 3;
const ROWS: usize = 32;

fn layer(builder: VarBuilder, x: &Tensor) -> candle_core::Result<Tensor> {
    x + linear(WIDTH, WIDTH, builder.pp("inner"))?
        .forward(x)?
        .tanh()?
}

fn main() -> Result<()> {
    let comm = Comm::from_env(&Context::new()?)?;
    let varmap = VarMap::new();
    let builder = VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu);
    let x = Tensor::randn(0.0_f32, 1.0, (ROWS, WIDTH), &Device::Cpu)?; // each rank has its own rows
    for i in 0..LAYERS {
        layer(builder.pp(format!("layer.{i}")), &x)?; // makes the first values
    }
    let blocks = (0..LAYERS).map(|i| Block::new(format!("layer.{i}"), layer));
    let mut model = Blocks::new(&comm, CONFIG, varmap, blocks)?;

    let wanted = (x.tanh()? * 0.5)?;
    let mut losses = Vec::new();
    for _ in 0..200 {
        let trace = model.forward(&x)?;
        let y = Var::from_tensor(trace.output())?;
        let loss = mse(&y, &wanted)?;
        let grads = loss.backward()?;
        trace.backward(grads.get(&y).expect("the loss is of y"), None)?;
        model.step()?;
        losses.push(loss.to_scalar::<f32>()?);
    }
    println!("loss {:.4}, at first {:.4}", losses[199], losses[0]);
    assert!(losses[199] < 0.1 * losses[0]);
    Ok(model.engine_mut().finalize()?)
}
