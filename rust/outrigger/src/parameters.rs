// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An engine's parameters and their values.
use crate::engine::ParameterId;
use crate::raw::{check, made, slice, string, text};
use crate::tensor::counts;
use crate::{Acquired, Element, Engine, Result, Tensor, TensorMut, Value};
use core::ops::Range;
use core::ptr;
use outrigger_sys::*;

// SAFETY of the calls below: handles live, tensors, ids and texts outlive the calls, lengths are those of the slices.
impl Engine {
    /// How many parameters there are, aliases and frozen ones among them.
    pub fn parameter_count(&self) -> Result<i64> {
        made(|out| unsafe { otr_engine_parameter_count(self.as_raw(), out) })
    }

    /// The parameter of this name; [`Error::NotFound`](crate::Error) has the nearest one.
    pub fn parameter_id(&self, name: &str) -> Result<ParameterId> {
        let name = text(name)?;
        made(|out| unsafe { otr_engine_parameter_id(self.as_raw(), name.as_ptr(), out) })
            .map(ParameterId)
    }

    /// Its name.
    pub fn parameter_name(&self, id: ParameterId) -> Result<String> {
        made(|out| unsafe { otr_engine_parameter_name(self.as_raw(), id.0, out) })
            .map(|name| unsafe { string(name) })
    }

    /// Its shape.
    pub fn parameter_shape(&self, id: ParameterId) -> Result<Vec<usize>> {
        let (mut ndim, mut shape) = (0, ptr::null());
        check(unsafe { otr_engine_parameter_shape(self.as_raw(), id.0, &mut ndim, &mut shape) })?;
        Ok(counts(unsafe { slice(shape, ndim as usize) }))
    }

    /// First values, before the first pass: a whole value for each id, the same ids on all ranks. Collective.
    pub fn set_initial(&mut self, ids: &[ParameterId], values: &[Tensor]) -> Result<()> {
        if ids.len() != values.len() {
            return Err(crate::Error::Argument(format!(
                "set_initial got {} ids and {} values",
                ids.len(),
                values.len()
            )));
        }
        let (ids, raw): (_, Vec<otr_tensor>) = (
            ParameterId::raw(ids),
            values.iter().map(Tensor::raw).collect(),
        );
        check(unsafe {
            otr_engine_set_initial(self.as_raw(), ids.as_ptr(), ids.len() as i64, raw.as_ptr())
        })
    }

    /// The weights that a forward and a backward read, in the compute dtype, until what this gives is dropped.
    pub fn acquire(&self, ids: &[ParameterId]) -> Result<Acquired<'_>> {
        self.acquire_as(ids, 0)
    }

    /// The same in float32, whatever the stored format: a copy.
    pub fn acquire_float32(&self, ids: &[ParameterId]) -> Result<Acquired<'_>> {
        self.acquire_as(ids, OTR_ACQUIRE_FLOAT32)
    }

    fn acquire_as(&self, ids: &[ParameterId], flags: u32) -> Result<Acquired<'_>> {
        if self.reduced.get() {
            return Err(crate::Error::State(
                "acquire comes between a reduce and its step, while ranks may write what they share; make the step first".into(),
            ));
        }
        Acquired::new(self, ids, flags)
    }

    /// Starts to gather parameters that are acquired soon.
    pub fn prefetch(&self, ids: &[ParameterId]) -> Result<()> {
        let ids = ParameterId::raw(ids);
        check(unsafe {
            otr_engine_prefetch(self.as_raw(), ids.as_ptr(), ids.len() as i64, ptr::null())
        })
    }

    /// A value of the whole parameter, in any dtype, row-major. Collective.
    pub fn read<T: Element + Default>(&self, id: ParameterId, value: Value) -> Result<Vec<T>> {
        let shape = self.parameter_shape(id)?;
        let mut values = vec![T::default(); shape.iter().product()];
        self.read_into(id, value, &mut TensorMut::new(&mut values, &shape)?)?;
        Ok(values)
    }

    /// The same into memory of the parameter's shape.
    pub fn read_into(&self, id: ParameterId, value: Value, out: &mut TensorMut) -> Result<()> {
        let out = out.raw();
        check(unsafe { otr_engine_parameter_read(self.as_raw(), id.0, value as i32, &out) })
    }

    /// Sets a value of the whole parameter from rank 0's tensor. Collective.
    pub fn write(&mut self, id: ParameterId, value: Value, source: &Tensor) -> Result<()> {
        let source = source.raw();
        check(unsafe { otr_engine_parameter_write(self.as_raw(), id.0, value as i32, &source) })
    }

    /// The elements of a parameter that this rank updates, in row-major order.
    pub fn local_range(&self, id: ParameterId) -> Result<Range<usize>> {
        let (mut first, mut count) = (0, 0);
        check(unsafe { otr_engine_local_range(self.as_raw(), id.0, &mut first, &mut count) })?;
        Ok(first as usize..(first + count) as usize)
    }

    /// A value of these elements.
    pub fn local_read<T: Element + Default>(
        &self,
        id: ParameterId,
        value: Value,
    ) -> Result<Vec<T>> {
        let count = self.local_range(id)?.len();
        let mut values = vec![T::default(); count];
        let mut view = TensorMut::new(&mut values, &[count])?;
        let out = view.raw();
        check(unsafe { otr_engine_local_read(self.as_raw(), id.0, value as i32, &out) })?;
        Ok(values)
    }

    /// Freezes a parameter that was declared trainable, or thaws it. Every rank makes the same call.
    pub fn set_trainable(&mut self, id: ParameterId, trainable: bool) -> Result<()> {
        check(unsafe { otr_engine_set_trainable(self.as_raw(), id.0, i32::from(trainable)) })
    }
}
