// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ZeRO sharding, CPU offload and low-precision optimizer states for models in candle.
//!
//! [`Engine`] trains the Vars of a `VarMap`, in place of candle's optimizers:
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use candle_nn::{linear, loss::mse, Module, VarBuilder, VarMap};
//! use outrigger::{Comm, Context};
//!
//! fn main() -> outrigger_candle::Result<()> {
//!     let varmap = VarMap::new();
//!     let model = linear(2, 1, VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu))?;
//!     let comm = Comm::from_env(&Context::new()?)?; // one rank, or those of `outrigger run -n 2 -- …`
//!     let config = r#"{"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "zero_optimization": {"stage": 2}}"#;
//!     let mut engine = outrigger_candle::Engine::new(&comm, config, &varmap)?;
//!     let x = Tensor::new(&[[1.0_f32, 0.0], [0.0, 1.0]], &Device::Cpu)?;
//!     let wanted = Tensor::new(&[[2.0_f32], [3.0]], &Device::Cpu)?;
//!     for _ in 0..100 {
//!         let loss = mse(&model.forward(&x)?, &wanted)?;
//!         engine.backward(&loss)?;
//!         engine.step()?;
//!     }
//!     assert!(mse(&model.forward(&x)?, &wanted)?.to_scalar::<f32>()? < 0.01);
//!     engine.finalize()
//! }
//! ```
//!
//! The Vars are whole on every rank; gradients, master weights and optimizer states are split as the stage says. A step copies new weights
//! from the library's memory into that of the Vars: candle's tensors own their memory, so this one copy stays. [`Blocks`] is for stage 3:
//! its weights are in memory block by block.
//!
//! Weights and gradients lie on `Device::Cpu`.
#![warn(missing_docs)]

mod blocks;
mod engine;
mod error;
mod parameters;
mod pass;
mod tensors;

pub use blocks::{Block, Blocks, Trace};
pub use engine::Engine;
pub use error::Error;
pub use pass::Gradients;

/// What a call gives, or why it failed.
pub type Result<T> = core::result::Result<T, Error>;
