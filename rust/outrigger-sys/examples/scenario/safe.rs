// SPDX-License-Identifier: Apache-2.0 OR MIT
//! As much of a safe layer as the scenario needs: errors as values, handles that give themselves back.
use super::tensor::{slice, Tensor};
use core::ffi::{c_char, CStr};
use core::mem::{size_of, MaybeUninit};
use core::ptr;
use outrigger_sys::*;
use std::ffi::CString;

#[derive(Debug)]
pub struct Error {
    pub code: i32,
    pub name: String,
    pub text: String,
}
pub type Result<T> = core::result::Result<T, Error>;

/// Text of the library. SAFETY: `text` is NUL-terminated and lives during the call.
unsafe fn string(text: *const c_char) -> String {
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

fn check(code: i32) -> Result<()> {
    if code == OTR_OK {
        return Ok(());
    }
    // SAFETY: both texts are never NULL and valid until this thread's next call.
    Err(unsafe {
        Error {
            code,
            name: string(otr_status_name(code)),
            text: string(otr_last_error_message()),
        }
    })
}

/// The out parameter of a call that succeeded.
fn made<T>(call: impl FnOnce(*mut T) -> i32) -> Result<T> {
    let mut out = MaybeUninit::<T>::zeroed();
    check(call(out.as_mut_ptr()))?;
    // SAFETY: a successful call has written it; all out types allow zero bits anyway.
    Ok(unsafe { out.assume_init() })
}

fn text(value: &str) -> CString {
    CString::new(value).expect("no NUL in a text")
}

macro_rules! handle {
    ($name:ident, $raw:ident, $destroy:ident) => {
        pub struct $name(pub *mut $raw);
        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the handle came from its create function and is given back once.
                unsafe { $destroy(self.0) }
            }
        }
    };
}
handle!(Context, otr_context, otr_context_destroy);
handle!(Comm, otr_comm, otr_comm_destroy);
handle!(Engine, otr_engine, otr_engine_destroy);
handle!(Pass, otr_pass, otr_pass_destroy);
handle!(Shard, otr_shard, otr_shard_destroy);
handle!(Optimizer, otr_optimizer, otr_optimizer_destroy);

/// A size-first option struct with its defaults.
pub fn options<T>(init: unsafe extern "C" fn(*mut T, usize) -> i32) -> Result<T> {
    // SAFETY: init writes size_of::<T>() bytes.
    made(|out| unsafe { init(out, size_of::<T>()) })
}

fn report(call: impl FnOnce(*mut otr_step_report) -> i32) -> Result<otr_step_report> {
    // SAFETY: a plain struct of numbers.
    let mut report: otr_step_report = unsafe { MaybeUninit::zeroed().assume_init() };
    report.struct_size = size_of::<otr_step_report>() as u32;
    check(call(&mut report))?;
    Ok(report)
}

// SAFETY of all calls below: handles are live, tensors and texts outlive the call, lengths are those of the slices.
impl Context {
    pub fn new() -> Result<Self> {
        made(|out| unsafe { otr_context_create(ptr::null(), out) }).map(Self)
    }
}

impl Comm {
    pub fn from_env(context: &Context) -> Result<Self> {
        made(|out| unsafe { otr_comm_from_env(context.0, ptr::null(), out) }).map(Self)
    }
    pub fn rank(&self) -> Result<i32> {
        made(|out| unsafe { otr_comm_rank(self.0, out) })
    }
    pub fn size(&self) -> Result<i32> {
        made(|out| unsafe { otr_comm_size(self.0, out) })
    }
    pub fn barrier(&self) -> Result<()> {
        check(unsafe { otr_comm_barrier(self.0) })
    }
    pub fn broadcast(&self, data: &mut [u8], root: i32) -> Result<()> {
        check(unsafe { otr_comm_broadcast(self.0, data.as_mut_ptr().cast(), data.len(), root) })
    }
    pub fn all_gather(&self, mine: &[u8]) -> Result<Vec<u8>> {
        let mut all = vec![0; mine.len() * self.size()? as usize];
        check(unsafe {
            otr_comm_all_gather(
                self.0,
                mine.as_ptr().cast(),
                mine.len(),
                all.as_mut_ptr().cast(),
            )
        })?;
        Ok(all)
    }
    pub fn all_reduce_sum(&self, values: &mut [f64]) -> Result<()> {
        check(unsafe { otr_comm_all_reduce_sum(self.0, values.as_mut_ptr(), values.len()) })
    }
}

