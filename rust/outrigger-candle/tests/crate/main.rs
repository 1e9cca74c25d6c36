// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Candle's models, by value against candle's own optimizers, and in wrong use.
mod blocks;
mod values;
mod wrong;

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{linear, Linear, Module, VarBuilder, VarMap};
use outrigger::{Comm, Context};
use std::thread;

pub const CPU: &Device = &Device::Cpu;

/// A configuration whose factors are not 1: two passes in a window, no clipping.
pub fn config(stage: i32, optimizer: &str, more: &str) -> String {
    format!(
        r#"{{"optimizer": {optimizer}, "gradient_clipping": 0, "gradient_accumulation_steps": 2,
            "zero_optimization": {{"stage": {stage}}}{more}}}"#
    )
}

/// One pass in a window.
pub fn single(stage: i32, optimizer: &str, more: &str) -> String {
    config(stage, optimizer, more).replace("_steps\": 2", "_steps\": 1")
}

pub const SGD: &str = r#"{"type": "SGD", "params": {"lr": 0.5}}"#;
pub const ADAMW: &str = r#"{"type": "AdamW", "params": {"lr": 0.05, "weight_decay": 0.125}}"#;

/// Numbers between -1 and 1.
pub fn noise(seed: usize, shape: &[usize]) -> Tensor {
    let values = (0..shape.iter().product::<usize>()).map(|i| {
        let mixed = ((seed * 7919 + i + 1) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    });
    Tensor::from_iter(values, CPU)
        .unwrap()
        .reshape(shape)
        .unwrap()
}

/// Two layers, with weights that depend on the seed alone.
pub struct Mlp(Linear, Linear);

impl Mlp {
    pub fn new(varmap: &mut VarMap, seed: usize) -> Self {
        let builder = VarBuilder::from_varmap(varmap, DType::F32, CPU);
        let up = linear(3, 5, builder.pp("up")).unwrap();
        let down = linear(5, 2, builder.pp("down")).unwrap();
        for (place, (name, var)) in named(varmap).into_iter().enumerate() {
            varmap
                .set_one(name, noise(seed + place, var.dims()))
                .unwrap();
        }
        Self(up, down)
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        self.1
            .forward(&self.0.forward(x).unwrap().tanh().unwrap())
            .unwrap()
    }

    /// Of rows of its own for every step, micro-batch and rank.
    pub fn loss(&self, step: usize, micro: usize, rank: usize) -> Tensor {
        let place = (step * 2 + micro) * 2 + rank;
        let (x, wanted) = (noise(100 + place, &[4, 3]), noise(900 + place, &[4, 2]));
        candle_nn::loss::mse(&self.forward(&x), &wanted).unwrap()
    }
}

pub fn named(varmap: &VarMap) -> Vec<(String, Var)> {
    let map = varmap.data().lock().unwrap();
    let mut named: Vec<_> = map
        .iter()
        .map(|(name, var)| (name.clone(), var.clone()))
        .collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

pub fn values(varmap: &VarMap) -> Vec<f32> {
    let named = named(varmap);
    named.iter().flat_map(|(_, var)| flat(var)).collect()
}

pub fn flat(tensor: &Tensor) -> Vec<f32> {
    let flat = tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap();
    flat.to_vec1().unwrap()
}

pub fn near(a: &[f32], b: &[f32], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    let far = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    let furthest = far.fold(0.0, f32::max);
    assert!(furthest <= tolerance, "{furthest} apart");
}

pub fn alone() -> Comm {
    Comm::alone(&Context::new().unwrap()).unwrap()
}

/// What `rank` gives on each of two ranks, in threads.
pub fn two_ranks<T: Send>(rank: impl Fn(Comm) -> T + Sync) -> Vec<T> {
    let comms = Comm::threads(&Context::new().unwrap(), 2).unwrap();
    thread::scope(|scope| {
        let rank = &rank;
        let ranks: Vec<_> = comms
            .into_iter()
            .map(|comm| scope.spawn(move || rank(comm)))
            .collect();
        ranks.into_iter().map(|each| each.join().unwrap()).collect()
    })
}
