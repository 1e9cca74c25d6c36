// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Update rules without an engine.
use crate::checkpoint::Parts;
use crate::raw::{check, made, optional, options, path, pointer, text};
use crate::tensor::values_of;
use crate::{Context, Element, Load, Report, Result, Save, Snapshot, Tensor, TensorMut, Value};
use core::marker::PhantomData;
use core::ptr;
use outrigger_sys::*;
use std::cell::Cell;
use std::path::Path;

/// A flat piece of weights, which it borrows, with its optimizer states, which it owns.
pub struct Shard<'m> {
    raw: *mut otr_shard,
    weights: PhantomData<&'m mut ()>,
    _context: Context,
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: a handle works on any thread, on one at a time, and the weights are Send.
unsafe impl Send for Shard<'_> {}

impl Drop for Shard<'_> {
    fn drop(&mut self) {
        // SAFETY: given back once.
        unsafe { otr_shard_destroy(self.raw) }
    }
}

/// What a shard may have beside its weights.
#[derive(Default)]
pub struct ShardOptions<'m> {
    /// Names the random stream of stochastic rounding; default "shard".
    pub name: Option<String>,
    /// Index of the first element in the whole parameter.
    pub first_element: i64,
    /// bfloat16 or float16: receives the updated float32 weights.
    pub published: Option<TensorMut<'m>>,
    /// u16 beside bfloat16 weights: together exactly a float32.
    pub remainder: Option<TensorMut<'m>>,
    /// For Muon: how many rows the matrix has; 0: it is none.
    pub rows: i64,
}

// SAFETY of the calls below: handles live, what a shard uses until its end is borrowed for 'm, the rest outlives the calls.
impl<'m> Shard<'m> {
    /// Over these weights.
    pub fn new<T: Element>(context: &Context, weights: &'m mut [T]) -> Result<Self> {
        Self::with(context, weights, ShardOptions::default())
    }

    /// With more beside them.
    pub fn with<T: Element>(
        context: &Context,
        weights: &'m mut [T],
        mut asked: ShardOptions<'m>,
    ) -> Result<Self> {
        let count = weights.len();
        let mut view = TensorMut::new(weights, &[count])?;
        let weights = view.raw();
        let name = crate::raw::optional(asked.name.as_deref())?;
        let published = asked.published.as_mut().map(TensorMut::raw);
        let remainder = asked.remainder.as_mut().map(TensorMut::raw);
        let tensor = |kept: &Option<otr_tensor>| kept.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mut wanted = options(otr_shard_options_init)?;
        if name.is_some() {
            wanted.name = pointer(&name);
        }
        wanted.first_element = asked.first_element;
        wanted.published = tensor(&published);
        wanted.remainder = tensor(&remainder);
        wanted.rows = asked.rows;
        let raw = made(|out| unsafe {
            otr_shard_wrap(context.raw(), &weights, ptr::null(), &wanted, out)
        })?;
        Ok(Self {
            raw,
            weights: PhantomData,
            _context: context.clone(),
            one_thread: PhantomData,
        })
    }

    /// A value as it is stored: [`Value::ExpAvg`] or [`Value::ExpAvgSq`]. After the first step.
    pub fn state<T: Element>(&self, value: Value) -> Result<&[T]> {
        let tensor = made(|out| unsafe { otr_shard_state(self.raw, value as i32, out) })?;
        unsafe { values_of(&tensor) }
    }

    /// Copies a value out, of any float dtype: [`Value::Master`], [`Value::ExpAvg`] or [`Value::ExpAvgSq`].
    pub fn read<T: Element>(&self, value: Value, out: &mut [T]) -> Result<()> {
        let count = out.len();
        let mut view = TensorMut::new(out, &[count])?;
        let out = view.raw();
        check(unsafe { otr_shard_read(self.raw, value as i32, &out) })
    }

    /// Copies a value in, rounded to nearest.
    pub fn write<T: Element>(&mut self, value: Value, source: &[T]) -> Result<()> {
        let source = Tensor::new(source, &[source.len()])?;
        let source = source.raw();
        check(unsafe { otr_shard_write(self.raw, value as i32, &source) })
    }

    /// How many updates it has had.
    pub fn updates(&self) -> Result<i64> {
        made(|out| unsafe { otr_shard_get_step(self.raw, out) })
    }

    /// Set when a checkpoint is loaded.
    pub fn set_updates(&mut self, updates: i64) -> Result<()> {
        check(unsafe { otr_shard_set_step(self.raw, updates) })
    }

    /// Bytes of states that it owns.
    pub fn state_bytes(&self) -> Result<i64> {
        made(|out| unsafe { otr_shard_state_bytes(self.raw, out) })
    }
}

/// An update rule with its hyperparameters.
pub struct Optimizer {
    raw: *mut otr_optimizer,
    _context: Context,
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: a handle works on any thread, on one at a time.
unsafe impl Send for Optimizer {}

impl Drop for Optimizer {
    fn drop(&mut self) {
        // SAFETY: given back once.
        unsafe { otr_optimizer_destroy(self.raw) }
    }
}

impl Optimizer {
    /// `config`: `{"type": "AdamW", "params": {"lr": 1e-3}, "states": {…}}`.
    pub fn new(context: &Context, config: &str) -> Result<Self> {
        let config = text(config)?;
        let raw = made(|out| unsafe { otr_optimizer_create(context.raw(), config.as_ptr(), out) })?;
        Ok(Self {
            raw,
            _context: context.clone(),
            one_thread: PhantomData,
        })
    }

