// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moments of a training, in memory.
use crate::checkpoint::Parts;
use crate::raw::{bytes, check, made, options, sized, text};
use crate::{Engine, Result};
use outrigger_sys::*;

/// Values, progress and parts of a moment: this rank's, and perhaps copies of other ranks'. It outlives engines and groups.
pub struct Snapshot {
    pub(crate) raw: *mut otr_snapshot,
}

// SAFETY: a handle works on any thread, on one at a time.
unsafe impl Send for Snapshot {}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // SAFETY: given back once.
        unsafe { otr_snapshot_destroy(self.raw) }
    }
}

/// What a snapshot has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// Whose process filled it; `None`: it is empty.
    pub rank: Option<i32>,
    /// Of ranks, this one's and others'.
    pub copies: i32,
    /// Steps of the training at that moment.
    pub micro_steps: i64,
    /// Of memory that it takes.
    pub bytes: i64,
}

// SAFETY of the calls below: handles live, parts and texts outlive the calls.
impl Snapshot {
    /// An empty one.
    pub fn new() -> Result<Self> {
        made(|out| unsafe { otr_snapshot_create(out) }).map(|raw| Self { raw })
    }

    /// What it has.
    pub fn info(&self) -> Result<SnapshotInfo> {
        let mut info = sized!(otr_snapshot_info);
        check(unsafe { otr_snapshot_get_info(self.raw, &mut info) })?;
        Ok(SnapshotInfo {
            rank: (info.rank >= 0).then_some(info.rank),
            copies: info.copies,
            micro_steps: info.micro_steps,
            bytes: info.bytes,
        })
    }

    /// A part that its rank's host gave.
    pub fn part(&self, name: &str) -> Result<Vec<u8>> {
        let name = text(name)?;
        bytes(|buffer, size| unsafe {
            otr_snapshot_part(self.raw, name.as_ptr(), buffer.cast(), size)
        })
    }
}

impl Engine {
    /// Fills a snapshot with this moment, between two windows. `replicas`: other ranks that keep a copy of each rank's. Collective.
    pub fn snapshot(
        &mut self,
        snapshot: &mut Snapshot,
        replicas: i32,
        parts: &[(&str, &[u8])],
    ) -> Result<()> {
        let parts = Parts::new(parts)?;
        let mut wanted = options(otr_snapshot_options_init)?;
        wanted.replicas = replicas;
        (wanted.parts, wanted.part_count) = parts.array();
        check(unsafe { otr_engine_snapshot(self.as_raw(), snapshot.raw, &wanted) })
    }

    /// Goes back to the latest moment of which every rank's part is in some rank's snapshots. Collective.
    pub fn restore(&mut self, snapshots: &mut [&mut Snapshot]) -> Result<()> {
        let raw: Vec<*mut otr_snapshot> = snapshots.iter().map(|snapshot| snapshot.raw).collect();
        check(unsafe { otr_engine_restore(self.as_raw(), raw.as_ptr(), raw.len() as i64) })
    }
}
