// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weights that are readable.
use crate::engine::ParameterId;
use crate::raw::{check, options};
use crate::tensor::{shape_of, values_of};
use crate::{Element, Engine, Error, Result};
use outrigger_sys::*;

/// Weights of parameters, in the order of their ids, readable until this is dropped. It borrows the engine: no step is made meanwhile.
pub struct Acquired<'e> {
    engine: &'e Engine,
    ids: Vec<i64>,
    tensors: Vec<otr_tensor>,
}

impl<'e> Acquired<'e> {
    pub(crate) fn new(engine: &'e Engine, ids: &[ParameterId], flags: u32) -> Result<Self> {
        let ids = ParameterId::raw(ids);
        let mut info = options(otr_call_info_init)?;
        info.flags = flags;
        let mut tensors = Vec::<otr_tensor>::with_capacity(ids.len());
        // SAFETY: there is room for a tensor of each id; a call that succeeded has written them.
        check(unsafe {
            otr_engine_acquire(
                engine.as_raw(),
                ids.as_ptr(),
                ids.len() as i64,
                &info,
                tensors.as_mut_ptr(),
            )
        })?;
        unsafe { tensors.set_len(ids.len()) };
        Ok(Self {
            engine,
            ids,
            tensors,
        })
    }

    /// How many parameters these are.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The weight of the index-th id, row-major. [`Error::Dtype`] says in which dtype it is, where it is not T.
    pub fn get<T: Element>(&self, index: usize) -> Result<&[T]> {
        let tensor = self.tensor(index)?;
        // SAFETY: acquired tensors are row-major and stay as they are until the release; a step takes the engine exclusively.
        unsafe { values_of(tensor) }
    }

    /// Its shape.
    pub fn shape(&self, index: usize) -> Result<Vec<usize>> {
        // SAFETY: the shape belongs to the engine.
        Ok(unsafe { shape_of(self.tensor(index)?) })
    }

    /// The C tensor of the index-th id, for a framework that makes a view of it: valid as long as this.
    pub fn as_raw(&self, index: usize) -> Result<&otr_tensor> {
        self.tensor(index)
    }

    fn tensor(&self, index: usize) -> Result<&otr_tensor> {
        let count = self.tensors.len();
        self.tensors
            .get(index)
            .ok_or_else(|| Error::NotFound(format!("index {index} of {count} acquired parameters")))
    }
}

impl Drop for Acquired<'_> {
    fn drop(&mut self) {
        // SAFETY: these are acquired. What it may say was said by the call that failed before.
        unsafe {
            otr_engine_release(
                self.engine.as_raw(),
                self.ids.as_ptr(),
                self.ids.len() as i64,
                core::ptr::null(),
            )
        };
    }
}
