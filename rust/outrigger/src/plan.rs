// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An engine whose parameters are being declared.
use crate::engine::{Engine, Handle, ParameterId};
use crate::raw::{check, made, optional, options, pointer, text};
use crate::{Comm, Result, Tensor};
use core::ptr;
use outrigger_sys::*;

/// An engine before its commit: it takes parameters, the same ones in the same order on every rank.
pub struct Plan {
    handle: Handle,
}

/// What may be said of a parameter.
#[derive(Clone, Debug, Default)]
pub struct ParameterOptions {
    /// Stored, but without gradient, master and states.
    pub frozen: bool,
    /// A second name of an earlier parameter.
    pub alias_of: Option<ParameterId>,
    /// The parameter group; default "default".
    pub group: Option<String>,
    /// Gradients that one pass adds to this name; default 1.
    pub contributions: Option<i32>,
}

// SAFETY of the calls below: handles live, tensors and texts outlive the calls.
impl Plan {
    /// `config`: DeepSpeed-compatible JSON; "" for the defaults. [`Error::Config`](crate::Error): path, line and remedy of the first fault.
    pub fn new(comm: &Comm, config: &str) -> Result<Self> {
        let config = text(config)?;
        let raw = made(|out| unsafe { otr_engine_create(comm.raw(), config.as_ptr(), out) })?;
        Ok(Self {
            handle: Handle::new(raw, comm.context()),
        })
    }

    /// Puts the engine on a device, before anything is declared. See [`sys`](crate::sys) for the types.
    pub fn set_device(&mut self, device_type: i32, device_id: i32) -> Result<()> {
        check(unsafe { otr_engine_set_device(self.handle.raw(), device_type, device_id) })
    }

    /// Declares a parameter with rank 0's values; [`Tensor::unknown`] gives a shape whose values come later.
    pub fn parameter(&mut self, name: &str, initial: &Tensor) -> Result<ParameterId> {
        self.parameter_with(name, Some(initial), &ParameterOptions::default())
    }

    /// See [`Plan::parameter`]; an alias may go without values.
    pub fn parameter_with(
        &mut self,
        name: &str,
        initial: Option<&Tensor>,
        asked: &ParameterOptions,
    ) -> Result<ParameterId> {
        let name = text(name)?;
        let group = optional(asked.group.as_deref())?;
        let raw = initial.map(Tensor::raw);
        let mut wanted = options(otr_param_options_init)?;
        wanted.trainable = i32::from(!asked.frozen);
        if let Some(of) = asked.alias_of {
            wanted.alias_of = of.0;
        }
        if group.is_some() {
            wanted.group = pointer(&group);
        }
        if let Some(contributions) = asked.contributions {
            wanted.contributions = contributions;
        }
        let initial = raw.as_ref().map_or(ptr::null(), ptr::from_ref);
        made(|out| unsafe {
            otr_engine_add_parameter(self.handle.raw(), name.as_ptr(), initial, &wanted, out)
        })
        .map(ParameterId)
    }

    /// Compares the declarations of all ranks, allocates, and gives every rank rank 0's values. Collective.
    /// [`Error::Mismatch`](crate::Error) names the first difference.
    pub fn commit(self) -> Result<Engine> {
        check(unsafe { otr_engine_commit(self.handle.raw()) })?;
        Ok(Engine::committed(self.handle))
    }
}
