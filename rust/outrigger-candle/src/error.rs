// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fails here or in candle.
use std::fmt;

/// Why a call failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The library's, or this crate's own in its words: the offending value, the rule and the way out.
    Outrigger(outrigger::Error),
    /// Candle's, of the model's forward or backward.
    Candle(candle_core::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outrigger(error) => error.fmt(f),
            Self::Candle(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Outrigger(error) => Some(error),
            Self::Candle(error) => Some(error),
        }
    }
}

impl From<outrigger::Error> for Error {
    fn from(error: outrigger::Error) -> Self {
        Self::Outrigger(error)
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::Candle(error)
    }
}
