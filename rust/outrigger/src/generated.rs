// SPDX-License-Identifier: Apache-2.0 OR MIT
// Generated from outrigger.h by bindings/gen; not to be edited.

/// Why a call failed, with the library's text: the offending value, the rule and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A NULL pointer, or a value outside its legal range.
    Argument(String),
    /// The call does not fit the object's state.
    State(String),
    /// The configuration is malformed or contradicts itself.
    Config(String),
    /// Legal, but not built into this library or not available here.
    Unsupported(String),
    /// A tensor's shape or strides are not what the call needs.
    Shape(String),
    /// A tensor's dtype is not what the call takes.
    Dtype(String),
    /// A tensor's device is not the engine's.
    Device(String),
    /// No parameter, group, field or file has this id or name.
    NotFound(String),
    /// The name is taken.
    Duplicate(String),
    /// Memory, shared memory or another system limit is exhausted.
    OutOfMemory(String),
    /// The caller's buffer is too small; the needed size was written.
    BufferSize(String),
    /// Another rank ended; collective calls cannot complete.
    PeerDead(String),
    /// A rank was silent past the deadline.
    Timeout(String),
    /// Ranks disagree: on order, shape, configuration or version.
    Mismatch(String),
    /// A rank called abort.
    Aborted(String),
    /// An earlier failure left the engine unusable; destroy it.
    Poisoned(String),
    /// The operating system refused; the text has its reason.
    System(String),
    /// A struct_size or version this library does not know.
    Abi(String),
    /// A callback of the host reported failure.
    Host(String),
    /// The host asked a waiting call to end.
    Interrupted(String),
    /// Gradients overflow at the smallest loss scale.
    LossScale(String),
    /// A device failed; what was on it is lost.
    DeviceFault(String),
    /// A file cannot be read or written; the text has the reason.
    Io(String),
    /// A file is damaged, cut short, or not of the kind it should be.
    Corrupt(String),
    /// A fault of this library; please report it with the text.
    Internal(String),
    /// A status of a later release of the library.
    Other(i32, String),
}

impl Error {
    /// The library's status code.
    pub fn status(&self) -> i32 {
        match self {
            Self::Argument(_) => outrigger_sys::OTR_E_ARGUMENT,
            Self::State(_) => outrigger_sys::OTR_E_STATE,
            Self::Config(_) => outrigger_sys::OTR_E_CONFIG,
            Self::Unsupported(_) => outrigger_sys::OTR_E_UNSUPPORTED,
            Self::Shape(_) => outrigger_sys::OTR_E_SHAPE,
            Self::Dtype(_) => outrigger_sys::OTR_E_DTYPE,
            Self::Device(_) => outrigger_sys::OTR_E_DEVICE,
            Self::NotFound(_) => outrigger_sys::OTR_E_NOT_FOUND,
            Self::Duplicate(_) => outrigger_sys::OTR_E_DUPLICATE,
            Self::OutOfMemory(_) => outrigger_sys::OTR_E_OUT_OF_MEMORY,
            Self::BufferSize(_) => outrigger_sys::OTR_E_BUFFER_SIZE,
            Self::PeerDead(_) => outrigger_sys::OTR_E_PEER_DEAD,
            Self::Timeout(_) => outrigger_sys::OTR_E_TIMEOUT,
            Self::Mismatch(_) => outrigger_sys::OTR_E_MISMATCH,
            Self::Aborted(_) => outrigger_sys::OTR_E_ABORTED,
            Self::Poisoned(_) => outrigger_sys::OTR_E_POISONED,
            Self::System(_) => outrigger_sys::OTR_E_SYSTEM,
            Self::Abi(_) => outrigger_sys::OTR_E_ABI,
            Self::Host(_) => outrigger_sys::OTR_E_HOST,
            Self::Interrupted(_) => outrigger_sys::OTR_E_INTERRUPTED,
            Self::LossScale(_) => outrigger_sys::OTR_E_LOSS_SCALE,
            Self::DeviceFault(_) => outrigger_sys::OTR_E_DEVICE_FAULT,
            Self::Io(_) => outrigger_sys::OTR_E_IO,
            Self::Corrupt(_) => outrigger_sys::OTR_E_CORRUPT,
            Self::Internal(_) => outrigger_sys::OTR_E_INTERNAL,
            Self::Other(status, _) => *status,
        }
    }
    /// The library's text.
    pub fn message(&self) -> &str {
        match self {
            Self::Argument(text)
            | Self::State(text)
            | Self::Config(text)
            | Self::Unsupported(text)
            | Self::Shape(text)
            | Self::Dtype(text)
            | Self::Device(text)
            | Self::NotFound(text)
            | Self::Duplicate(text)
            | Self::OutOfMemory(text)
            | Self::BufferSize(text)
            | Self::PeerDead(text)
            | Self::Timeout(text)
            | Self::Mismatch(text)
            | Self::Aborted(text)
            | Self::Poisoned(text)
            | Self::System(text)
            | Self::Abi(text)
            | Self::Host(text)
            | Self::Interrupted(text)
            | Self::LossScale(text)
            | Self::DeviceFault(text)
            | Self::Io(text)
            | Self::Corrupt(text)
            | Self::Internal(text)
            | Self::Other(_, text) => text,
        }
    }
    pub(crate) fn new(status: i32, text: String) -> Self {
        match status {
            outrigger_sys::OTR_E_ARGUMENT => Self::Argument(text),
            outrigger_sys::OTR_E_STATE => Self::State(text),
            outrigger_sys::OTR_E_CONFIG => Self::Config(text),
            outrigger_sys::OTR_E_UNSUPPORTED => Self::Unsupported(text),
            outrigger_sys::OTR_E_SHAPE => Self::Shape(text),
            outrigger_sys::OTR_E_DTYPE => Self::Dtype(text),
            outrigger_sys::OTR_E_DEVICE => Self::Device(text),
            outrigger_sys::OTR_E_NOT_FOUND => Self::NotFound(text),
            outrigger_sys::OTR_E_DUPLICATE => Self::Duplicate(text),
            outrigger_sys::OTR_E_OUT_OF_MEMORY => Self::OutOfMemory(text),
            outrigger_sys::OTR_E_BUFFER_SIZE => Self::BufferSize(text),
            outrigger_sys::OTR_E_PEER_DEAD => Self::PeerDead(text),
            outrigger_sys::OTR_E_TIMEOUT => Self::Timeout(text),
            outrigger_sys::OTR_E_MISMATCH => Self::Mismatch(text),
            outrigger_sys::OTR_E_ABORTED => Self::Aborted(text),
            outrigger_sys::OTR_E_POISONED => Self::Poisoned(text),
            outrigger_sys::OTR_E_SYSTEM => Self::System(text),
            outrigger_sys::OTR_E_ABI => Self::Abi(text),
            outrigger_sys::OTR_E_HOST => Self::Host(text),
            outrigger_sys::OTR_E_INTERRUPTED => Self::Interrupted(text),
            outrigger_sys::OTR_E_LOSS_SCALE => Self::LossScale(text),
            outrigger_sys::OTR_E_DEVICE_FAULT => Self::DeviceFault(text),
            outrigger_sys::OTR_E_IO => Self::Io(text),
            outrigger_sys::OTR_E_CORRUPT => Self::Corrupt(text),
            outrigger_sys::OTR_E_INTERNAL => Self::Internal(text),
            _ => Self::Other(status, text),
        }
    }
}

