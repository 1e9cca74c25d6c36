// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Declarations of the Outrigger C library, generated from `outrigger.h`.
//!
//! The comments are the header's. Functions are `unsafe` as every foreign function is: pointers must be
//! what the header asks for.
//!
//! The build finds the library by `OUTRIGGER_LIB_DIR`, a folder, else by pkg-config. Features:
//! - `bundled`: where pkg-config knows none, CMake compiles it from the source tree around this crate, or from the one that
//!   `OUTRIGGER_SOURCE_DIR` names.
//! - `dlopen`: nothing is linked; the library is loaded when the program runs (`load`). A function without a library gives `OTR_E_SYSTEM`,
//!   and `otr_last_error_message` says which files were tried. It wins over `bundled`.
#![no_std]
#![allow(non_camel_case_types)]
#![allow(clippy::doc_lazy_continuation)] // the header's comments are no Markdown

#[cfg(feature = "dlopen")]
#[macro_use]
mod loading;
#[cfg(feature = "dlopen")]
pub use loading::load;

/// The functions of `bindings`, which the linker finds.
#[cfg(not(feature = "dlopen"))]
macro_rules! functions {
    ($($declarations:tt)*) => {
        extern "C" {
            $($declarations)*
        }
    };
}

#[rustfmt::skip]
mod bindings;
pub use bindings::*;
