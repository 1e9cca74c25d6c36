// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The training state of one model on this rank.
use crate::raw::{check, json, made, optional, options, path, pointer, sized, string, text};
use crate::{panics, Boundary, Comm, Context, Pass, PassOptions, Reduced, Report, Result, Tensor};
use core::ffi::{c_char, c_void, CStr};
use core::marker::PhantomData;
use core::ptr;
use outrigger_sys::*;
use std::cell::Cell;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// A parameter, as its [`Plan`](crate::Plan) has numbered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParameterId(pub(crate) i64);

impl ParameterId {
    /// Its number: from 0, in the order of the declarations.
    pub fn index(self) -> i64 {
        self.0
    }
    pub(crate) fn raw(ids: &[Self]) -> Vec<i64> {
        ids.iter().map(|id| id.0).collect()
    }
}

/// The C handle, given back once, and what has to outlive it.
pub(crate) struct Handle {
    shared: Arc<Shared>,
    context: Context,
}

/// What a [`Remote`] reaches, as long as the engine is there.
struct Shared(RwLock<*mut otr_engine>);

// SAFETY: a Remote makes calls that are marked "any thread", under the lock; the engine alone makes the others.
unsafe impl Send for Shared {}
unsafe impl Sync for Shared {}

impl Shared {
    /// Once the engine is gone nothing is called, and nothing is wrong.
    fn with(&self, call: impl FnOnce(*mut otr_engine) -> i32) -> Result<()> {
        let engine = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if engine.is_null() {
            return Ok(());
        }
        check(call(*engine))
    }
}

impl Handle {
    pub(crate) fn new(raw: *mut otr_engine, context: &Context) -> Self {
        Self {
            shared: Arc::new(Shared(RwLock::new(raw))),
            context: context.clone(),
        }
    }
    /// Not null: only drop takes it away.
    pub(crate) fn raw(&self) -> *mut otr_engine {
        *self.shared.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut engine = self
            .shared
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // SAFETY: nobody is in a call of it, and nobody finds it from here on. The context comes last: callbacks live that long.
        unsafe { otr_engine_destroy(core::mem::replace(&mut *engine, ptr::null_mut())) }
    }
}

type OnRecord = Box<dyn FnMut(&str) + Send>;

/// Callbacks that the library has the addresses of.
struct Records(Vec<*mut OnRecord>);

impl Drop for Records {
    fn drop(&mut self) {
        for &callback in &self.0 {
            // SAFETY: it comes from a box, and the engine is gone.
            drop(unsafe { Box::from_raw(callback) });
        }
    }
}

/// One model's parameters, gradients, master weights and optimizer states on this rank. It may go to another thread; one uses it at a time.
pub struct Engine {
    raw: *mut otr_engine,
    handle: Handle,
    pub(crate) reduced: Cell<bool>,
    records: Records, // dropped after the engine
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: a handle works on any thread, on one at a time; the callbacks are Send.
unsafe impl Send for Engine {}

impl Drop for Engine {
    fn drop(&mut self) {
        // An engine that a panic takes away must not keep the others waiting for it.
        if std::thread::panicking() {
            // SAFETY: the handle lives until after this.
            unsafe {
                otr_engine_abort(
                    self.raw,
                    c"the thread of this rank's engine has panicked".as_ptr(),
                )
            };
        }
    }
}

/// What one purpose takes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryEntry {
    /// "master weights", "published parameters" … and "total".
    pub purpose: String,
    /// Whose memory: 1 is the CPU's; [`sys`](crate::sys) has the others.
    pub device_type: i32,
    /// Bytes now.
    pub resident_bytes: i64,
    /// The most there was.
    pub peak_bytes: i64,
}

// SAFETY of the calls below: handles live, tensors, ids and texts outlive the calls, lengths are those of the slices.
impl Engine {
    pub(crate) fn committed(handle: Handle) -> Self {
        Self {
            raw: handle.raw(),
            handle,
            reduced: Cell::new(false),
            records: Records(Vec::new()),
            one_thread: PhantomData,
        }
    }

    /// What may be called beside everything else, from any thread: to abort, to check, to note.
    pub fn remote(&self) -> Remote {
        Remote {
            shared: self.handle.shared.clone(),
            _context: self.handle.context.clone(),
        }
    }

    // ---- Hyperparameters, configuration, memory ----

    /// A hyperparameter ("lr", "weight_decay", "beta1" …) of a group, or of all, from the next step on. Every rank sets the same.
    pub fn set_value(&mut self, group: Option<&str>, name: &str, value: f64) -> Result<()> {
        let (group, name) = (optional(group)?, text(name)?);
        check(unsafe {
            otr_engine_set_group_value(self.raw, pointer(&group), name.as_ptr(), value)
        })
    }

