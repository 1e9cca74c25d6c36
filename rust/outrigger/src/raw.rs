// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a C function is called: statuses, out parameters, texts.
use crate::{panics, Error, Result};
use core::ffi::{c_char, CStr};
use core::mem::{size_of, MaybeUninit};
use core::ptr;
use outrigger_sys::*;
use std::ffi::CString;
use std::path::Path;

/// # Safety
/// `text` is NUL-terminated and lives during the call.
pub(crate) unsafe fn string(text: *const c_char) -> String {
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

/// Resumes a panic of a callback that this thread's call has met.
pub(crate) fn check(status: i32) -> Result<()> {
    panics::resume();
    if status == OTR_OK {
        return Ok(());
    }
    // SAFETY: never NULL, and valid until this thread's next call.
    Err(Error::new(status, unsafe {
        string(otr_last_error_message())
    }))
}

/// The out parameter of a call that succeeded. T: numbers and pointers, for which zero bits are a value.
pub(crate) fn made<T>(call: impl FnOnce(*mut T) -> i32) -> Result<T> {
    let mut out = MaybeUninit::<T>::zeroed();
    check(call(out.as_mut_ptr()))?;
    // SAFETY: a successful call has written it.
    Ok(unsafe { out.assume_init() })
}

/// A size-first struct with its defaults.
pub(crate) fn options<T>(init: unsafe extern "C" fn(*mut T, usize) -> i32) -> Result<T> {
    // SAFETY: init writes size_of::<T>() bytes.
    made(|out| unsafe { init(out, size_of::<T>()) })
}

pub(crate) fn text(value: &str) -> Result<CString> {
    CString::new(value).map_err(|_| {
        Error::Argument(format!(
            "{value:?} has a NUL in it; texts for the library end there"
        ))
    })
}

pub(crate) fn optional(value: Option<&str>) -> Result<Option<CString>> {
    value.map(text).transpose()
}

pub(crate) fn pointer(value: &Option<CString>) -> *const c_char {
    value.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

pub(crate) fn path(value: &Path) -> Result<CString> {
    let shown = value
        .to_str()
        .ok_or_else(|| Error::Argument(format!("the path {} is no UTF-8", value.display())))?;
    text(shown)
}

/// A struct that begins with its size, and is zero behind it: `sized!(otr_step_report)`. Of numbers and pointers.
macro_rules! sized {
    ($name:ident) => {{
        // SAFETY: numbers and pointers may have zero bits.
        let mut made: outrigger_sys::$name = unsafe { core::mem::zeroed() };
        made.struct_size = core::mem::size_of::<outrigger_sys::$name>() as u32;
        made
    }};
}
pub(crate) use sized;

/// Bytes that the library writes into a buffer whose size it tells.
pub(crate) fn bytes(call: impl Fn(*mut u8, *mut usize) -> i32) -> Result<Vec<u8>> {
    let mut size = 0;
    check(call(ptr::null_mut(), &mut size))?;
    loop {
        let mut buffer = vec![0_u8; size];
        match check(call(buffer.as_mut_ptr(), &mut size)) {
            Err(Error::BufferSize(_)) => continue, // there are more since it was asked for
            other => other?,
        }
        return Ok(buffer);
    }
}

/// The same of a text, which ends with a NUL.
pub(crate) fn json(call: impl Fn(*mut c_char, *mut usize) -> i32) -> Result<String> {
    let text = bytes(|buffer, size| call(buffer.cast(), size))?;
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// # Safety
/// `data` has `len` elements that live for 'a, or `len` is 0.
pub(crate) unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        &[]
    } else {
        core::slice::from_raw_parts(data, len)
    }
}