    /// "lr", "weight_decay", "beta1" …, and "gradient_factor".
    pub fn set_value(&mut self, name: &str, value: f64) -> Result<()> {
        let name = text(name)?;
        check(unsafe { otr_optimizer_set_value(self.raw, name.as_ptr(), value) })
    }

    /// One update of shards, each with its gradient: norm and Inf/NaN check over all, clip, update. A skip changes nothing.
    pub fn step(&mut self, shards: &mut [(&mut Shard, Tensor)]) -> Result<Report> {
        let given = Given::new(shards)?;
        Report::of(|out| unsafe {
            otr_optimizer_step(self.raw, given.raw.as_ptr(), given.raw.len() as i64, out)
        })
    }

    /// The norm that a step over these shards would report.
    pub fn norm(&mut self, shards: &mut [(&mut Shard, Tensor)]) -> Result<f64> {
        let given = Given::new(shards)?;
        made(|out| unsafe {
            otr_optimizer_norm(self.raw, given.raw.as_ptr(), given.raw.len() as i64, out)
        })
    }

    /// Gives shards their states, zero, as the first step would: to load a checkpoint into them.
    pub fn prepare(&mut self, shards: &mut [&mut Shard]) -> Result<()> {
        let raw = raw_of(shards);
        check(unsafe { otr_optimizer_prepare(self.raw, raw.as_ptr(), raw.len() as i64) })
    }

    /// Saves shards as the checkpoint `directory/tag` of this process, each as a parameter of its name: weights and moments as stored, updates
    /// and hyperparameters, but no "gradient_factor". The directory exists. [`Error::Unsupported`](crate::Error::Unsupported): asynchronous, or
    /// states of different formats.
    pub fn save(
        &mut self,
        shards: &mut [&mut Shard],
        directory: impl AsRef<Path>,
        tag: &str,
        asked: &Save,
    ) -> Result<()> {
        let (directory, tag) = (path(directory.as_ref())?, text(tag)?);
        let parts = Parts::new(asked.parts)?;
        let wanted = asked.raw(&parts)?;
        let raw = raw_of(shards);
        check(unsafe {
            let count = raw.len() as i64;
            let (folder, tag) = (directory.as_ptr(), tag.as_ptr());
            otr_optimizer_save(self.raw, raw.as_ptr(), count, folder, tag, &wanted)
        })
    }

    /// Shards go on from a checkpoint, by their names: a shard's, an engine's or an imported one; `None`: the last one. Of [`Load`] `weights_only`
    /// and `strict` count.
    pub fn load(
        &mut self,
        shards: &mut [&mut Shard],
        directory: impl AsRef<Path>,
        tag: Option<&str>,
        asked: &Load,
    ) -> Result<()> {
        let (directory, tag) = (path(directory.as_ref())?, optional(tag)?);
        let raw = raw_of(shards);
        asked.with(|wanted| {
            check(unsafe {
                let count = raw.len() as i64;
                let (folder, tag) = (directory.as_ptr(), pointer(&tag));
                otr_optimizer_load(self.raw, raw.as_ptr(), count, folder, tag, wanted)
            })
        })
    }

    /// The same as a save, into memory.
    pub fn snapshot(
        &mut self,
        shards: &mut [&mut Shard],
        snapshot: &mut Snapshot,
        parts: &[(&str, &[u8])],
    ) -> Result<()> {
        let parts = Parts::new(parts)?;
        let mut wanted = options(otr_snapshot_options_init)?;
        (wanted.parts, wanted.part_count) = parts.array();
        let raw = raw_of(shards);
        check(unsafe {
            let count = raw.len() as i64;
            otr_optimizer_snapshot(self.raw, raw.as_ptr(), count, snapshot.raw, &wanted)
        })
    }

    /// Back to a snapshot of these shards, or of others of their names, formats and counts.
    pub fn restore(&mut self, shards: &mut [&mut Shard], snapshot: &Snapshot) -> Result<()> {
        let raw = raw_of(shards);
        check(unsafe {
            otr_optimizer_restore(self.raw, raw.as_ptr(), raw.len() as i64, snapshot.raw)
        })
    }
}

fn raw_of(shards: &[&mut Shard]) -> Vec<*mut otr_shard> {
    shards.iter().map(|shard| shard.raw).collect()
}

/// Shards that have their gradients for one call.
struct Given {
    raw: Vec<*mut otr_shard>,
}

impl Given {
    fn new(shards: &mut [(&mut Shard, Tensor)]) -> Result<Self> {
        let mut given = Self {
            raw: Vec::with_capacity(shards.len()),
        };
        for (shard, grad) in shards {
            let grad = grad.raw();
            check(unsafe { otr_shard_set_grads(shard.raw, &grad) })?;
            given.raw.push(shard.raw);
        }
        Ok(given)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        for &shard in &self.raw {
            // SAFETY: the shards are borrowed until after the call. Without gradients none is left that points to them.
            unsafe { otr_shard_set_grads(shard, ptr::null()) };
        }
    }
}
