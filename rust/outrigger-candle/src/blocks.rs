// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A model whose weights are there block by block: stage 3.
use crate::parameters::commit;
use crate::pass::{add, begin, gradients};
use crate::tensors::{copy_weight, is_parameter, output_grad as output_grad_of};
use crate::{Gradients, Result};
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Shape, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use outrigger::{Comm, Error, ParameterId, Report, Tag};
use std::collections::HashMap;

/// What a block computes, from its weights and from what the block before it gave.
type Forward<'f> = dyn Fn(VarBuilder, &Tensor) -> candle_core::Result<Tensor> + 'f;

/// A part of a model: the parameters whose names begin with `prefix.`, and what it computes. It runs once in the forward and once more in
/// the backward, and computes the same both times.
pub struct Block<'f> {
    prefix: String,
    forward: Box<Forward<'f>>,
}

impl<'f> Block<'f> {
    /// `forward` makes its layers from a builder that is at `prefix` already, as `linear(8, 8, builder.pp("up"))`, and has the dtype of
    /// the block's first weight by name.
    pub fn new(
        prefix: impl Into<String>,
        forward: impl Fn(VarBuilder, &Tensor) -> candle_core::Result<Tensor> + 'f,
    ) -> Self {
        Self {
            prefix: prefix.into(),
            forward: Box::new(forward),
        }
    }

    fn has(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&self.prefix);
        rest.is_some_and(|rest| rest.starts_with('.'))
    }
}

/// One parameter: its name under its block's prefix too, and what its Var would be.
struct Weight {
    name: String,
    id: ParameterId,
    shape: Shape,
    dtype: DType,
}

/// A model in blocks. Between passes no rank holds more than its part of the weights; a block's are gathered while it runs. It may go to
/// another thread; one uses it at a time.
pub struct Blocks<'f> {
    engine: outrigger::Engine,
    blocks: Vec<(Block<'f>, Vec<Weight>)>,
}

impl<'f> Blocks<'f> {
    /// Takes rank 0's values from the map, which ends here: a Var that is kept elsewhere keeps its memory. `config` is DeepSpeed-compatible
    /// JSON, with stage 3 where weights are to be split. Collective.
    /// [`outrigger::Error::Argument`]: a float Var is in no block or in two, or has two names.
    pub fn new(
        comm: &Comm,
        config: &str,
        varmap: VarMap,
        blocks: impl IntoIterator<Item = Block<'f>>,
    ) -> Result<Self> {
        let mut blocks: Vec<_> = blocks.into_iter().map(|each| (each, Vec::new())).collect();
        check_blocks(&varmap, &blocks)?;
        let (engine, parameters) = commit(comm, config, &varmap, |_| Default::default())?;
        for each in parameters {
            if !each.aliases.is_empty() {
                return Err(Error::Argument(format!(
                    "the Var {} has a second name; blocks share no weights",
                    each.name
                ))
                .into());
            }
            for (block, weights) in &mut blocks {
                if block.has(&each.name) {
                    weights.push(Weight {
                        name: each.name.clone(),
                        id: each.id,
                        shape: each.var.shape().clone(),
                        dtype: each.var.dtype(),
                    });
                }
            }
        }
        Ok(Self { engine, blocks })
    }

    /// Runs the blocks one after the other, and keeps what each of them was given.
    pub fn forward(&self, input: &Tensor) -> Result<Trace<'_, 'f>> {
        let mut inputs = Vec::with_capacity(self.blocks.len());
        let mut x = input.detach();
        for (block, weights) in &self.blocks {
            let vars = self.gather(weights)?;
            let y = (block.forward)(builder(block, weights, &vars, &x), &x)?.detach();
            inputs.push(core::mem::replace(&mut x, y));
        }
        Ok(Trace {
            model: self,
            input: input.clone(),
            inputs,
            output: x,
        })
    }

