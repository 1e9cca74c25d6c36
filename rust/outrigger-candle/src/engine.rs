// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A model whose Vars are whole on every rank.
use crate::parameters::{commit, Parameter};
use crate::pass::{add, begin, gradients};
use crate::tensors::{copy_weight, output_grad};
use crate::{Gradients, Result};
use candle_core::Tensor;
use candle_nn::VarMap;
use outrigger::{Comm, Error, Load, ParameterOptions, Report, Tag};
use std::path::Path;

/// Trains the Vars of a [`VarMap`]: they have the weights, the library has master weights, gradients and optimizer states. It may go to
/// another thread; one uses it at a time. See the [crate](crate) for an example.
pub struct Engine {
    engine: outrigger::Engine,
    parameters: Vec<Parameter>,
    all_change: bool,
}

impl Engine {
    /// Every float Var of the map becomes a parameter; two names of one Var are one parameter. Every rank's Vars then have rank 0's
    /// values, in the compute dtype's precision. `config`: DeepSpeed-compatible JSON. Collective.
    pub fn new(comm: &Comm, config: &str, varmap: &VarMap) -> Result<Self> {
        Self::with(comm, config, varmap, |_| ParameterOptions::default())
    }

    /// The same with what is to be said of each parameter, by name: frozen, its group. `alias_of` comes from the map.
    pub fn with(
        comm: &Comm,
        config: &str,
        varmap: &VarMap,
        options: impl Fn(&str) -> ParameterOptions,
    ) -> Result<Self> {
        let (engine, parameters) = commit(comm, config, varmap, options)?;
        let made = Self {
            engine,
            parameters,
            all_change: false,
        };
        made.publish()?;
        Ok(made)
    }

    /// A backward pass from a loss, or from the sum of a tensor's elements. Loss scale, accumulation and the number of ranks are applied,
    /// once: the loss is the mean over this rank's micro-batch.
    pub fn backward(&self, loss: &Tensor) -> Result<Gradients> {
        self.backward_from(&[(loss, &loss.ones_like()?)], None)
    }

    /// A backward pass from outputs of any shape with their gradients. `tag`: the gradients come from another engine's pass
    /// ([`Gradients::tag`]). [`outrigger::Error::State`]: no output depends on a trainable Var of this engine.
    pub fn backward_from(
        &self,
        outputs: &[(&Tensor, &Tensor)],
        tag: Option<Tag>,
    ) -> Result<Gradients> {
        let pass = begin(&self.engine, outputs, tag)?;
        let pairs = outputs.iter().enumerate();
        let scaled =
            pairs.map(|(index, (output, _))| Ok((*output, output_grad(&pass, index, output)?)));
        let store = gradients(scaled.collect::<Result<Vec<_>>>()?)?;
        let trained = self.parameters.iter().filter(|each| each.trainable);
        let added = add(
            &pass,
            &store,
            trained.map(|each| (each.id, each.var.as_tensor())),
        )?;
        if added == 0 {
            return Err(Error::State(
                "no output depends on a trainable Var of this engine; make the model from the VarMap that the engine was made from, and detach nothing"
                    .into(),
            )
            .into());
        }
        let tag = pass.tag()?;
        pass.end()?;
        Ok(Gradients { store, tag })
    }

    /// Ends a micro-batch, and the last one of a window makes the step; the Vars have the new weights then. A skip is a success. Collective.
    pub fn step(&mut self) -> Result<Report> {
        let report = self.engine.step()?;
        if report.is_applied() {
            self.copy(|each| each.trainable || self.all_change)?;
        }
        Ok(report)
    }

    /// Copies all weights into the Vars; [`Engine::step`] and [`Engine::load`] do that. Collective at stage 3.
    pub fn publish(&self) -> Result<()> {
        self.copy(|_| true)
    }

    fn copy(&self, which: impl Fn(&Parameter) -> bool) -> Result<()> {
        let parameters = self.parameters.iter().filter(|each| which(each));
        for each in parameters {
            copy_weight(&self.engine, each.id, &each.var)?;
        }
        Ok(())
    }

    /// Freezes the parameter of this name, or thaws it. Every rank makes the same call.
    pub fn set_trainable(&mut self, name: &str, trainable: bool) -> Result<()> {
        let id = self.engine.parameter_id(name)?;
        self.engine.set_trainable(id, trainable)?;
        let known = self.parameters.iter_mut();
        known
            .filter(|each| each.id == id || each.aliases.contains(&id))
            .for_each(|each| each.trainable = trainable);
        Ok(())
    }

    /// A hyperparameter ("lr", "weight_decay" …) of a group, or of all, from the next step on. Every rank sets the same.
    pub fn set_value(&mut self, group: Option<&str>, name: &str, value: f64) -> Result<()> {
        Ok(self.engine.set_value(group, name, value)?)
    }

    /// Saves the training: see [`outrigger::Engine::save`]. Collective.
    pub fn save(
        &mut self,
        directory: impl AsRef<Path>,
        tag: &str,
        asked: &outrigger::Save,
    ) -> Result<()> {
        Ok(self.engine.save(directory, tag, asked)?)
    }

    /// Goes on from a checkpoint, whatever number of ranks made it; the Vars have its weights then. Collective.
    pub fn load(
        &mut self,
        directory: impl AsRef<Path>,
        tag: Option<&str>,
        asked: &Load,
    ) -> Result<()> {
        self.engine.load(directory, tag, asked)?;
        self.publish()
    }

    /// Waits for background work of all ranks and ends the engine's collectives. Collective.
    pub fn finalize(&mut self) -> Result<()> {
        Ok(self.engine.finalize()?)
    }

    /// The engine of the safe crate: values, memory, notes.
    pub fn engine(&self) -> &outrigger::Engine {
        &self.engine
    }

    /// The same, to change it. What changes weights reaches the Vars by [`Engine::publish`], or by the next step, which copies frozen ones,
    /// too, from here on. Freeze and thaw with [`Engine::set_trainable`].
    pub fn engine_mut(&mut self) -> &mut outrigger::Engine {
        self.all_change = true;
        &mut self.engine
    }
}
