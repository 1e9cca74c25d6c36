// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Backward passes.
use crate::engine::ParameterId;
use crate::raw::{check, made, options};
use crate::tensor::{elements_of, values_of};
use crate::{Element, Engine, Result, Tensor, TensorMut};
use core::marker::PhantomData;
use core::ptr;
use outrigger_sys::*;

/// What was applied to gradients that come from another engine or scaler, so that each factor is applied once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tag {
    /// Multiplied into them; 1: none.
    pub loss_scale: f64,
    /// Accumulation steps that they were divided by; 0: they are still to be divided.
    pub accumulation: i32,
    /// Ranks that their sum is still to be divided by; 0: as many as in this engine.
    pub ranks: i32,
}

impl Tag {
    pub(crate) fn of(info: &otr_call_info) -> Self {
        Self {
            loss_scale: info.loss_scale,
            accumulation: info.accumulation,
            ranks: info.ranks,
        }
    }
    pub(crate) fn put(self, info: &mut otr_call_info) {
        info.loss_scale = self.loss_scale;
        info.accumulation = self.accumulation;
        info.ranks = self.ranks;
    }
}

/// What a pass may be told.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassOptions {
    /// The gradients come from another engine's pass ([`Pass::tag`]).
    pub tag: Option<Tag>,
    /// The scaled output gradients keep their dtype, else they are float32.
    pub keep_dtype: bool,
}

/// A backward pass: from the gradients of the outputs to those of the parameters, which any number of threads may add. Dropped without
/// [`Pass::end`], it is given up, and the window with it. It borrows the engine: no step is made meanwhile.
pub struct Pass<'e> {
    raw: *mut otr_pass,
    engine: PhantomData<&'e Engine>,
}

// SAFETY: what takes &self is marked "any thread", and the destroy of a child may run beside a call on its parent.
unsafe impl Send for Pass<'_> {}
unsafe impl Sync for Pass<'_> {}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        // SAFETY: given back once; slots and output gradients borrow self.
        unsafe { otr_pass_destroy(self.raw) }
    }
}

// SAFETY of the calls below: the pass lives, tensors outlive the calls.
impl<'e> Pass<'e> {
    pub(crate) fn begin(
        engine: &'e Engine,
        output_grads: &[Tensor],
        asked: &PassOptions,
    ) -> Result<Self> {
        let raw: Vec<otr_tensor> = output_grads.iter().map(Tensor::raw).collect();
        let mut info = options(otr_call_info_init)?;
        if let Some(tag) = asked.tag {
            tag.put(&mut info);
        }
        if asked.keep_dtype {
            info.flags = OTR_PASS_KEEP_DTYPE;
        }
        let pass = made(|out| unsafe {
            otr_pass_begin(engine.as_raw(), raw.as_ptr(), raw.len() as i64, &info, out)
        })?;
        Ok(Self {
            raw: pass,
            engine: PhantomData,
        })
    }

    /// The index-th output's gradient, scaled, row-major; float32, if [`PassOptions::keep_dtype`] was not asked for.
    pub fn output_grad<T: Element>(&self, index: usize) -> Result<&[T]> {
        let tensor = made(|out| unsafe { otr_pass_get_output_grad(self.raw, index as i64, out) })?;
        // SAFETY: its memory stays until destroy, and nobody writes there.
        unsafe { values_of(&tensor) }
    }

    /// The factor that was applied: loss scale / accumulation steps.
    pub fn scale(&self) -> Result<f64> {
        made(|out| unsafe { otr_pass_get_scale(self.raw, out) })
    }

    /// What this pass's gradients carry, those of its inputs among them: for [`PassOptions::tag`] of the engine that made the inputs.
    pub fn tag(&self) -> Result<Tag> {
        let mut info = options(otr_call_info_init)?;
        check(unsafe { otr_pass_get_tag(self.raw, &mut info) })?;
        Ok(Tag::of(&info))
    }

    /// A gradient of this pass without the factors it carries, for a host that knows nothing of scales.
    pub fn unscale(&self, grad: &Tensor, out: &mut TensorMut) -> Result<()> {
        let (grad, out) = (grad.raw(), out.raw());
        check(unsafe { otr_pass_unscale(self.raw, &grad, &out) })
    }

    /// The first output whose gradient overflowed when it was scaled: the step will be skipped, so the host may spare itself the backward.
    pub fn seed_overflow(&self) -> Result<Option<usize>> {
        let index: i64 = made(|out| unsafe { otr_pass_get_seed_overflow(self.raw, out) })?;
        Ok(usize::try_from(index).ok())
    }

    /// Adds a gradient, from the scaled output gradients; it is copied. Contributions add in the order of calls.
    pub fn add_grad(&self, id: ParameterId, grad: &Tensor) -> Result<()> {
        let grad = grad.raw();
        check(unsafe { otr_pass_add_grad(self.raw, id.0, &grad, ptr::null()) })
    }

    /// Adds a gradient that comes from another engine or scaler.
    pub fn add_grad_with(&self, id: ParameterId, grad: &Tensor, tag: Tag) -> Result<()> {
        let grad = grad.raw();
        let mut info = options(otr_call_info_init)?;
        tag.put(&mut info);
        check(unsafe { otr_pass_add_grad(self.raw, id.0, &grad, &info) })
    }

    /// Memory to write a parameter's gradient into, in the compute dtype: nothing is copied then. Its values are arbitrary. A parameter has
    /// one slot at a time; one that is dropped stays out until the pass ends.
    pub fn slot(&self, id: ParameterId) -> Result<Slot<'_>> {
        let tensor = made(|out| unsafe { otr_pass_get_slot(self.raw, id.0, out) })?;
        Ok(Slot {
            pass: self,
            id,
            tensor,
        })
    }

    /// Ends the pass: parameters without a gradient count as zero. Does not wait for other ranks.
    pub fn end(self) -> Result<()> {
        check(unsafe { otr_pass_end(self.raw) })
    }

    /// Gives the pass up: the next step discards the window on all ranks, unless nothing was added to it.
    pub fn abandon(self) -> Result<()> {
        check(unsafe { otr_pass_abandon(self.raw) })
    }
}

/// Memory for one gradient, of the pass: see [`Pass::slot`].
pub struct Slot<'p> {
    pass: &'p Pass<'p>,
    id: ParameterId,
    tensor: otr_tensor,
}

// SAFETY: exclusive memory of elements, which are Send and Sync, and a pass, which is both.
unsafe impl Send for Slot<'_> {}
unsafe impl Sync for Slot<'_> {}

impl Slot<'_> {
    /// The memory, row-major. [`Error::Dtype`](crate::Error) says in which dtype it is, where it is not T.
    pub fn get_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        // SAFETY: a slot is row-major and this one's alone until it is handed back or the pass ends, which the borrow keeps off. Memory of the
        // library is never uninitialised for Rust, and all bits are elements.
        unsafe {
            let (data, count) = elements_of::<T>(&self.tensor)?;
            Ok(if count == 0 {
                &mut []
            } else {
                core::slice::from_raw_parts_mut(data, count)
            })
        }
    }

    /// Hands the gradient over.
    pub fn add(self) -> Result<()> {
        // SAFETY: the tensor is the slot's own.
        check(unsafe { otr_pass_add_grad(self.pass.raw, self.id.0, &self.tensor, ptr::null()) })
    }
}