    fn gather(&self, weights: &[Weight]) -> Result<Vars> {
        let ids: Vec<ParameterId> = weights.iter().map(|each| each.id).collect();
        if !ids.is_empty() {
            self.engine.prefetch(&ids)?;
        }
        let mut vars = Vars::new();
        for each in weights {
            let var = Var::zeros(each.shape.clone(), each.dtype, &Device::Cpu)?;
            copy_weight(&self.engine, each.id, &var)?;
            vars.insert(each.name.clone(), var);
        }
        Ok(vars)
    }

    /// Ends a micro-batch, and the last one of a window makes the step. A skip is a success. Collective.
    pub fn step(&mut self) -> Result<Report> {
        Ok(self.engine.step()?)
    }

    /// The engine of the safe crate: values, memory, notes.
    pub fn engine(&self) -> &outrigger::Engine {
        &self.engine
    }

    /// The same, to change it, save and load.
    pub fn engine_mut(&mut self) -> &mut outrigger::Engine {
        &mut self.engine
    }
}

type Vars = HashMap<String, Var>;

fn check_blocks(varmap: &VarMap, blocks: &[(Block, Vec<Weight>)]) -> Result<()> {
    let map = varmap.data().lock();
    let map = map.unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut names: Vec<&String> = map
        .iter()
        .filter(|(_, var)| is_parameter(var.dtype()))
        .map(|(name, _)| name)
        .collect();
    names.sort();
    for name in names {
        let count = blocks.iter().filter(|(block, _)| block.has(name)).count();
        if count != 1 {
            return Err(Error::Argument(format!(
                "the parameter {name} is in {count} blocks; each is in one, by the block's prefix and a dot"
            ))
            .into());
        }
    }
    Ok(())
}

/// At the block's prefix, with its weights, in the dtype of the first one by name.
fn builder(block: &Block, weights: &[Weight], vars: &Vars, input: &Tensor) -> VarBuilder<'static> {
    let tensors = vars
        .iter()
        .map(|(name, var)| (name.clone(), var.as_tensor().clone()))
        .collect();
    let dtype = weights.first().map_or(input.dtype(), |each| each.dtype);
    VarBuilder::from_tensors(tensors, dtype, &Device::Cpu).pp(&block.prefix)
}

/// A forward whose backward is to come. It borrows the model: no step is made meanwhile.
pub struct Trace<'b, 'f> {
    model: &'b Blocks<'f>,
    input: Tensor,
    inputs: Vec<Tensor>,
    output: Tensor,
}

impl Trace<'_, '_> {
    /// What the last block gave.
    pub fn output(&self) -> &Tensor {
        &self.output
    }

    /// A backward pass from the gradient of the output, block by block, each of which runs once more. The store has one gradient: that of
    /// the forward's input, where this is of a float dtype. `tag`: the output's gradient comes from another engine's pass.
    /// [`outrigger::Error::State`]: a block's output does not depend on what the block before it gave.
    pub fn backward(self, output_grad: &Tensor, tag: Option<Tag>) -> Result<Gradients> {
        let outputs = [(&self.output, output_grad)];
        let pass = begin(&self.model.engine, &outputs, tag)?;
        let mut grad = output_grad_of(&pass, 0, &self.output)?;
        let mut store = GradStore::default();
        for (place, (block, weights)) in self.model.blocks.iter().enumerate().rev() {
            let vars = self.model.gather(weights)?;
            let x = match &self.inputs[place] {
                x if is_parameter(x.dtype()) => Var::from_tensor(x)?.into_inner(),
                x => x.clone(),
            };
            let y = (block.forward)(builder(block, weights, &vars, &x), &x)?;
            let mut given = gradients([(&y, grad)])?;
            let own = weights
                .iter()
                .map(|each| (each.id, vars[&each.name].as_tensor()));
            add(&pass, &given, own)?;
            let before = given.remove(&x);
            if place == 0 {
                before.map(|grad| store.insert(&self.input, grad));
                break;
            }
            grad = before.ok_or_else(|| {
                Error::State(format!(
                    "the output of the block {} does not depend on its input, so that the blocks before it get no gradient",
                    block.prefix
                ))
            })?;
        }
        let tag = pass.tag()?;
        pass.end()?;
        Ok(Gradients { store, tag })
    }
}
