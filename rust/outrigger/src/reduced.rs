// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Between the sum of the gradients and the step.
use crate::engine::ParameterId;
use crate::raw::{check, made};
use crate::{Element, Engine, Report, Result, Tensor, Value};
use outrigger_sys::*;

/// A window whose gradients are summed. They can be read and replaced; with `optimizer.type` "Host" each rank updates its elements here. No
/// rank reads weights meanwhile, because all of them are here.
pub struct Reduced<'e> {
    engine: &'e mut Engine,
    report: Report,
}

impl<'e> Reduced<'e> {
    pub(crate) fn new(engine: &'e mut Engine, report: Report) -> Self {
        Self { engine, report }
    }

    /// What the step would do now.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The engine, for what takes it shared: [`Engine::read`], [`Engine::local_read`] of [`Value::Grad`] and the like.
    pub fn engine(&self) -> &Engine {
        self.engine
    }

    /// Whether the step would update this parameter.
    pub fn has_grad(&self, id: ParameterId) -> Result<bool> {
        // SAFETY: the engine lives.
        made(|out| unsafe { otr_engine_has_grad(self.engine.as_raw(), id.0, out) })
            .map(|has: i32| has != 0)
    }

    /// Replaces the gradient of a whole parameter by rank 0's tensor. Collective.
    pub fn write_grad(&mut self, id: ParameterId, grad: &Tensor) -> Result<()> {
        self.engine.write(id, Value::Grad, grad)
    }

    /// Writes a value of this rank's elements ([`Engine::local_range`]).
    pub fn local_write<T: Element>(
        &mut self,
        id: ParameterId,
        value: Value,
        values: &[T],
    ) -> Result<()> {
        let source = Tensor::new(values, &[values.len()])?;
        let source = source.raw();
        // SAFETY: the engine lives, the tensor outlives the call.
        check(unsafe { otr_engine_local_write(self.engine.as_raw(), id.0, value as i32, &source) })
    }

    /// Computes the report anew, after gradients were replaced. Collective.
    pub fn again(self) -> Result<Self> {
        self.engine.reduce()
    }

    /// Makes the step. Collective.
    pub fn step(self) -> Result<Report> {
        self.engine.step()
    }

    /// Drops the window. Collective.
    pub fn discard(self) -> Result<()> {
        self.engine.discard()
    }
}
