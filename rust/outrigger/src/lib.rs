// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ZeRO sharding, CPU offload and low-precision optimizer states for any training framework.
//!
//! A framework keeps its tensors and its autograd. An [`Engine`] keeps the parameters, sums their gradients over ranks, and makes the
//! step, with master weights and states as narrow as the configuration says, split over the ranks.
//!
//! ```
//! use outrigger::{Comm, Context, Plan, Tensor};
//!
//! fn main() -> outrigger::Result<()> {
//!     let context = Context::new()?;
//!     let comm = Comm::from_env(&context)?; // one rank, or those of `outrigger run -n 2 -- …`
//!     let mut plan = Plan::new(&comm, r#"{"optimizer": {"type": "SGD", "params": {"lr": 0.1}},
//!                                         "zero_optimization": {"stage": 2}}"#)?;
//!     let w = plan.parameter("w", &Tensor::new(&[1.0_f32, 2.0, 3.0], &[3])?)?;
//!     let mut engine = plan.commit()?;
//!     for _ in 0..10 {
//!         // Forward: y = w · w / 2, a vector. Its gradient comes from anywhere: another model, another process.
//!         let y_grad = [1.0_f32, -1.0, 0.5];
//!         let pass = engine.pass(&[Tensor::new(&y_grad, &[3])?])?;
//!         let weights = engine.acquire(&[w])?;
//!         let scaled = pass.output_grad::<f32>(0)?; // by loss scale and accumulation
//!         let grad: Vec<f32> = scaled.iter().zip(weights.get::<f32>(0)?).map(|(g, w)| g * w).collect();
//!         pass.add_grad(w, &Tensor::new(&grad, &[3])?)?;
//!         pass.end()?;
//!         drop(weights); // a step with acquired weights at hand does not compile
//!         let report = engine.step()?;
//!         assert!(report.grad_norm > 0.0);
//!     }
//!     engine.finalize()
//! }
//! ```
//!
//! # What the compiler sees
//!
//! Weights that are acquired, and a pass that is open, borrow the engine; a step takes it exclusively:
//!
//! ```compile_fail,E0502
//! # fn f(engine: &mut outrigger::Engine, w: outrigger::ParameterId) -> outrigger::Result<()> {
//! let weights = engine.acquire(&[w])?;
//! engine.step()?;
//! println!("{}", weights.get::<f32>(0)?[0]); // stale
//! # Ok(()) }
//! ```
//!
//! ```compile_fail,E0502
//! # fn f(engine: &mut outrigger::Engine) -> outrigger::Result<()> {
//! let pass = engine.pass(&[])?;
//! engine.step()?; // the pass is open
//! pass.end()?;
//! # Ok(()) }
//! ```
//!
//! A slot borrows its pass, and is gone when it is handed back:
//!
//! ```compile_fail,E0382
//! # fn f(pass: &outrigger::Pass, w: outrigger::ParameterId) -> outrigger::Result<()> {
//! let mut slot = pass.slot(w)?;
//! slot.add()?;
//! slot.get_mut::<f32>()?[0] = 1.0; // that memory is another gradient's now
//! # Ok(()) }
//! ```
//!
//! ```compile_fail,E0505
//! # fn f(pass: outrigger::Pass, w: outrigger::ParameterId) -> outrigger::Result<()> {
//! let slot = pass.slot(w)?;
//! pass.end()?;
//! slot.add()?;
//! # Ok(()) }
//! ```
//!
//! What has not been committed has no step, and what has takes no more parameters:
//!
//! ```compile_fail,E0599
//! # fn f(mut plan: outrigger::Plan) -> outrigger::Result<()> {
//! plan.step()?;
//! # Ok(()) }
//! ```
//!
//! An engine is used by one thread at a time:
//!
//! ```compile_fail,E0277
//! # fn f(engine: &outrigger::Engine) {
//! std::thread::scope(|scope| {
//!     scope.spawn(|| engine.acquire(&[]).map(|_| ()));
//! });
//! # }
//! ```
//!
//! # Threads
//!
//! An [`Engine`] and a [`Comm`] may go to another thread, and are used by one at a time. A [`Pass`] takes gradients from any number of
//! threads. [`Engine::remote`] gives what may be called beside everything else.
//!
//! # Errors and panics
//!
//! Each call says what was wrong, which rule it broke, and the way out ([`Error`]). A panic in a callback ([`ContextBuilder::log`],
//! [`ContextBuilder::interrupt`], [`Engine::on_record`]) does not cross the library: the call that it happened in resumes it.
#![warn(missing_docs)]

mod acquired;
mod channel;
mod checkpoint;
mod comm;
pub mod config;
mod context;
mod engine;
mod error;
#[rustfmt::skip]
mod generated;
mod message;
mod optimizer;
mod panics;
mod parameters;
mod pass;
mod plan;
mod raw;
mod reduced;
mod report;
mod snapshot;
mod tensor;

pub use acquired::Acquired;
pub use channel::Channel;
pub use checkpoint::{Checkpoint, Load, Save, SaveStatus};
pub use comm::{Comm, CommOptions};
pub use context::{Context, ContextBuilder, Level};
pub use engine::{step_many, Engine, MemoryEntry, ParameterId, Remote};
pub use generated::{Boundary, Error, Outcome, SaveState, Skip, Value};
pub use message::{routes, Message, MessageOptions, Packed, Route};
pub use optimizer::{Optimizer, Shard, ShardOptions};
pub use outrigger_sys as sys;
pub use pass::{Pass, PassOptions, Slot, Tag};
pub use plan::{ParameterOptions, Plan};
pub use reduced::Reduced;
pub use report::Report;
pub use snapshot::{Snapshot, SnapshotInfo};
pub use tensor::{Element, Tensor, TensorMut};

/// What a call gives, or why it failed.
pub type Result<T> = core::result::Result<T, Error>;

/// Loads the library from this file; `None`: from the one that `OUTRIGGER_LIBRARY` names, else where the system's loader looks. Once one is
/// loaded, this does nothing; without this call the first one of any function loads it so.
/// [`Error::System`] says which file cannot be loaded, and why.
#[cfg(feature = "dlopen")]
pub fn load(file: Option<&std::path::Path>) -> Result<()> {
    sys::load(file).map_err(Error::System)
}

/// The library's version, such as "0.1.0".
pub fn version() -> String {
    // SAFETY: a static text.
    unsafe { raw::string(sys::otr_version()) }
}

/// What the library was built with.
pub fn build_info() -> String {
    // SAFETY: a static text.
    unsafe { raw::string(sys::otr_build_info()) }
}

/// A configuration in effect, with the origin of each value, for this many ranks; nothing is created. JSON.
pub fn check_config(config: &str, world_size: i32) -> Result<String> {
    let config = raw::text(config)?;
    // SAFETY: the text and the buffer outlive the call.
    raw::json(|buffer, size| unsafe {
        sys::otr_config_check(config.as_ptr(), world_size, buffer, size)
    })
}
