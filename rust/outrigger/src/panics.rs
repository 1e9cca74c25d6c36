// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Panics of callbacks, which must not go through C.
use std::any::Any;
use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

thread_local! {
    static CAUGHT: Cell<Option<Box<dyn Any + Send>>> = const { Cell::new(None) };
}

/// What the callback gives, or `otherwise`; its panic waits for the call that it happened in. On a thread of the library, which has no
/// such call, the panic ends with its message.
pub(crate) fn caught<T>(otherwise: T, callback: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(callback)).unwrap_or_else(|panic| {
        CAUGHT.set(Some(panic));
        otherwise
    })
}

pub(crate) fn resume() {
    if let Some(panic) = CAUGHT.take() {
        if !std::thread::panicking() {
            resume_unwind(panic);
        }
    }
}
