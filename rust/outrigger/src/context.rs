// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What would otherwise be global.
use crate::raw::{check, made, options};
use crate::{panics, Result};
use core::ffi::{c_char, c_void, CStr};
use core::ptr;
use outrigger_sys::*;
use std::sync::{Arc, Mutex};

/// How important a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// An engine failed for good.
    Error = OTR_LOG_ERROR as isize,
    /// A configuration that is legal and rarely meant, or a window that is bound to be skipped.
    Warning = OTR_LOG_WARNING as isize,
    /// What an engine is, at commit, and each skipped step with its cause.
    Info = OTR_LOG_INFO as isize,
    /// Each update.
    Debug = OTR_LOG_DEBUG as isize,
}

type Log = Box<dyn FnMut(Level, &str) + Send>;
type Interrupt = Box<dyn Fn() -> bool + Send + Sync>;

/// The callbacks; at one address as long as anything of the context lives.
#[derive(Default)]
struct Callbacks {
    log: Option<Mutex<Log>>,
    interrupt: Option<Interrupt>,
}

/// Holds the log, the number of worker threads and what else would be global. What is made from it keeps it alive.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    raw: *mut otr_context,
    _callbacks: Arc<Callbacks>, // dropped after the context is destroyed
}

// SAFETY: the functions that take a context are marked "any thread", and the callbacks are Send, the one that runs beside itself Sync.
unsafe impl Send for Inner {}
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: every child holds this, so it is the last.
        unsafe { otr_context_destroy(self.raw) }
    }
}

impl Context {
    /// With the defaults: as many workers as the rank's share of the cores, and the log as the feature `log` has it.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// With options.
    pub fn builder() -> ContextBuilder {
        ContextBuilder {
            workers: 0,
            level: None,
            callbacks: Callbacks::default(),
        }
    }

    /// Loads a plugin by its name or path. One that is needed is loaded by itself.
    pub fn load_plugin(&self, name: &str) -> Result<()> {
        let name = crate::raw::text(name)?;
        // SAFETY: both live.
        check(unsafe { otr_context_load_plugin(self.raw(), name.as_ptr()) })
    }

    pub(crate) fn raw(&self) -> *mut otr_context {
        self.inner.raw
    }
}

/// See [`Context::builder`].
pub struct ContextBuilder {
    workers: i32,
    level: Option<Level>,
    callbacks: Callbacks,
}

impl ContextBuilder {
    /// Threads of each engine for updates and reductions; 0, the default: the rank's share of the cores.
    pub fn workers(mut self, workers: i32) -> Self {
        self.workers = workers;
        self
    }

    /// Lines up to this level go to `log`, one at a time, perhaps from a thread of the library. It must not call the library.
    pub fn log(mut self, level: Level, log: impl FnMut(Level, &str) + Send + 'static) -> Self {
        self.level = Some(level);
        self.callbacks.log = Some(Mutex::new(Box::new(log)));
        self
    }

    /// A call that waits for other ranks asks this about 20 times a second whether it shall end, with [`Error::Interrupted`](crate::Error).
    pub fn interrupt(mut self, asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.callbacks.interrupt = Some(Box::new(asked));
        self
    }

    /// The context. [`Error::Argument`](crate::Error): a number outside its range.
    pub fn build(self) -> Result<Context> {
        #[allow(unused_mut)]
        let (mut level, mut given) = (self.level, self.callbacks);
        #[cfg(feature = "log")]
        if given.log.is_none() {
            level = Some(bridge::level());
            given.log = Some(Mutex::new(Box::new(bridge::log)));
        }
        let callbacks = Arc::new(given);
        let user_data = Arc::as_ptr(&callbacks);
        let mut wanted = options(otr_context_options_init)?;
        wanted.workers = self.workers;
        if let Some(level) = level {
            wanted.log_level = level as i32;
        }
        if callbacks.log.is_some() {
            wanted.log_callback = Some(log_line);
            wanted.log_user_data = user_data as *mut c_void;
        }
        if callbacks.interrupt.is_some() {
            wanted.interrupt_callback = Some(interrupt_asked);
            wanted.interrupt_user_data = user_data as *mut c_void;
        }
        // SAFETY: the callbacks outlive the context.
        let raw = made(|out| unsafe { otr_context_create(ptr::from_ref(&wanted), out) })?;
        Ok(Context {
            inner: Arc::new(Inner {
                raw,
                _callbacks: callbacks,
            }),
        })
    }
}

unsafe extern "C" fn log_line(level: i32, text: *const c_char, user_data: *mut c_void) {
    panics::caught((), || {
        // SAFETY: user_data is the context's, text lives during the call.
        let (callbacks, text) = unsafe { (&*user_data.cast::<Callbacks>(), CStr::from_ptr(text)) };
        let level = match level {
            OTR_LOG_ERROR => Level::Error,
            OTR_LOG_WARNING => Level::Warning,
            OTR_LOG_INFO => Level::Info,
            _ => Level::Debug,
        };
        if let Some(log) = &callbacks.log {
            let mut log = log.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            log(level, &text.to_string_lossy());
        }
    });
}

unsafe extern "C" fn interrupt_asked(user_data: *mut c_void) -> i32 {
    let end = panics::caught(true, || {
        // SAFETY: user_data is the context's.
        let callbacks = unsafe { &*user_data.cast::<Callbacks>() };
        callbacks.interrupt.as_ref().is_some_and(|asked| asked())
    });
    i32::from(end)
}

#[cfg(feature = "log")]
mod bridge {
    use super::Level;

    pub(super) fn log(level: Level, text: &str) {
        let level = match level {
            Level::Error => log::Level::Error,
            Level::Warning => log::Level::Warn,
            Level::Info => log::Level::Info,
            Level::Debug => log::Level::Debug,
        };
        log::log!(target: "outrigger", level, "{text}");
    }

    /// What the crate log takes at most; asked when the context is made.
    pub(super) fn level() -> Level {
        match log::max_level() {
            log::LevelFilter::Off | log::LevelFilter::Error => Level::Error,
            log::LevelFilter::Warn => Level::Warning,
            log::LevelFilter::Info => Level::Info,
            _ => Level::Debug,
        }
    }
}