/// A value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Value {
    /// The weight that the optimizer updates.
    Master = 0,
    /// The weight that acquire shows.
    Published = 1,
    /// The first moment, or SGD's momentum.
    ExpAvg = 2,
    /// The second moment, or Adagrad's sum of squares.
    ExpAvgSq = 3,
    /// The window's mean gradient, unscaled and not clipped; between
    /// otr_engine_reduce and otr_engine_step.
    Grad = 4,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Outcome {
    /// Not a boundary: gradients are kept, nothing was updated.
    Accumulated = 1,
    /// Parameters were updated and published.
    Applied = 2,
    /// Nothing was updated, the gradients are gone; reason says why.
    Skipped = 3,
    /// otr_engine_reduce: gradients are summed, nothing was updated.
    Reduced = 4,
    /// otr_engine_report: the step that was begun is not over.
    Pending = 5,
}

impl Outcome {
    pub(crate) fn from_raw(raw: i32) -> Option<Self> {
        match raw {
            1 => Some(Self::Accumulated),
            2 => Some(Self::Applied),
            3 => Some(Self::Skipped),
            4 => Some(Self::Reduced),
            5 => Some(Self::Pending),
            _ => None,
        }
    }
}

/// Why a step was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Skip {
    #[allow(missing_docs)]
    None = 0,
    /// A gradient is Inf or NaN; see nonfinite_*.
    Nonfinite = 1,
    /// A rank abandoned a pass of this window.
    Abandoned = 2,
    /// An output's gradient overflowed when it was scaled, on rank
    /// nonfinite_rank.
    SeedOverflow = 3,
    /// Another engine of the joint step was skipped.
    Joint = 4,
    /// The norm is far beyond the last ones (skip_outlier_norms).
    Outlier = 5,
}

impl Skip {
    pub(crate) fn from_raw(raw: i32) -> Option<Self> {
        match raw {
            0 => Some(Self::None),
            1 => Some(Self::Nonfinite),
            2 => Some(Self::Abandoned),
            3 => Some(Self::SeedOverflow),
            4 => Some(Self::Joint),
            5 => Some(Self::Outlier),
            _ => None,
        }
    }
}

/// Who ends accumulation windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Boundary {
    /// Every gradient_accumulation_steps-th step ends a window.
    Configured = 0,
    /// Steps accumulate.
    No = 1,
    /// Every step ends its window.
    Yes = 2,
}

/// How an asynchronous save is getting on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum SaveState {
    /// None was made.
    None = 0,
    /// It is being written.
    UnderWay = 1,
    /// It is durable, and `latest` named it.
    Done = 2,
    /// What was there before is whole.
    Failed = 3,
}

impl SaveState {
    pub(crate) fn from_raw(raw: i32) -> Option<Self> {
        match raw {
            0 => Some(Self::None),
            1 => Some(Self::UnderWay),
            2 => Some(Self::Done),
            3 => Some(Self::Failed),
            _ => None,
        }
    }
}