    /// A hyperparameter of a group; `None`: of the group "default".
    pub fn value(&self, group: Option<&str>, name: &str) -> Result<f64> {
        let (group, name) = (optional(group)?, text(name)?);
        made(|out| unsafe {
            otr_engine_get_group_value(self.raw, pointer(&group), name.as_ptr(), out)
        })
    }

    /// The configuration in effect, with the origin of each value. JSON.
    pub fn config(&self) -> Result<String> {
        json(|buffer, size| unsafe { otr_engine_config(self.raw, buffer, size) })
    }

    /// The ledger: an entry for each purpose, then "total".
    pub fn memory(&self) -> Result<Vec<MemoryEntry>> {
        let mut count = 0;
        check(unsafe { otr_engine_memory(self.raw, ptr::null_mut(), &mut count) })?;
        let mut entries = vec![sized!(otr_memory_entry); count];
        check(unsafe { otr_engine_memory(self.raw, entries.as_mut_ptr(), &mut count) })?;
        Ok(entries
            .iter()
            .map(|entry| MemoryEntry {
                purpose: unsafe { string(entry.purpose) },
                device_type: entry.device_type,
                resident_bytes: entry.resident_bytes,
                peak_bytes: entry.peak_bytes,
            })
            .collect())
    }

    // ---- Passes and steps ----

    /// Begins a pass: the gradients of the outputs, any tensors, are copied and scaled.
    pub fn pass(&self, output_grads: &[Tensor]) -> Result<Pass<'_>> {
        self.pass_with(output_grads, &PassOptions::default())
    }

    /// The same for gradients that come from another engine, or in their own dtype.
    pub fn pass_with(&self, output_grads: &[Tensor], asked: &PassOptions) -> Result<Pass<'_>> {
        Pass::begin(self, output_grads, asked)
    }

    /// A whole pass around the host's backward; if that fails or panics, the pass is given up, and the window with it.
    pub fn backward<E: From<crate::Error>>(
        &self,
        output_grads: &[Tensor],
        backward: impl FnOnce(&Pass) -> core::result::Result<(), E>,
    ) -> core::result::Result<(), E> {
        let pass = self.pass(output_grads)?;
        backward(&pass)?;
        Ok(pass.end()?)
    }

    /// Ends a micro-batch, and the last one of a window makes the step. A skip is a success. Collective.
    pub fn step(&mut self) -> Result<Report> {
        let report = Report::of(|out| unsafe { otr_engine_step(self.raw, out) })?;
        self.reduced.set(false);
        Ok(report)
    }

    /// The same on a thread of the library: [`Engine::report`] has the outcome. Until then parameters can be acquired, each once the step has
    /// updated it; most other calls are errors.
    pub fn step_begin(&mut self) -> Result<()> {
        check(unsafe { otr_engine_step_begin(self.raw) })?;
        self.reduced.set(false);
        Ok(())
    }

    /// The outcome of the step that was begun; `None`: it is not over in this time. Without a time it waits.
    pub fn report(&mut self, timeout: Option<Duration>) -> Result<Option<Report>> {
        let seconds = timeout.map_or(-1.0, |time| time.as_secs_f64());
        let report = Report::of(|out| unsafe { otr_engine_report(self.raw, seconds, out) })?;
        Ok((report.outcome != crate::Outcome::Pending).then_some(report))
    }

    /// The first half of the step: gradients are summed, and can be read, replaced or used by an update of the host's. Collective.
    pub fn reduce(&mut self) -> Result<Reduced<'_>> {
        let report = Report::of(|out| unsafe { otr_engine_reduce(self.raw, out) })?;
        self.reduced.set(true);
        Ok(Reduced::new(self, report))
    }

    /// Drops the window's gradients; weights, states and counters stay. Collective.
    pub fn discard(&mut self) -> Result<()> {
        check(unsafe { otr_engine_discard(self.raw) })?;
        self.reduced.set(false);
        Ok(())
    }

    /// Who ends windows, from the next step on. Every rank makes the same call.
    pub fn set_boundary(&mut self, boundary: Boundary) -> Result<()> {
        check(unsafe { otr_engine_set_boundary(self.raw, boundary as i32) })
    }

    /// Whether the next step ends the window.
    pub fn is_boundary(&self) -> Result<bool> {
        made(|out| unsafe { otr_engine_get_boundary(self.raw, out) }).map(|ends: i32| ends != 0)
    }

    /// The loss scale of this window's passes.
    pub fn loss_scale(&self) -> Result<f64> {
        made(|out| unsafe { otr_engine_get_loss_scale(self.raw, out) })
    }

    /// All that a run is besides tensors. JSON.
    pub fn progress(&self) -> Result<String> {
        json(|buffer, size| unsafe { otr_engine_get_progress(self.raw, buffer, size) })
    }

    /// Goes on from a [`Engine::progress`]. Collective.
    pub fn set_progress(&mut self, progress: &str) -> Result<()> {
        let progress = text(progress)?;
        check(unsafe { otr_engine_set_progress(self.raw, progress.as_ptr()) })
    }

    // ---- Watching ----

    /// Records of this rank's steps as JSON lines, and a trace, in these folders.
    pub fn watch(
        &mut self,
        name: Option<&str>,
        records: Option<&Path>,
        trace: Option<&Path>,
    ) -> Result<()> {
        let folder = |given: Option<&Path>| given.map(path).transpose();
        let (name, records, trace) = (optional(name)?, folder(records)?, folder(trace)?);
        let mut wanted = options(otr_watch_options_init)?;
        wanted.name = pointer(&name);
        wanted.records = pointer(&records);
        wanted.trace = pointer(&trace);
        check(unsafe { otr_engine_watch(self.raw, &wanted) })
    }

    /// Gives the record of each step (JSON) to `callback`, in the call that made the step.
    pub fn on_record(&mut self, callback: impl FnMut(&str) + Send + 'static) -> Result<()> {
        let mut wanted = options(otr_watch_options_init)?;
        let callback: *mut OnRecord = Box::into_raw(Box::new(Box::new(callback)));
        self.records.0.push(callback); // stays until the end, whether the library takes it or not
        wanted.callback = Some(give_record);
        wanted.user_data = callback.cast();
        check(unsafe { otr_engine_watch(self.raw, &wanted) })
    }

    /// Gives the next record a number of the host's, such as "loss".
    pub fn note(&self, name: &str, value: f64) -> Result<()> {
        let name = text(name)?;
        check(unsafe { otr_engine_note(self.raw, name.as_ptr(), value) })
    }

    // ---- End ----

    /// Waits for background work of all ranks and ends the engine's collectives. Collective.
    pub fn finalize(&mut self) -> Result<()> {
        check(unsafe { otr_engine_finalize(self.raw) })
    }

    /// Passes that are not dropped yet; for tests of leaks.
    pub fn live_passes(&self) -> Result<i64> {
        made(|out| unsafe { otr_engine_live_children(self.raw, out) })
    }

    /// The C handle, for what this crate has not: valid as long as the engine, under the header's rules.
    pub fn as_raw(&self) -> *mut otr_engine {
        self.raw
    }
}

