// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fails here or in burn.
use std::fmt;

/// Why a call failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The library's, or this crate's own in its words: the offending value, the rule and the way out.
    Outrigger(outrigger::Error),
    /// Burn's, of a tensor whose values cannot be read.
    Burn(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outrigger(error) => error.fmt(f),
            Self::Burn(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Outrigger(error) => Some(error),
            Self::Burn(_) => None,
        }
    }
}

impl From<outrigger::Error> for Error {
    fn from(error: outrigger::Error) -> Self {
        Self::Outrigger(error)
    }
}
