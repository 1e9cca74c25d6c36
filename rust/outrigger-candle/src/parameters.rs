// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Vars of a VarMap as parameters of an engine.
use crate::tensors::{is_parameter, view};
use crate::Result;
use candle_core::{TensorId, Var};
use candle_nn::VarMap;
use outrigger::{Comm, Error, ParameterId, ParameterOptions, Plan};
use std::collections::HashMap;
use std::sync::PoisonError;

/// A Var and what the engine knows it as.
pub(crate) struct Parameter {
    pub name: String,
    pub id: ParameterId,
    pub aliases: Vec<ParameterId>, // further names of the Var
    pub var: Var,
    pub trainable: bool,
}

/// Declares the float Vars of a map, by name, which is the same order on every rank, and commits. Collective.
pub(crate) fn commit(
    comm: &Comm,
    config: &str,
    varmap: &VarMap,
    options: impl Fn(&str) -> ParameterOptions,
) -> Result<(outrigger::Engine, Vec<Parameter>)> {
    let mut vars: Vec<(String, Var)> = {
        let map = varmap.data().lock();
        let map = map.unwrap_or_else(PoisonError::into_inner);
        let named = map.iter().map(|(name, var)| (name.clone(), var.clone()));
        named.filter(|(_, var)| is_parameter(var.dtype())).collect()
    };
    vars.sort_by(|a, b| a.0.cmp(&b.0));
    if vars.is_empty() {
        return Err(Error::Argument(
            "the VarMap has no Var of a float dtype; make the model from it first".into(),
        )
        .into());
    }
    let mut plan = Plan::new(comm, config)?;
    let mut seen: HashMap<TensorId, usize> = HashMap::new();
    let mut parameters: Vec<Parameter> = Vec::new();
    for (name, var) in vars {
        let mut asked = options(&name);
        let shared = seen.get(&var.id()).copied();
        asked.alias_of = shared.map(|place| parameters[place].id);
        let id = {
            let (storage, layout) = var.storage_and_layout();
            plan.parameter_with(&name, Some(&view(&storage, layout)?), &asked)?
        };
        if let Some(place) = shared {
            parameters[place].aliases.push(id);
            continue;
        }
        seen.insert(var.id(), parameters.len());
        parameters.push(Parameter {
            name,
            id,
            aliases: Vec::new(),
            var,
            trainable: !asked.frozen,
        });
    }
    Ok((plan.commit()?, parameters))
}
