// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ZeRO sharding, CPU offload and low-precision optimizer states for modules of burn.
//!
//! [`Optimizer`] takes the place of burn's optimizers: a loss goes to [`Optimizer::backward`], and [`Optimizer::step`] gives the module
//! back with its new weights. Burn's own trait for optimizers updates one tensor at a time and cannot wait for other ranks, so this is no
//! implementation of it.
//!
//! Gradients and weights are copied between burn's device and the library's memory on the host.
#![warn(missing_docs)]

mod error;
mod module;

pub use error::Error;

use burn_core::module::{Module, ParamId};
use burn_core::tensor::Tensor;
use module::{Adder, Declarer, Publisher};
use outrigger::{Comm, ParameterId, Plan, Report};
use std::collections::HashMap;

/// What a call gives, or why it failed.
pub type Result<T> = core::result::Result<T, Error>;

/// What the engine knows a parameter as, and whether it is trained.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    id: ParameterId,
    trained: bool,
}

/// Trains a module: it has the weights, the library has master weights, gradients and optimizer states. It may go to another thread; one
/// uses it at a time.
pub struct Optimizer {
    engine: outrigger::Engine,
    known: HashMap<ParamId, Known>,
}

impl Optimizer {
    /// Every float parameter of the module becomes one of the engine, named by its path; one that requires no gradient is frozen. The
    /// module that comes back has rank 0's values, in the compute dtype's precision. `config`: DeepSpeed-compatible JSON. Collective.
    /// [`outrigger::Error::Argument`]: no parameter requires a gradient.
    pub fn new<M: Module>(comm: &Comm, config: &str, module: M) -> Result<(Self, M)> {
        let mut declarer = Declarer::new(Plan::new(comm, config)?);
        module.visit(&mut declarer);
        let (plan, known) = declarer.finish()?;
        let made = Self {
            engine: plan.commit()?,
            known,
        };
        let module = made.publish(module)?;
        Ok((made, module))
    }

    /// A backward pass from a loss of one element, or from the sum of a tensor's elements, to the module's parameters. Loss scale,
    /// accumulation and the number of ranks are applied, once: the loss is the mean over this rank's micro-batch. From outputs of another
    /// shape with their gradients: of `(output * grad).sum()`. [`outrigger::Error::State`]: the loss trains nothing of the module.
    pub fn backward<const D: usize, M: Module>(&self, loss: Tensor<D>, module: &M) -> Result<()> {
        let pass = self.engine.pass(&[])?;
        let loss = loss * pass.scale()?;
        let mut added = 0;
        if loss.is_tracked() {
            let mut adder = Adder::new(&self.known, &pass, loss.backward());
            module.visit(&mut adder);
            added = adder.finish()?;
        }
        if added == 0 {
            return Err(outrigger::Error::State(
                "the loss depends on no trained parameter of the module that this optimizer was made with; compute it with the module that step or new gave, on an autodiff device".into(),
            )
            .into());
        }
        Ok(pass.end()?)
    }

    /// Ends a micro-batch, and the last one of a window makes the step; the module that comes back has the new weights then. A skip is a
    /// success. Collective. After an error the module is gone, and [`Optimizer::publish`] gives a clone of an earlier one the weights.
    pub fn step<M: Module>(&mut self, module: M) -> Result<(M, Report)> {
        let report = self.engine.step()?;
        if !report.is_applied() {
            return Ok((module, report));
        }
        let mut publisher = Publisher::new(&self.engine, &self.known, true);
        let module = module.map(&mut publisher);
        publisher.finish()?;
        Ok((module, report))
    }

    /// The module with the engine's weights, frozen ones among them: after a load. Collective at stage 3.
    pub fn publish<M: Module>(&self, module: M) -> Result<M> {
        let mut publisher = Publisher::new(&self.engine, &self.known, false);
        let module = module.map(&mut publisher);
        publisher.finish()?;
        Ok(module)
    }

    /// The engine of the safe crate: values, memory, notes.
    pub fn engine(&self) -> &outrigger::Engine {
        &self.engine
    }

    /// The same, to change it, save, load and finalize.
    pub fn engine_mut(&mut self) -> &mut outrigger::Engine {
        &mut self.engine
    }
}
