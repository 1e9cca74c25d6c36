// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Declarations of the Outrigger C library, generated from `outrigger.h`. No logic.
//!
//! The comments are the header's. Functions are `unsafe` as every foreign function is: pointers must be
//! what the header asks for.
#![no_std]
#![allow(non_camel_case_types)]
#![allow(clippy::doc_lazy_continuation)] // the header's comments are no Markdown

#[rustfmt::skip]
mod bindings;
pub use bindings::*;