impl Engine {
    pub fn new(comm: &Comm, config: &str) -> Result<Self> {
        let config = text(config);
        made(|out| unsafe { otr_engine_create(comm.0, config.as_ptr(), out) }).map(Self)
    }
    pub fn add_parameter(
        &self,
        name: &str,
        initial: Option<&Tensor>,
        options: &otr_param_options,
    ) -> Result<i64> {
        let (name, initial) = (
            text(name),
            initial.map_or(ptr::null(), |t| &t.raw as *const _),
        );
        made(|out| unsafe {
            otr_engine_add_parameter(self.0, name.as_ptr(), initial, options, out)
        })
    }
    pub fn commit(&self) -> Result<()> {
        check(unsafe { otr_engine_commit(self.0) })
    }
    pub fn finalize(&self) -> Result<()> {
        check(unsafe { otr_engine_finalize(self.0) })
    }
    pub fn live_children(&self) -> Result<i64> {
        made(|out| unsafe { otr_engine_live_children(self.0, out) })
    }
    pub fn parameter_id(&self, name: &str) -> Result<i64> {
        let name = text(name);
        made(|out| unsafe { otr_engine_parameter_id(self.0, name.as_ptr(), out) })
    }
    pub fn parameter_name(&self, id: i64) -> Result<String> {
        made(|out| unsafe { otr_engine_parameter_name(self.0, id, out) })
            .map(|name| unsafe { string(name) })
    }
    pub fn parameter_shape(&self, id: i64) -> Result<Vec<i64>> {
        let (mut ndim, mut shape) = (0, ptr::null());
        check(unsafe { otr_engine_parameter_shape(self.0, id, &mut ndim, &mut shape) })?;
        Ok(unsafe { slice(shape, ndim as usize) }.to_vec())
    }
    /// First values, one for each id, between commit and the first pass.
    pub fn set_initial(&self, ids: &[i64], values: &[Tensor]) -> Result<()> {
        assert_eq!(ids.len(), values.len(), "one value for each id");
        let raw: Vec<otr_tensor> = values.iter().map(|t| t.raw).collect();
        check(unsafe {
            otr_engine_set_initial(self.0, ids.as_ptr(), ids.len() as i64, raw.as_ptr())
        })
    }
    pub fn prefetch(&self, ids: &[i64], info: &otr_call_info) -> Result<()> {
        check(unsafe { otr_engine_prefetch(self.0, ids.as_ptr(), ids.len() as i64, info) })
    }
    /// The tensors borrow the engine: no step while one of them lives.
    pub fn acquire(&self, ids: &[i64], info: &otr_call_info) -> Result<Vec<Tensor<'_>>> {
        let mut tensors = Vec::<otr_tensor>::with_capacity(ids.len());
        check(unsafe {
            otr_engine_acquire(
                self.0,
                ids.as_ptr(),
                ids.len() as i64,
                info,
                tensors.as_mut_ptr(),
            )
        })?;
        unsafe { tensors.set_len(ids.len()) };
        Ok(tensors.into_iter().map(Tensor::from_raw).collect())
    }
    pub fn release(&self, ids: &[i64], info: &otr_call_info) -> Result<()> {
        check(unsafe { otr_engine_release(self.0, ids.as_ptr(), ids.len() as i64, info) })
    }
    pub fn read(&self, id: i64, value: i32, out: &mut Tensor) -> Result<()> {
        check(unsafe { otr_engine_parameter_read(self.0, id, value, &out.raw) })
    }
    pub fn set_group_value(&self, name: &str, value: f64) -> Result<()> {
        let name = text(name);
        check(unsafe { otr_engine_set_group_value(self.0, ptr::null(), name.as_ptr(), value) })
    }
    /// The ledger: purpose and resident bytes.
    pub fn memory(&self) -> Result<Vec<(String, i64)>> {
        let mut count = 0;
        check(unsafe { otr_engine_memory(self.0, ptr::null_mut(), &mut count) })?;
        let struct_size = size_of::<otr_memory_entry>() as u32;
        let empty = otr_memory_entry {
            struct_size,
            device_type: 0,
            purpose: ptr::null(),
            resident_bytes: 0,
            peak_bytes: 0,
        };
        let mut entries = vec![empty; count];
        check(unsafe { otr_engine_memory(self.0, entries.as_mut_ptr(), &mut count) })?;
        Ok(entries
            .iter()
            .map(|e| (unsafe { string(e.purpose) }, e.resident_bytes))
            .collect())
    }
    pub fn begin_pass(&self, output_grads: &[Tensor]) -> Result<Pass> {
        self.begin_tagged_pass(output_grads, &options(otr_call_info_init)?)
    }
    /// The gradients carry what `tag` says: they come from another engine's pass.
    pub fn begin_tagged_pass(&self, output_grads: &[Tensor], tag: &otr_call_info) -> Result<Pass> {
        let raw: Vec<otr_tensor> = output_grads.iter().map(|t| t.raw).collect();
        made(|out| unsafe { otr_pass_begin(self.0, raw.as_ptr(), raw.len() as i64, tag, out) })
            .map(Pass)
    }
    pub fn step(&mut self) -> Result<otr_step_report> {
        report(|out| unsafe { otr_engine_step(self.0, out) })
    }
    pub fn step_begin(&mut self) -> Result<()> {
        check(unsafe { otr_engine_step_begin(self.0) })
    }
    pub fn report(&mut self, timeout_seconds: f64) -> Result<otr_step_report> {
        report(|out| unsafe { otr_engine_report(self.0, timeout_seconds, out) })
    }
}