unsafe extern "C" fn give_record(record: *const c_char, user_data: *mut c_void) {
    panics::caught((), || {
        // SAFETY: user_data is a box of the engine, on whose thread this is; the text lives during the call.
        let (callback, record) =
            unsafe { (&mut *user_data.cast::<OnRecord>(), CStr::from_ptr(record)) };
        callback(&record.to_string_lossy());
    });
}

/// One step of several engines, all or none. `joint`: a group of the ranks of all of them, where not every rank has all. Collective.
pub fn step_many(engines: &mut [&mut Engine], joint: Option<&Comm>) -> Result<Vec<Report>> {
    let raw: Vec<*mut otr_engine> = engines.iter().map(|engine| engine.raw).collect();
    let mut reports = vec![sized!(otr_step_report); raw.len()];
    let joint = joint.map_or(ptr::null_mut(), Comm::raw);
    // SAFETY: the engines are borrowed exclusively, and there is a report for each.
    check(unsafe { otr_step_many(raw.as_ptr(), raw.len() as i64, joint, reports.as_mut_ptr()) })?;
    engines.iter().for_each(|engine| engine.reduced.set(false));
    Ok(reports.iter().map(Report::from_raw).collect())
}

/// What may be called beside everything else that an engine does, from any thread. It does not keep the engine.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
    _context: Context,
}

impl Remote {
    /// Tells all ranks that the engine cannot go on. Once the engine is gone there is nobody to tell.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let reason = text(reason)?;
        // SAFETY: the engine lives during the call.
        self.shared
            .with(|engine| unsafe { otr_engine_abort(engine, reason.as_ptr()) })
    }

    /// The first failure of background work or of a collective call.
    pub fn check(&self) -> Result<()> {
        // SAFETY: the engine lives during the call.
        self.shared
            .with(|engine| unsafe { otr_engine_check(engine) })
    }

    /// Gives the next record a number of the host's.
    pub fn note(&self, name: &str, value: f64) -> Result<()> {
        let name = text(name)?;
        // SAFETY: the engine lives during the call.
        self.shared
            .with(|engine| unsafe { otr_engine_note(engine, name.as_ptr(), value) })
    }
}
