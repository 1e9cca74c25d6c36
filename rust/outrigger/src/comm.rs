// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups of ranks.
use crate::raw::{check, made, optional, options, pointer};
use crate::{Context, Error, Result};
use core::marker::PhantomData;
use core::ptr;
use outrigger_sys::*;
use std::cell::Cell;
use std::ffi::CString;

/// A group of ranks and its collectives, which every rank calls in the same order. It may go to another thread; one uses it at a time.
pub struct Comm {
    raw: *mut otr_comm,
    context: Context,
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: a handle works on any thread, on one at a time.
unsafe impl Send for Comm {}

impl Drop for Comm {
    fn drop(&mut self) {
        // SAFETY: given back once; engines made from it hold groups of their own.
        unsafe { otr_comm_destroy(self.raw) }
    }
}

/// What a group may be told; the defaults are right for a launcher's.
#[derive(Clone, Debug, Default)]
pub struct CommOptions {
    /// Seconds that a collective call may wait for a silent rank; default 300.
    pub timeout: Option<f64>,
    /// The same text on the ranks of one job, and of no other job of this user on this host.
    pub job: Option<String>,
}

impl CommOptions {
    fn raw(&self) -> Result<(otr_comm_options, Option<CString>)> {
        let mut wanted = options(otr_comm_options_init)?;
        let job = optional(self.job.as_deref())?;
        if let Some(timeout) = self.timeout {
            wanted.timeout = timeout;
        }
        wanted.job = pointer(&job);
        Ok((wanted, job))
    }
}

// SAFETY of the calls below: handles live, lengths are those of the slices.
impl Comm {
    pub(crate) fn new(raw: *mut otr_comm, context: &Context) -> Self {
        Self {
            raw,
            context: context.clone(),
            one_thread: PhantomData,
        }
    }

    /// A group of one.
    pub fn alone(context: &Context) -> Result<Self> {
        made(|out| unsafe { otr_comm_create_self(context.raw(), out) })
            .map(|raw| Self::new(raw, context))
    }

    /// The group that a launcher describes by `RANK`, `WORLD_SIZE` and so on; of one where there is none. Collective.
    pub fn from_env(context: &Context) -> Result<Self> {
        Self::from_env_with(context, &CommOptions::default())
    }

    /// See [`Comm::from_env`].
    pub fn from_env_with(context: &Context, asked: &CommOptions) -> Result<Self> {
        let (wanted, _job) = asked.raw()?;
        made(|out| unsafe { otr_comm_from_env(context.raw(), &wanted, out) })
            .map(|raw| Self::new(raw, context))
    }

    /// A group of processes of one user on this host, over shared memory. `job` names it. Collective.
    pub fn shared_memory(
        context: &Context,
        rank: i32,
        world_size: i32,
        job: &str,
        asked: &CommOptions,
    ) -> Result<Self> {
        let named = CommOptions {
            job: Some(job.into()),
            ..asked.clone()
        };
        let (mut wanted, _job) = named.raw()?;
        wanted.rank = rank;
        wanted.world_size = world_size;
        made(|out| unsafe { otr_comm_create_shm(context.raw(), &wanted, out) })
            .map(|raw| Self::new(raw, context))
    }

    /// Ranks inside this process, each for a thread of its own: for tests and simulation.
    pub fn threads(context: &Context, world_size: i32) -> Result<Vec<Self>> {
        let mut raw = vec![ptr::null_mut(); usize::try_from(world_size).unwrap_or(0).min(512)];
        check(unsafe {
            otr_comm_create_threads(context.raw(), world_size, ptr::null(), raw.as_mut_ptr())
        })?;
        Ok(raw.into_iter().map(|raw| Self::new(raw, context)).collect())
    }

    /// A second group of the same ranks, for another thread. Collective.
    pub fn duplicate(&self) -> Result<Self> {
        made(|out| unsafe { otr_comm_duplicate(self.raw, out) })
            .map(|raw| Self::new(raw, &self.context))
    }

    /// A group for each color, ordered by key and rank; `None` joins no group. Collective.
    pub fn split(&self, color: Option<i32>, key: i32) -> Result<Option<Self>> {
        let raw: *mut otr_comm =
            made(|out| unsafe { otr_comm_split(self.raw, color.unwrap_or(-1), key, out) })?;
        Ok((!raw.is_null()).then(|| Self::new(raw, &self.context)))
    }

    /// This rank's number.
    pub fn rank(&self) -> i32 {
        made(|out| unsafe { otr_comm_rank(self.raw, out) }).expect("a live group has a rank")
    }

    /// How many ranks there are.
    pub fn size(&self) -> i32 {
        made(|out| unsafe { otr_comm_size(self.raw, out) }).expect("a live group has a size")
    }

    /// Returns when every rank has called it. Collective.
    pub fn barrier(&self) -> Result<()> {
        check(unsafe { otr_comm_barrier(self.raw) })
    }

    /// Copies rank `root`'s bytes to all others. Collective.
    pub fn broadcast(&self, data: &mut [u8], root: i32) -> Result<()> {
        check(unsafe { otr_comm_broadcast(self.raw, data.as_mut_ptr().cast(), data.len(), root) })
    }

    /// Every rank's bytes, as many of each, in rank order. Collective.
    pub fn all_gather(&self, mine: &[u8]) -> Result<Vec<u8>> {
        let mut all = vec![0; mine.len() * self.size() as usize];
        check(unsafe {
            otr_comm_all_gather(
                self.raw,
                mine.as_ptr().cast(),
                mine.len(),
                all.as_mut_ptr().cast(),
            )
        })?;
        Ok(all)
    }

    /// Sends `parts[r]` to rank r; what rank r sends here has `received[r]` bytes. Collective.
    pub fn all_to_all(&self, parts: &[&[u8]], received: &[usize]) -> Result<Vec<Vec<u8>>> {
        let world = self.size() as usize;
        if parts.len() != world || received.len() != world {
            return Err(Error::Argument(format!(
                "all_to_all got {} parts and {} sizes; there are {world} ranks",
                parts.len(),
                received.len()
            )));
        }
        let sent = parts.concat();
        let sizes: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let mut all = vec![0_u8; received.iter().sum()];
        check(unsafe {
            otr_comm_all_to_all(
                self.raw,
                sent.as_ptr().cast(),
                sizes.as_ptr(),
                all.as_mut_ptr().cast(),
                received.as_ptr(),
            )
        })?;
        let mut rest = all.as_slice();
        Ok(received
            .iter()
            .map(|&size| {
                let (part, behind) = rest.split_at(size);
                rest = behind;
                part.to_vec()
            })
            .collect())
    }

    /// Replaces each value by its sum over ranks, with the same bits on all. Collective.
    pub fn all_reduce_sum(&self, values: &mut [f64]) -> Result<()> {
        check(unsafe { otr_comm_all_reduce_sum(self.raw, values.as_mut_ptr(), values.len()) })
    }

    /// Ends the group: the collective calls of all ranks fail with this rank's number and the reason.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let reason = crate::raw::text(reason)?;
        check(unsafe { otr_comm_abort(self.raw, reason.as_ptr()) })
    }

    pub(crate) fn raw(&self) -> *mut otr_comm {
        self.raw
    }
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}