/// One step of all engines, or of none.
pub fn step_many(engines: &mut [Engine]) -> Result<Vec<otr_step_report>> {
    let raw: Vec<*mut otr_engine> = engines.iter().map(|engine| engine.0).collect();
    // SAFETY: a plain struct of numbers.
    let mut empty: otr_step_report = unsafe { MaybeUninit::zeroed().assume_init() };
    empty.struct_size = size_of::<otr_step_report>() as u32;
    let mut reports = vec![empty; raw.len()];
    check(unsafe {
        otr_step_many(
            raw.as_ptr(),
            raw.len() as i64,
            ptr::null_mut(),
            reports.as_mut_ptr(),
        )
    })?;
    Ok(reports)
}

impl Pass {
    pub fn tag(&self) -> Result<otr_call_info> {
        let mut info = options(otr_call_info_init)?;
        check(unsafe { otr_pass_get_tag(self.0, &mut info) })?;
        Ok(info)
    }
    pub fn unscale(&self, grad: &Tensor, out: &mut Tensor) -> Result<()> {
        check(unsafe { otr_pass_unscale(self.0, &grad.raw, &out.raw) })
    }
    pub fn scale(&self) -> Result<f64> {
        made(|out| unsafe { otr_pass_get_scale(self.0, out) })
    }
    pub fn output_grad(&self, index: i64) -> Result<Tensor<'_>> {
        let raw = made(|out| unsafe { otr_pass_get_output_grad(self.0, index, out) })?;
        Ok(Tensor::from_raw(raw))
    }
    pub fn slot(&self, id: i64) -> Result<Tensor<'_>> {
        let raw = made(|out| unsafe { otr_pass_get_slot(self.0, id, out) })?;
        Ok(Tensor::from_raw(raw))
    }
    pub fn add_grad(&self, id: i64, grad: &Tensor) -> Result<()> {
        check(unsafe { otr_pass_add_grad(self.0, id, &grad.raw, ptr::null()) })
    }
    pub fn end(self) -> Result<()> {
        check(unsafe { otr_pass_end(self.0) })
    }
}

/// What a shard may have beside weights and gradients.
#[derive(Default)]
pub struct ShardOptions<'a> {
    pub published: Option<&'a Tensor<'a>>,
    /// u16 beside bfloat16 weights: together a float32, a split master.
    pub remainder: Option<&'a Tensor<'a>>,
    /// For Muon: how many rows the matrix has; 0: it is none.
    pub rows: i64,
}

impl Shard {
    /// The caller keeps the memory alive and leaves it to the shard: see `outrigger.h`.
    pub fn wrap(
        context: &Context,
        weights: &Tensor,
        grads: &Tensor,
        asked: &ShardOptions,
    ) -> Result<Self> {
        let raw = |tensor: Option<&Tensor>| tensor.map_or(ptr::null(), |t| &t.raw as *const _);
        let mut wanted = options(otr_shard_options_init)?;
        wanted.published = raw(asked.published);
        wanted.remainder = raw(asked.remainder);
        wanted.rows = asked.rows;
        made(|out| unsafe { otr_shard_wrap(context.0, &weights.raw, &grads.raw, &wanted, out) })
            .map(Self)
    }
    pub fn state(&self, value: i32) -> Result<Tensor<'_>> {
        let raw = made(|out| unsafe { otr_shard_state(self.0, value, out) })?;
        Ok(Tensor::from_raw(raw))
    }
    pub fn state_bytes(&self) -> Result<i64> {
        made(|out| unsafe { otr_shard_state_bytes(self.0, out) })
    }
}

impl Optimizer {
    pub fn new(context: &Context, config: &str) -> Result<Self> {
        let config = text(config);
        made(|out| unsafe { otr_optimizer_create(context.0, config.as_ptr(), out) }).map(Self)
    }
    pub fn set_value(&self, name: &str, value: f64) -> Result<()> {
        let name = text(name);
        check(unsafe { otr_optimizer_set_value(self.0, name.as_ptr(), value) })
    }
    pub fn step(&self, shards: &[&Shard]) -> Result<otr_step_report> {
        let raw: Vec<*mut otr_shard> = shards.iter().map(|shard| shard.0).collect();
        report(|out| unsafe { otr_optimizer_step(self.0, raw.as_ptr(), raw.len() as i64, out) })
    }
}
