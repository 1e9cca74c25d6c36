// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups over functions of the caller's.
use crate::panics::caught;
use crate::raw::{made, options, slice};
use crate::{Comm, Context, Result};
use core::ffi::{c_char, c_void, CStr};
use outrigger_sys::*;
use std::io;

/// How ranks exchange bytes, over MPI, sockets or anything else: for [`Comm::custom`]. Every rank makes the same calls in the same order.
/// The library makes those of one channel from one thread at a time, besides [`Channel::abort`]; several channels run in parallel.
/// An error ends the group on this rank with [`Error::Host`](crate::Error), and a panic does, too. A call should fail when a peer is gone,
/// because the library cannot end it.
pub trait Channel: Send + Sync + Sized + 'static {
    /// Whether [`Channel::split`] is there; without it `Comm::split` and meshes are unsupported.
    const SPLITS: bool = false;

    /// `all` has a part for each rank, in their order, and receives what that rank gives as `mine`.
    fn all_gather(&self, mine: &[u8], all: &mut [u8]) -> io::Result<()>;

    /// A channel over the same ranks for another thread: its calls are ordered independently.
    fn duplicate(&self) -> io::Result<Self>;

    /// Copies rank `root`'s bytes to all; the provided one gathers those of all ranks.
    fn broadcast(&self, data: &mut [u8], root: usize, world_size: usize) -> io::Result<()> {
        let mut all = vec![0; data.len() * world_size];
        self.all_gather(data, &mut all)?;
        data.copy_from_slice(&all[root * data.len()..][..data.len()]);
        Ok(())
    }

    /// `parts` has a part for each rank, and `received` receives what every rank has for this one; the provided one gathers all parts.
    fn all_to_all(
        &self,
        parts: &[u8],
        received: &mut [u8],
        rank: usize,
        world_size: usize,
    ) -> io::Result<()> {
        let mut all = vec![0; parts.len() * world_size];
        self.all_gather(parts, &mut all)?;
        let bytes = parts.len() / world_size;
        for (place, part) in received.chunks_mut(bytes.max(1)).enumerate() {
            part.copy_from_slice(&all[place * parts.len() + rank * bytes..][..bytes]);
        }
        Ok(())
    }

    /// Divides the ranks into groups: rank r comes into group `groups[r]`, as its rank `places[r]`, or with -1 into none. Gives a channel
    /// over this rank's group; `None` where it is in none.
    fn split(&self, groups: &[i32], places: &[i32]) -> io::Result<Option<Self>> {
        let _ = (groups, places);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes calls in progress on this channel fail, here and if possible on the others. From any thread.
    fn abort(&self, reason: &str) {
        let _ = reason;
    }
}

impl Comm {
    /// A group over the caller's functions, which the library drops with the group and the last engine made from it. Its ranks share no
    /// memory. Collective.
    pub fn custom<C: Channel>(
        context: &Context,
        rank: i32,
        world_size: i32,
        channel: C,
    ) -> Result<Self> {
        let mut table = options(otr_comm_table_init)?;
        table.rank = rank;
        table.world_size = world_size;
        table.all_gather = Some(all_gather::<C>);
        table.broadcast = Some(broadcast::<C>);
        table.all_to_all = Some(all_to_all::<C>);
        table.duplicate = Some(duplicate::<C>);
        table.abort = Some(abort::<C>);
        table.destroy = Some(destroy::<C>);
        table.split = if C::SPLITS { Some(split::<C>) } else { None };
        let number = |number: i32| usize::try_from(number).unwrap_or(0); // the library refuses others
        table.user_data = Placed::raw(channel, number(rank), number(world_size));
        // SAFETY: the functions fit user_data, which is theirs until destroy.
        made(|out| unsafe { otr_comm_create_custom(context.raw(), &table, out) })
            .map(|raw| Self::new(raw, context))
            .inspect_err(|_| {
                // SAFETY: a call that failed leaves it to the caller.
                drop(unsafe { Box::from_raw(table.user_data.cast::<Placed<C>>()) });
            })
    }
}

