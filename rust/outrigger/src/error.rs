// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How an error reads.
use crate::Error;
use core::fmt;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // SAFETY: a static text for every number.
        let name = unsafe { crate::raw::string(outrigger_sys::otr_status_name(self.status())) };
        write!(f, "{name}: {}", self.message())
    }
}

impl std::error::Error for Error {}
