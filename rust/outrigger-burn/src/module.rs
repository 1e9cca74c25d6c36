// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Walks over a module's parameters. A walk cannot end early: after an error the rest is left out.
use crate::{Error, Known, Result};
use burn_core::module::{ModuleMapper, ModuleVisitor, Param, ParamId};
use burn_core::tensor::{DType, Gradients, Tensor, TensorData};
use half::{bf16, f16};
use outrigger::{Engine, ParameterOptions, Pass, Plan};
use std::collections::HashMap;

/// Gives `call` a view of burn's values.
fn viewed<R>(
    data: &TensorData,
    shape: &[usize],
    call: impl FnOnce(&outrigger::Tensor) -> outrigger::Result<R>,
) -> Result<R> {
    macro_rules! of {
        ($element:ty) => {{
            let values = data.as_slice::<$element>();
            let values = values.map_err(|error| Error::Burn(format!("{error:?}")))?;
            Ok(call(&outrigger::Tensor::new(values, shape)?)?)
        }};
    }
    match data.dtype() {
        DType::F32 => of!(f32),
        DType::F64 => of!(f64),
        DType::BF16 => of!(bf16),
        DType::F16 => of!(f16),
        other => Err(outrigger::Error::Dtype(format!(
            "a tensor is {other:?}; parameters and gradients are F32, F64, BF16 or F16"
        ))
        .into()),
    }
}

/// Declares parameters, by their path.
pub(crate) struct Declarer {
    plan: Plan,
    path: Vec<String>,
    known: HashMap<ParamId, Known>,
    failed: Result<()>,
}

impl Declarer {
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            plan,
            path: Vec::new(),
            known: HashMap::new(),
            failed: Ok(()),
        }
    }

    pub(crate) fn finish(self) -> Result<(Plan, HashMap<ParamId, Known>)> {
        self.failed?;
        if !self.known.values().any(|known| known.trained) {
            return Err(outrigger::Error::Argument(
                "no parameter of the module requires a gradient; make it on an autodiff device"
                    .into(),
            )
            .into());
        }
        Ok((self.plan, self.known))
    }

    fn declare<const D: usize>(&mut self, param: &Param<Tensor<D>>) -> Result<()> {
        let tensor = param.base();
        let trained = tensor.is_require_grad();
        let asked = ParameterOptions {
            frozen: !trained,
            alias_of: self.known.get(&param.id).map(|known| known.id),
            ..Default::default()
        };
        let (name, plan) = (self.path.join("."), &mut self.plan);
        let (shape, data) = (tensor.dims(), tensor.inner().into_data());
        let id = viewed(&data, &shape, |view| {
            plan.parameter_with(&name, Some(view), &asked)
        })?;
        self.known.entry(param.id).or_insert(Known { id, trained });
        Ok(())
    }
}

impl ModuleVisitor for Declarer {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.failed.is_ok() {
            self.failed = self.declare(param);
        }
    }
}

/// Adds the gradients of trained parameters to a pass.
pub(crate) struct Adder<'a> {
    known: &'a HashMap<ParamId, Known>,
    pass: &'a Pass<'a>,
    grads: Gradients,
    added: Result<usize>,
}

impl<'a> Adder<'a> {
    pub(crate) fn new(
        known: &'a HashMap<ParamId, Known>,
        pass: &'a Pass,
        grads: Gradients,
    ) -> Self {
        Self {
            known,
            pass,
            grads,
            added: Ok(0),
        }
    }

    /// How many gradients there were.
    pub(crate) fn finish(self) -> Result<usize> {
        self.added
    }

    fn add<const D: usize>(&mut self, param: &Param<Tensor<D>>) -> Result<usize> {
        let known = self.known.get(&param.id).filter(|known| known.trained);
        let Some((known, grad)) = known.zip(param.base().grad_remove(&mut self.grads)) else {
            return Ok(0);
        };
        let shape = grad.dims();
        let pass = self.pass;
        viewed(&grad.into_data(), &shape, |view| {
            pass.add_grad(known.id, view)
        })?;
        Ok(1)
    }
}

impl ModuleVisitor for Adder<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Ok(count) = self.added {
            self.added = self.add(param).map(|more| count + more);
        }
    }
}

/// Gives parameters the engine's weights, on the device and with the autodiff state that they have.
pub(crate) struct Publisher<'a> {
    engine: &'a Engine,
    known: &'a HashMap<ParamId, Known>,
    trained_alone: bool,
    failed: Result<()>,
}

impl<'a> Publisher<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        known: &'a HashMap<ParamId, Known>,
        trained_alone: bool,
    ) -> Self {
        Self {
            engine,
            known,
            trained_alone,
            failed: Ok(()),
        }
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.failed
    }

    fn weight<const D: usize>(&self, known: Known, before: &Tensor<D>) -> Result<Tensor<D>> {
        let weights = self.engine.acquire_float32(&[known.id])?;
        let data = TensorData::new(weights.get::<f32>(0)?.to_vec(), before.shape());
        let device = before.clone().inner().device();
        let options = (&device, before.dtype());
        let mut weight = Tensor::from_data(data, options);
        if before.is_autodiff() {
            weight = Tensor::from_inner(weight);
        }
        if let Some(strategy) = before.gradient_checkpointing_strategy() {
            weight = weight.with_gradient_checkpointing_strategy(strategy);
        }
        Ok(if before.is_require_grad() {
            weight.require_grad()
        } else {
            weight
        })
    }
}

impl ModuleMapper for Publisher<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let known = self.known.get(&param.id).copied();
        match known.filter(|known| known.trained || !self.trained_alone) {
            Some(known) if self.failed.is_ok() => {
                let (id, before, mapper) = param.consume();
                let weight = self.weight(known, &before).unwrap_or_else(|error| {
                    self.failed = Err(error);
                    before
                });
                Param::from_mapped_value(id, weight, mapper)
            }
            _ => param,
        }
    }
}