/// A channel, and where in its group this rank is.
struct Placed<C> {
    channel: C,
    rank: usize,
    world_size: usize,
}

impl<C> Placed<C> {
    fn raw(channel: C, rank: usize, world_size: usize) -> *mut c_void {
        Box::into_raw(Box::new(Self {
            channel,
            rank,
            world_size,
        }))
        .cast()
    }
}

/// # Safety
/// `data` has `len` bytes that are this call's alone for 'a, or `len` is 0.
unsafe fn slice_mut<'a>(data: *mut c_void, len: usize) -> &'a mut [u8] {
    if len == 0 {
        &mut []
    } else {
        core::slice::from_raw_parts_mut(data.cast(), len)
    }
}

fn status(call: impl FnOnce() -> io::Result<()>) -> i32 {
    caught(1, || match call() {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().filter(|&code| code != 0).unwrap_or(1),
    })
}

// SAFETY of the functions below: user_data is a Placed<C> until destroy; the library's buffers have the sizes that the header says.
unsafe extern "C" fn all_gather<C: Channel>(
    user_data: *mut c_void,
    mine: *const c_void,
    bytes: usize,
    all: *mut c_void,
) -> i32 {
    let placed = &*user_data.cast::<Placed<C>>();
    let (mine, all) = (
        slice(mine.cast(), bytes),
        slice_mut(all, bytes * placed.world_size),
    );
    status(|| placed.channel.all_gather(mine, all))
}

unsafe extern "C" fn broadcast<C: Channel>(
    user_data: *mut c_void,
    data: *mut c_void,
    bytes: usize,
    root: i32,
) -> i32 {
    let placed = &*user_data.cast::<Placed<C>>();
    let data = slice_mut(data, bytes);
    status(|| {
        placed
            .channel
            .broadcast(data, root as usize, placed.world_size)
    })
}

unsafe extern "C" fn all_to_all<C: Channel>(
    user_data: *mut c_void,
    parts: *const c_void,
    bytes: usize,
    received: *mut c_void,
) -> i32 {
    let placed = &*user_data.cast::<Placed<C>>();
    let all = bytes * placed.world_size;
    let (parts, received) = (slice(parts.cast(), all), slice_mut(received, all));
    status(|| {
        let (rank, world_size) = (placed.rank, placed.world_size);
        placed.channel.all_to_all(parts, received, rank, world_size)
    })
}

unsafe extern "C" fn duplicate<C: Channel>(
    user_data: *mut c_void,
    out_user_data: *mut *mut c_void,
) -> i32 {
    let placed = &*user_data.cast::<Placed<C>>();
    status(|| {
        let channel = placed.channel.duplicate()?;
        *out_user_data = Placed::raw(channel, placed.rank, placed.world_size);
        Ok(())
    })
}

unsafe extern "C" fn split<C: Channel>(
    user_data: *mut c_void,
    groups: *const i32,
    places: *const i32,
    out_user_data: *mut *mut c_void,
) -> i32 {
    let placed = &*user_data.cast::<Placed<C>>();
    let (groups, places) = (
        slice(groups, placed.world_size),
        slice(places, placed.world_size),
    );
    status(|| {
        if let Some(channel) = placed.channel.split(groups, places)? {
            let mine = groups[placed.rank];
            let world_size = groups.iter().filter(|&&group| group == mine).count();
            *out_user_data = Placed::raw(channel, places[placed.rank] as usize, world_size);
        }
        Ok(())
    })
}

unsafe extern "C" fn abort<C: Channel>(user_data: *mut c_void, reason: *const c_char) {
    let placed = &*user_data.cast::<Placed<C>>();
    let reason = CStr::from_ptr(reason).to_string_lossy();
    caught((), || placed.channel.abort(&reason));
}

unsafe extern "C" fn destroy<C: Channel>(user_data: *mut c_void) {
    caught((), || drop(Box::from_raw(user_data.cast::<Placed<C>>())));
}
