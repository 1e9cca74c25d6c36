// SPDX-License-Identifier: Apache-2.0 OR MIT
// Generated from outrigger.h by bindings/gen; not to be edited.
use core::ffi::{c_char, c_void};
use core::marker::{PhantomData, PhantomPinned};

pub const OTR_VERSION_MAJOR: i32 = 0;
pub const OTR_VERSION_MINOR: i32 = 1;
pub const OTR_VERSION_PATCH: i32 = 0;
pub const OTR_VERSION_STRING: &str = "0.1.0";
pub const OTR_ABI_VERSION: i32 = 0;
pub const OTR_OK: i32 = 0;
/// a NULL pointer, or a value outside its legal range
pub const OTR_E_ARGUMENT: i32 = -1;
/// the call does not fit the object's state
pub const OTR_E_STATE: i32 = -2;
/// the configuration is malformed or contradicts itself
pub const OTR_E_CONFIG: i32 = -3;
/// legal, but not built into this library or not available here
pub const OTR_E_UNSUPPORTED: i32 = -4;
/// a tensor's shape or strides are not what the call needs
pub const OTR_E_SHAPE: i32 = -5;
/// a tensor's dtype is not what the call takes
pub const OTR_E_DTYPE: i32 = -6;
/// a tensor's device is not the engine's
pub const OTR_E_DEVICE: i32 = -7;
/// no parameter, group, field or file has this id or name
pub const OTR_E_NOT_FOUND: i32 = -8;
/// the name is taken
pub const OTR_E_DUPLICATE: i32 = -9;
/// memory, shared memory or another system limit is exhausted
pub const OTR_E_OUT_OF_MEMORY: i32 = -10;
/// the caller's buffer is too small; the needed size was written
pub const OTR_E_BUFFER_SIZE: i32 = -11;
/// another rank ended; collective calls cannot complete
pub const OTR_E_PEER_DEAD: i32 = -12;
/// a rank was silent past the deadline
pub const OTR_E_TIMEOUT: i32 = -13;
/// ranks disagree: on order, shape, configuration or version
pub const OTR_E_MISMATCH: i32 = -14;
/// a rank called abort
pub const OTR_E_ABORTED: i32 = -15;
/// an earlier failure left the engine unusable; destroy it
pub const OTR_E_POISONED: i32 = -16;
/// the operating system refused; the text has its reason
pub const OTR_E_SYSTEM: i32 = -17;
/// a struct_size or version this library does not know
pub const OTR_E_ABI: i32 = -18;
/// a callback of the host reported failure
pub const OTR_E_HOST: i32 = -19;
/// the host asked a waiting call to end
pub const OTR_E_INTERRUPTED: i32 = -20;
/// gradients overflow at the smallest loss scale
pub const OTR_E_LOSS_SCALE: i32 = -21;
/// a device failed; what was on it is lost
pub const OTR_E_DEVICE_FAULT: i32 = -22;
/// a file cannot be read or written; the text has the reason
pub const OTR_E_IO: i32 = -23;
/// a file is damaged, cut short, or not of the kind it should be
pub const OTR_E_CORRUPT: i32 = -24;
/// a fault of this library; please report it with the text
pub const OTR_E_INTERNAL: i32 = -99;
pub const OTR_DEVICE_CPU: i32 = 1;
pub const OTR_DEVICE_CUDA: i32 = 2;
pub const OTR_DEVICE_CUDA_HOST: i32 = 3;
/// of a plugin with no number of its own, such as "simulated"
pub const OTR_DEVICE_EXTENSION: i32 = 12;
pub const OTR_DTYPE_INT: i32 = 0;
pub const OTR_DTYPE_UINT: i32 = 1;
pub const OTR_DTYPE_FLOAT: i32 = 2;
pub const OTR_DTYPE_BFLOAT: i32 = 4;
/// 8 bits
pub const OTR_DTYPE_BOOL: i32 = 6;
/// acquire: a float32 copy whatever the stored format (read-only)
pub const OTR_ACQUIRE_FLOAT32: u32 = 1;
/// pass begin: scaled output gradients in the dtype that they came in
/// (float64: float32), not in float32
pub const OTR_PASS_KEEP_DTYPE: u32 = 2;
pub const OTR_LOG_ERROR: i32 = 1;
pub const OTR_LOG_WARNING: i32 = 2;
pub const OTR_LOG_INFO: i32 = 3;
pub const OTR_LOG_DEBUG: i32 = 4;
/// the weight that the optimizer updates
pub const OTR_VALUE_MASTER: i32 = 0;
/// the weight that acquire shows
pub const OTR_VALUE_PUBLISHED: i32 = 1;
/// the first moment, or SGD's momentum
pub const OTR_VALUE_EXP_AVG: i32 = 2;
/// the second moment, or Adagrad's sum of squares
pub const OTR_VALUE_EXP_AVG_SQ: i32 = 3;
/// the window's mean gradient, unscaled and not clipped; between
/// otr_engine_reduce and otr_engine_step
pub const OTR_VALUE_GRAD: i32 = 4;
/// parameters in the compute dtype
pub const OTR_STATES_PUBLISHED: i32 = 1;
/// master weights
pub const OTR_STATES_MASTER: i32 = 2;
pub const OTR_STATES_MOMENTS: i32 = 4;
/// memory for gradients, which holds none between two windows
pub const OTR_STATES_GRADIENTS: i32 = 8;
pub const OTR_LAYOUT_OUTRIGGER: i32 = 0;
pub const OTR_LAYOUT_DEEPSPEED: i32 = 1;
pub const OTR_START_NONE: i32 = 0;
/// given to otr_engine_add_parameter, which keeps copies until commit
pub const OTR_START_GIVEN: i32 = 1;
/// every rank holds them whole until otr_engine_set_initial, called once
/// for each parameter in the order of declaration
pub const OTR_START_HELD: i32 = 2;
/// the same, but of each value a rank holds one part in world_size, and
/// the whole while otr_engine_set_initial takes it
pub const OTR_START_SHARED_OUT: i32 = 3;
/// not a boundary: gradients are kept, nothing was updated
pub const OTR_STEP_ACCUMULATED: i32 = 1;
/// parameters were updated and published
pub const OTR_STEP_APPLIED: i32 = 2;
/// nothing was updated, the gradients are gone; reason says why
pub const OTR_STEP_SKIPPED: i32 = 3;
/// otr_engine_reduce: gradients are summed, nothing was updated
pub const OTR_STEP_REDUCED: i32 = 4;
/// otr_engine_report: the step that was begun is not over
pub const OTR_STEP_PENDING: i32 = 5;
pub const OTR_SKIP_NONE: i32 = 0;
/// a gradient is Inf or NaN; see nonfinite_*
pub const OTR_SKIP_NONFINITE: i32 = 1;
/// a rank abandoned a pass of this window
pub const OTR_SKIP_ABANDONED: i32 = 2;
/// an output's gradient overflowed when it was scaled, on rank
/// nonfinite_rank
pub const OTR_SKIP_SEED_OVERFLOW: i32 = 3;
/// another engine of the joint step was skipped
pub const OTR_SKIP_JOINT: i32 = 4;
/// the norm is far beyond the last ones (skip_outlier_norms)
pub const OTR_SKIP_OUTLIER: i32 = 5;
/// every gradient_accumulation_steps-th step ends a window
pub const OTR_BOUNDARY_CONFIGURED: i32 = 0;
/// steps accumulate
pub const OTR_BOUNDARY_NO: i32 = 1;
/// every step ends its window
pub const OTR_BOUNDARY_YES: i32 = 2;
pub const OTR_SAVE_WAIT: i32 = 0;
pub const OTR_SAVE_REFUSE: i32 = 1;
/// none was made
pub const OTR_SAVE_NONE: i32 = 0;
/// it is being written
pub const OTR_SAVE_UNDER_WAY: i32 = 1;
/// it is durable, and `latest` named it
pub const OTR_SAVE_DONE: i32 = 2;
/// what was there before is whole
pub const OTR_SAVE_FAILED: i32 = 3;
/// the checksum is not looked at: it takes reading all bytes, and
/// memory that two processes share damages nothing
pub const OTR_MESSAGE_UNCHECKED: u32 = 1;

/// Holds what would otherwise be global: the log callback, the number of worker threads, the
/// topology.
#[repr(C)]
pub struct otr_context {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A group of ranks and its collectives. One handle is used by one thread at a time.
#[repr(C)]
pub struct otr_comm {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// One model's training state on this rank: parameters, gradients, master weights, optimizer states.
///   declared → otr_engine_add_parameter … → otr_engine_commit → otr_engine_set_initial (optional)
///   → { acquire / release, pass, step } … → otr_engine_finalize → otr_engine_destroy
/// A call in the wrong state returns OTR_E_STATE and changes nothing.
#[repr(C)]
pub struct otr_engine {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// One backward pass: from the gradients of the outputs to the gradients of the parameters. Every
/// rank makes the same number of passes in a window; a rank without data begins and ends an empty
/// one.
#[repr(C)]
pub struct otr_pass {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Values, progress and parts of a moment, in memory: this rank's, and perhaps copies of other
/// ranks', which outlive engines and communicators. For one call at a time. Its memory is no
/// engine's: see otr_snapshot_info.
#[repr(C)]
pub struct otr_snapshot {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A checkpoint that is looked at, without an engine.
#[repr(C)]
pub struct otr_checkpoint {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

#[repr(C)]
pub struct otr_checkpoint_writer {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A message that is read where it lies.
#[repr(C)]
pub struct otr_message {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A flat piece of parameters, gradients and states. The caller owns weights and gradients, the
/// shard owns the states.
#[repr(C)]
pub struct otr_shard {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// An update rule with its hyperparameters.
#[repr(C)]
pub struct otr_optimizer {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Receives one line of text, without a newline, valid during the call. May be called from any
/// thread, never from two at a time for one context. Must not call back into the library.
pub type otr_log_callback = unsafe extern "C" fn(level: i32, text: *const c_char, user_data: *mut c_void);

/// Asks whether a waiting call shall end: any number but 0 means yes, and the call returns
/// OTR_E_INTERRUPTED. A call that waits for other ranks calls it about 20 times a second, on the
/// thread that made the call and never on one of the library's; if several threads wait, they may
/// call it at the same time. It may make calls marked "any thread", such as otr_engine_abort, but
/// none that waits.
pub type otr_interrupt_callback = unsafe extern "C" fn(user_data: *mut c_void) -> i32;

/// Memory for work that comes after in that stream (numbered as DLPack does), uninitialised and
/// aligned to 256 bytes. bytes: 1 or more. Returns 0, or any other number: there is none.
pub type otr_device_allocate_callback = unsafe extern "C" fn(user_data: *mut c_void, bytes: usize, stream: u64, out_data: *mut *mut c_void) -> i32;

/// Of otr_device_allocate_callback, with its bytes. All work that uses the memory comes before in
/// that stream, which may be another one than it was allocated for.
pub type otr_device_release_callback = unsafe extern "C" fn(user_data: *mut c_void, data: *mut c_void, bytes: usize, stream: u64);

/// all receives world_size × bytes in rank order; mine does not overlap it.
pub type otr_all_gather_callback = unsafe extern "C" fn(user_data: *mut c_void, mine: *const c_void, bytes: usize, all: *mut c_void) -> i32;

/// Copies rank root's bytes to all.
pub type otr_broadcast_callback = unsafe extern "C" fn(user_data: *mut c_void, data: *mut c_void, bytes: usize, root: i32) -> i32;

/// parts holds world_size × bytes, one part for each rank; received takes what every rank has for
/// this one, in rank order.
pub type otr_all_to_all_callback = unsafe extern "C" fn(user_data: *mut c_void, parts: *const c_void, bytes: usize, received: *mut c_void) -> i32;

/// Creates a channel over the same ranks for another thread: its calls are ordered independently.
pub type otr_duplicate_callback = unsafe extern "C" fn(user_data: *mut c_void, out_user_data: *mut *mut c_void) -> i32;

/// Divides the channel's ranks into groups: rank r comes into group groups\[r\] (0 and up; -1: into
/// none), as its rank places\[r\]. Every rank calls it with the same world_size numbers, which hold
/// during the call, and gets a channel over the ranks of its own group, for the same functions. A
/// rank in no group leaves *out_user_data alone.
pub type otr_split_callback = unsafe extern "C" fn(user_data: *mut c_void, groups: *const i32, places: *const i32, out_user_data: *mut *mut c_void) -> i32;

/// Makes calls in progress on this channel return an error: on this rank, and if possible on the
/// others. Called from any thread.
pub type otr_abort_callback = unsafe extern "C" fn(user_data: *mut c_void, reason: *const c_char);

/// Frees the channel; the library calls nothing of it afterwards.
pub type otr_destroy_callback = unsafe extern "C" fn(user_data: *mut c_void);

/// The host's backward: computes gradients from the `count` scaled output gradients and hands them
/// over with otr_pass_add_grad on `pass`, which it neither ends nor destroys. Returns 0, or any
/// other number to give the pass up.
pub type otr_vjp_callback = unsafe extern "C" fn(pass: *mut otr_pass, output_grads: *const otr_tensor, count: i64, user_data: *mut c_void) -> i32;

/// Receives the record of a step: one line of JSON, UTF-8, without a newline, valid during the call.
/// Called by the thread that has called otr_engine_step, otr_engine_report or otr_step_many, before
/// that call returns. It may call the library, but not destroy the engine.
pub type otr_record_callback = unsafe extern "C" fn(record_json: *const c_char, user_data: *mut c_void);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_device {
    /// OTR_DEVICE_
    pub device_type: i32,
    /// 0 on a CPU
    pub device_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_dtype {
    /// OTR_DTYPE_
    pub code: u8,
    /// of one element
    pub bits: u8,
    /// 1
    pub lanes: u16,
}

/// A view of memory that somebody else owns; the layout is that of DLPack's DLTensor and is frozen.
/// A tensor with ndim 0 has one element. strides are in elements; NULL means row-major.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_tensor {
    pub data: *mut c_void,
    pub device: otr_device,
    pub ndim: i32,
    pub dtype: otr_dtype,
    /// ndim entries
    pub shape: *mut i64,
    /// ndim entries, or NULL
    pub strides: *mut i64,
    pub byte_offset: u64,
}

/// What a call needs beyond its tensors; NULL means all defaults, which is right on a CPU.
/// Set struct_size = sizeof(otr_call_info) and zero the rest, or use otr_call_info_init.
/// loss_scale, accumulation and ranks are the tag of gradients that come from another engine or
/// scaler: what was applied to them, so that each factor is applied once. otr_pass_get_tag fills it
/// in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_call_info {
    pub struct_size: u32,
    /// the OTR_ flags that the function names; 0 for none
    pub flags: u32,
    /// the stream in whose order the tensors are used, numbered as DLPack does; 0
    /// on a CPU. It lives until the step that ends the window
    pub stream: u64,
    /// multiplied into the gradients; 1: none; 0: no tag, the gradients are the
    /// caller's own
    pub loss_scale: f64,
    /// with a tag: number of accumulation steps they were divided by; 0: they
    /// are still to be divided
    pub accumulation: i32,
    /// with a tag: number of ranks that their sum is still to be divided by; 0: as
    /// many as in this engine
    pub ranks: i32,
    pub reserved: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_context_options {
    pub struct_size: u32,
    /// OTR_LOG_; default OTR_LOG_WARNING
    pub log_level: i32,
    /// default NULL: nothing is logged
    pub log_callback: Option<otr_log_callback>,
    pub log_user_data: *mut c_void,
    /// threads per engine for updates and reductions; 0: the share of the
    /// available cores that LOCAL_WORLD_SIZE leaves, at least 1
    pub workers: i32,
    pub reserved0: i32,
    /// default NULL: waits end by themselves only
    pub interrupt_callback: Option<otr_interrupt_callback>,
    /// given to interrupt_callback; may be NULL
    pub interrupt_user_data: *mut c_void,
    pub reserved: [u64; 4],
}

/// A host's own allocator on a device, such as PyTorch's: what the library takes there then comes
/// from the host's pool, and goes back to it. Both functions may be called from any thread, from
/// several at a time, and may call nothing of this library but otr_device_allocate and
/// otr_device_free.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_device_allocator {
    pub struct_size: u32,
    pub reserved0: i32,
    /// given to both; may be NULL
    pub user_data: *mut c_void,
    pub allocate: Option<otr_device_allocate_callback>,
    pub release: Option<otr_device_release_callback>,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_comm_options {
    pub struct_size: u32,
    /// 0 .. world_size-1; otr_comm_from_env reads it from the environment
    pub rank: i32,
    /// 1 to 512
    pub world_size: i32,
    pub reserved0: i32,
    /// seconds that a collective call may wait for a silent rank, attach included;
    /// default 300
    pub timeout: f64,
    /// ranks of one job give the same text, no other job of this user on this host
    /// does; default of otr_comm_from_env: OTR_JOB, else made of MASTER_ADDR,
    /// MASTER_PORT and the run's id and restart count
    pub job: *const c_char,
    pub reserved: [u64; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_comm_table {
    pub struct_size: u32,
    /// 0 .. world_size-1
    pub rank: i32,
    /// 1 or more
    pub world_size: i32,
    pub reserved0: i32,
    /// the first channel
    pub user_data: *mut c_void,
    pub all_gather: Option<otr_all_gather_callback>,
    /// NULL: all_gather is used
    pub broadcast: Option<otr_broadcast_callback>,
    /// NULL: all_gather is used, which moves world_size times as much
    pub all_to_all: Option<otr_all_to_all_callback>,
    pub duplicate: Option<otr_duplicate_callback>,
    /// called by otr_comm_abort and otr_engine_abort, and when an engine
    /// is destroyed during a call; NULL: these wait for the call
    pub abort: Option<otr_abort_callback>,
    /// NULL: there is nothing to free
    pub destroy: Option<otr_destroy_callback>,
    /// NULL: otr_comm_split and outrigger.mesh are OTR_E_UNSUPPORTED
    pub split: Option<otr_split_callback>,
    pub reserved: [u64; 5],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_param_options {
    pub struct_size: u32,
    /// 1 (default); 0: frozen, stored but without gradient, master and states
    pub trainable: i32,
    /// -1 (default), or the id of an earlier parameter that this name shares; group
    /// and trainable are then that parameter's and not read here
    pub alias_of: i64,
    /// parameter group; default "default". Groups have hyperparameters of their own
    pub group: *const c_char,
    /// gradients that one pass adds to this name; default 1. More are legal and
    /// cost a further reduction at the end of the pass
    pub contributions: i32,
    /// reserved for tensor parallelism; must be 0
    pub replicated: i32,
    /// with data NULL: bytes that the host uses for this value on this rank until
    /// otr_engine_set_initial (or a write of the weight) has taken it. The ledger
    /// shows them as "initial values" until then, and commit relies on their being
    /// freed. If they are a part of the value, otr_engine_set_initial adds the
    /// rest while it runs. Default 0: not counted
    pub held_bytes: i64,
    pub reserved: [u64; 5],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_memory_entry {
    pub struct_size: u32,
    /// whose memory: OTR_DEVICE_
    pub device_type: i32,
    /// "published parameters", "master weights", …; static
    pub purpose: *const c_char,
    /// now. A block that ranks of one host share is charged by slices, so the
    /// sum over ranks counts it once
    pub resident_bytes: i64,
    /// the most there was so far, the start included
    pub peak_bytes: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_offload_options {
    pub struct_size: u32,
    /// OTR_STATES_; 0 (default): all
    pub states: i32,
    /// 1 (default): host memory is page-locked as outrigger.host_memory.pin has it;
    /// 0: it is not
    pub page_lock: i32,
    pub reserved0: i32,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_estimate_options {
    pub struct_size: u32,
    /// default 1
    pub world_size: i32,
    /// default 0, which is charged for frozen parameters of a shared copy
    pub rank: i32,
    /// OTR_LAYOUT_; default ours
    pub layout: i32,
    /// 1: ranks share no memory, as over a custom communicator; default 0
    pub separate_memory: i32,
    /// 1: the host hands all gradients over at once; default 0
    pub grads_at_once: i32,
    /// of parameters that the host has acquired at a time; default 0
    pub acquired_elements: i64,
    /// of them as float32 copies; default 0
    pub widened_elements: i64,
    /// of output gradients at a time; default 0
    pub output_elements: i64,
    /// OTR_START_: peaks of the start instead of the training's; default
    /// OTR_START_NONE
    pub start: i32,
    /// of OTR_START_HELD and OTR_START_SHARED_OUT; 1 to 8, default 4
    pub initial_element_bytes: i32,
    /// of as many ranks each, over a hierarchical communicator, with separate_memory;
    /// default 1: one level
    pub hosts: i32,
    /// 1: as if the engine were on a device, whatever it is on; default 0: where it
    /// is
    pub on_device: i32,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_step_report {
    pub struct_size: u32,
    /// OTR_STEP_
    pub outcome: i32,
    /// OTR_SKIP_
    pub reason: i32,
    /// rank whose contribution was not finite; -1: none, or only the sum was
    /// not
    pub nonfinite_rank: i32,
    /// lowest id of a parameter whose gradient is not finite; -1: none
    pub nonfinite_param: i64,
    /// elements not finite, over all ranks and parameters
    pub nonfinite_count: i64,
    /// step calls since commit
    pub micro_steps: i64,
    /// updates since commit
    pub applied_steps: i64,
    /// skips since commit
    pub skipped_steps: i64,
    /// L2 norm of the mean gradient, before clipping; Inf or NaN if skipped for it
    pub grad_norm: f64,
    /// factor that clipping applied; 1: none
    pub clip_coefficient: f64,
    /// of this window's passes
    pub loss_scale: f64,
    /// of the default group, as used; under a schedule, what it gives
    pub lr: f64,
    /// elements whose update was not zero, over all ranks
    pub updates: i64,
    /// of these, the ones whose weight stayed the same after rounding
    pub vanished: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_watch_options {
    pub struct_size: u32,
    pub reserved0: i32,
    /// of the engine, in what this call begins; NULL (default): none
    pub name: *const c_char,
    /// a folder, made if need be, for records as JSON lines: rank-0.jsonl of
    /// rank 0, or where that is there rank-0-2.jsonl, and so on; NULL: none
    pub records: *const c_char,
    /// a folder, the same way, for a trace of up to 256 MiB: rank-0.trace.json;
    /// NULL: none
    pub trace: *const c_char,
    /// NULL: none
    pub callback: Option<otr_record_callback>,
    /// given to callback; may be NULL
    pub user_data: *mut c_void,
    pub reserved: [u64; 4],
}

/// Bytes of the host that ride along: random states, a place in the data, anything.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_part {
    /// UTF-8, different from the others'
    pub name: *const c_char,
    pub data: *const c_void,
    pub bytes: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_save_options {
    pub struct_size: u32,
    /// after it, the checkpoints of the most steps that stay; 0 (default): all
    pub keep_last: i32,
    /// 1: a folder of the same tag may be there, and is replaced; what in it is not
    /// a checkpoint's own stays there
    pub replace: i32,
    /// 1: the call returns before the values are written; default 0
    pub asynchronous: i32,
    /// OTR_SAVE_WAIT (default) or OTR_SAVE_REFUSE
    pub when_busy: i32,
    pub reserved0: u32,
    /// this rank's; NULL with part_count 0
    pub parts: *const otr_part,
    pub part_count: i64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_save_status {
    pub struct_size: u32,
    /// OTR_SAVE_
    pub state: i32,
    /// of this rank's file
    pub bytes: i64,
    pub bytes_written: i64,
    /// how long the call, and later ones, took to copy
    pub held_up_seconds: f64,
    /// from the call to the end, or to now
    pub seconds: f64,
    pub reserved: [u64; 4],
}

/// What a parameter here is called in the checkpoint: two names, or two beginnings of names that
/// both end in one '*' ("*" and "model.*"). Of parameters that both mean, a name goes before a
/// beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_rename {
    pub here: *const c_char,
    pub there: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_load_options {
    pub struct_size: u32,
    /// 1: no moments and no progress; default 0
    pub weights_only: i32,
    /// 1 (default): what differs is an error; 0: those that are in both, with
    /// weights_only. See otr_engine_load
    pub strict: i32,
    pub reserved0: u32,
    /// patterns of names here: these are loaded, with weights_only; NULL
    /// with include_count 0 (default): all
    pub include: *const *const c_char,
    pub include_count: i64,
    /// patterns of names here: these are not; they go before include
    pub exclude: *const *const c_char,
    pub exclude_count: i64,
    /// default NULL with renamed_count 0: each has its own name there
    pub renamed: *const otr_rename,
    pub renamed_count: i64,
    /// patterns of names here, whose first dimension may be another one
    /// there: the rows that are in both are taken, the others stay; with
    /// weights_only
    pub resized: *const *const c_char,
    pub resized_count: i64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_snapshot_options {
    pub struct_size: u32,
    /// other ranks that keep a copy of each rank's, 0 (default) to 7, and fewer than
    /// there are ranks
    pub replicas: i32,
    /// this rank's; NULL with part_count 0
    pub parts: *const otr_part,
    pub part_count: i64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_snapshot_info {
    pub struct_size: u32,
    /// whose process filled it; -1: it is empty
    pub rank: i32,
    /// of ranks, this one's and others'
    pub copies: i32,
    pub world_size: i32,
    /// of the training at that moment
    pub micro_steps: i64,
    /// of memory that it takes
    pub bytes: i64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_export_options {
    pub struct_size: u32,
    /// 1: files of these names may be there, and are replaced; default 0
    pub replace: i32,
    /// "float32" (default), "bfloat16" or "float16": rounded to nearest even
    pub dtype: *const c_char,
    /// of tensors in a file; 0 (default): path is the one file
    pub max_shard_bytes: i64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_writer_options {
    pub struct_size: u32,
    /// 1: a checkpoint of the same tag may be there, and is replaced
    pub replace: i32,
    /// what weights are kept as: "float32" (default), "bfloat16", "float16"
    pub master: *const c_char,
    /// the same of the first moment; NULL (default): there is none
    pub exp_avg: *const c_char,
    /// of the second one
    pub exp_avg_sq: *const c_char,
    /// how many updates were made: bias corrections and schedules go on from
    /// there; -1 (default): not known, only weights can be loaded
    pub applied_steps: i64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_writer_param_options {
    pub struct_size: u32,
    /// 0: frozen, with a weight only; default 1
    pub trainable: i32,
    /// the name of an earlier parameter that this name shares, as many elements;
    /// default NULL
    pub alias_of: *const c_char,
    /// the parameter group; NULL (default): "default"
    pub group: *const c_char,
    /// how many it had; -1 (default): applied_steps
    pub updates: i64,
    /// 0: it has no such moment, though others have; default 1
    pub exp_avg: i32,
    pub exp_avg_sq: i32,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_import_options {
    pub struct_size: u32,
    /// 1: a checkpoint of the same tag may be there, and is replaced
    pub replace: i32,
    /// 1: tensors that are no floats are left out; 0 (default): refused
    pub skip_other_dtypes: i32,
    pub reserved0: u32,
    pub reserved: [u64; 4],
}

/// A text of the host's that goes along.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_message_attribute {
    /// UTF-8, different from the others'
    pub name: *const c_char,
    /// UTF-8
    pub text: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_message_options {
    pub struct_size: u32,
    pub reserved0: u32,
    /// the host's number for it, 0 (default) or more
    pub micro_batch: i64,
    /// of gradients: what was applied to them (otr_pass_get_tag); NULL
    /// (default): nothing is said. Its flags and stream are 0
    pub tag: *const otr_call_info,
    /// NULL with attribute_count 0
    pub attributes: *const otr_message_attribute,
    pub attribute_count: i64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_message_info {
    pub struct_size: u32,
    pub reserved0: u32,
    pub micro_batch: i64,
    pub tensor_count: i64,
    pub attribute_count: i64,
    /// of the message
    pub bytes: i64,
    pub reserved: [u64; 4],
}

/// Rows that rank `source` of one group has and rank `target` of another group needs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_message_route {
    pub source: i32,
    pub target: i32,
    /// the first of them, in the rows of `source`
    pub source_row: i64,
    /// the same, in the rows of `target`
    pub target_row: i64,
    pub rows: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct otr_shard_options {
    pub struct_size: u32,
    pub reserved0: u32,
    /// names the random stream of stochastic rounding; default "shard"
    pub name: *const c_char,
    /// index of the first element in the whole parameter: the same bits
    /// however it is cut, if cuts are multiples of 256; default 0
    pub first_element: i64,
    /// bfloat16 or float16, 1-D, same count: receives the updated float32
    /// weights; default NULL
    pub published: *const otr_tensor,
    /// uint16 or int16, 1-D, same count, beside bfloat16 weights: the
    /// other half of a split master ("split"), together exactly a
    /// float32; the caller's, updated with the weights; default NULL
    pub remainder: *const otr_tensor,
    /// for Muon: the shard is a matrix of so many rows, row by row, and
    /// is orthogonalised as a whole; a divisor of the count; default 0:
    /// no matrix, updated by AdamW
    pub rows: i64,
    pub reserved: [u64; 4],
}

functions! {
    /// The name of a status code, such as "OTR_E_TIMEOUT"; "unknown" for any other number.
    /// Never NULL, static. Any thread. Since: 0.1
    pub fn otr_status_name(status: i32) -> *const c_char;
    /// Why the last fallible call of this thread failed: one line naming the value, the rule and the way
    /// out. Empty after a success. Functions without a status (destroy above all, which a collector may
    /// run at any moment) leave it alone. Never NULL; valid until this thread's next fallible call. Any
    /// thread. Since: 0.1
    pub fn otr_last_error_message() -> *const c_char;
    /// OTR_VERSION_STRING of the library that is loaded. Static. Any thread. Since: 0.1
    pub fn otr_version() -> *const c_char;
    /// OTR_ABI_VERSION of the library that is loaded; a binding compares it with its own at load.
    /// Any thread. Since: 0.1
    pub fn otr_abi_version() -> i32;
    /// JSON: version, compiler, instruction sets found and used, communicator providers. Static. Any
    /// thread. Since: 0.1
    pub fn otr_build_info() -> *const c_char;
    /// JSON: what this machine and this process offer: cores, caches, NUMA nodes, memory and its limits,
    /// huge pages, locked memory, shared memory, instruction sets, communicators, plugins (docs/tools.md
    /// shows it). Each call reads anew. A value that cannot be read, or a limit that is not set, is
    /// null, and "\<name\>_reason" beside it says why. *inout_size: in, the size of buffer in bytes; out,
    /// the size needed with the final NUL. buffer may be NULL with size 0, to ask (OTR_OK): the answer
    /// then leaves room for numbers that grow before the second call. OTR_E_BUFFER_SIZE: too small. Any
    /// thread. Since: 0.1
    pub fn otr_machine_info(buffer: *mut c_char, inout_size: *mut usize) -> i32;
    /// Fills *out_tensor with a row-major CPU tensor. data may be NULL: no elements, or no values where
    /// a function allows that. shape is kept by reference: it has to outlive the tensor; NULL if ndim is
    /// 0. dtype: "float32", "bfloat16", "float16" or "float64"; for messages alone also "bool", "int8",
    /// "int16", "int32", "int64" and the same with "uint". OTR_E_ARGUMENT: ndim outside 0 to 64, no
    /// shape, or a negative extent; OTR_E_DTYPE: another dtype. Any thread. Since: 0.1
    pub fn otr_tensor_init(data: *mut c_void, dtype: *const c_char, ndim: i32, shape: *mut i64, out_tensor: *mut otr_tensor) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_call_info_init(info: *mut otr_call_info, size: usize) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_context_options_init(options: *mut otr_context_options, size: usize) -> i32;
    /// options: NULL for defaults. Starts no thread. Any thread. Since: 0.1
    pub fn otr_context_create(options: *const otr_context_options, out_context: *mut *mut otr_context) -> i32;
    /// Children keep working: they hold the context. Any thread. Since: 0.1
    pub fn otr_context_destroy(context: *mut otr_context);
    /// Loads a plugin that drives a kind of device: by its name ("cuda", "simulated"), which is looked
    /// for in the folders of OTR_PLUGIN_PATH (colons between), beside this library and in the system's
    /// folders; or by a path that contains '/'. Loading it again is a no-op. "cuda" loads
    /// automatically when it is first needed. Any thread. OTR_E_NOT_FOUND lists every path tried, with
    /// the reason; OTR_E_ABI: a plugin of another release. Since: 0.1
    pub fn otr_context_load_plugin(context: *mut otr_context, name: *const c_char) -> i32;
    /// The number of devices of a type. Any thread. OTR_E_NOT_FOUND: no plugin drives the type.
    /// Since: 0.1
    pub fn otr_device_count(context: *mut otr_context, device_type: i32, out_count: *mut i32) -> i32;
    /// A setting of the device's plugin: on the simulated device "copy_bytes_per_second",
    /// "kernel_bytes_per_second" (0: no limit), "copy_latency", "launch_latency" (seconds; 0: at once),
    /// "skip_kernels" (1: kernels take their time and compute nothing), "memory_bytes", the faults
    /// "fail_allocation", "fail_operation" and "fail_pin" (n: the n-th next one fails; 0: none), and
    /// "delay" (seconds that the default stream is busy, from now on; 0: those that were given end now).
    /// Any thread. OTR_E_NOT_FOUND lists the names. Since: 0.1
    pub fn otr_device_set_value(context: *mut otr_context, device_type: i32, device_id: i32, name: *const c_char, value: f64) -> i32;
    /// A setting, or what the device's plugin counts, since the process began to use the device: the
    /// simulated device counts "allocations" (which a driver may wait for), "stream_allocations" (in the
    /// order of a stream), "synchronizations" (waits of the host for a stream or the device),
    /// "event_synchronizations", "unpinned_bytes" (copied from or to host memory that is not
    /// page-locked, for which the host waits), "bytes_to_device", "bytes_to_host" and "kernels". Any
    /// thread. OTR_E_NOT_FOUND lists the names. Since: 0.1
    pub fn otr_device_get_value(context: *mut otr_context, device_type: i32, device_id: i32, name: *const c_char, out_value: *mut f64) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_device_allocator_init(allocator: *mut otr_device_allocator, size: usize) -> i32;
    /// From now on the context's engines take a device's memory from this allocator, which serves until
    /// they and the context are destroyed; NULL: from the device's plugin again. Memory of
    /// otr_device_allocate stays the plugin's. Any thread. OTR_E_STATE: engines hold memory of that
    /// device. OTR_E_NOT_FOUND: no plugin drives the type. Since: 0.1
    pub fn otr_device_set_allocator(context: *mut otr_context, device_type: i32, device_id: i32, allocator: *const otr_device_allocator) -> i32;
    /// Zero-filled memory of a device, for a host that has no allocator of its own there. bytes: 1 or
    /// more. Any thread. OTR_E_OUT_OF_MEMORY. Since: 0.1
    pub fn otr_device_allocate(context: *mut otr_context, device_type: i32, device_id: i32, bytes: usize, out_data: *mut *mut c_void) -> i32;
    /// Gives memory of otr_device_allocate back, once the device has done what it was given before.
    /// data may be NULL. Any thread. OTR_E_ARGUMENT: no live allocation of that device. Since: 0.1
    pub fn otr_device_free(context: *mut otr_context, device_type: i32, device_id: i32, data: *mut c_void) -> i32;
    /// to = from: equal shapes and dtypes, row-major, each on the CPU or a device (two devices: the same
    /// one). In the order of the default stream; returns when it is done. Work of other streams has to
    /// be over before. Any thread. Since: 0.1
    pub fn otr_tensor_copy(context: *mut otr_context, to: *const otr_tensor, from: *const otr_tensor) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_comm_options_init(options: *mut otr_comm_options, size: usize) -> i32;
    /// A group of one. Local. Since: 0.1
    pub fn otr_comm_create_self(context: *mut otr_context, out_comm: *mut *mut otr_comm) -> i32;
    /// A group of world_size ranks inside this process, for tests and simulation: out_comms receives
    /// world_size handles, and each is then driven by a thread of its own. options: NULL, or a timeout.
    /// Local. Since: 0.1
    pub fn otr_comm_create_threads(context: *mut otr_context, world_size: i32, options: *const otr_comm_options, out_comms: *mut *mut otr_comm) -> i32;
    /// A group of processes of one user on this host, over shared memory, without any file. options:
    /// rank, world_size and job are required. If a rank dies, all others report it within a second.
    /// Collective. OTR_E_TIMEOUT names the ranks that did not come. Since: 0.1
    pub fn otr_comm_create_shm(context: *mut otr_context, options: *const otr_comm_options, out_comm: *mut *mut otr_comm) -> i32;
    /// The group that the launcher describes by RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and
    /// MASTER_PORT (torchrun, "outrigger run"; or OMPI_COMM_WORLD_*, or SLURM_*). World size 1 or no
    /// such variable: a group of one. All ranks on one host: shared memory. On several hosts, started by
    /// mpirun or srun: MPI, with shared memory on each host where all have as many consecutive ranks
    /// (otr_comm_create_mpi, otr_comm_create_hierarchical). options: NULL, or a timeout
    /// and job; docs/contract.md lists every variable. Collective. OTR_E_CONFIG lists what was found in
    /// the environment. Since: 0.1
    pub fn otr_comm_from_env(context: *mut otr_context, options: *const otr_comm_options, out_comm: *mut *mut otr_comm) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_comm_table_init(table: *mut otr_comm_table, size: usize) -> i32;
    /// A group over the caller's functions. Its ranks share no memory: at stages 1 and 2 each rank has a
    /// copy of the published parameters, at stage 3 only its slices, and otr_engine_acquire is
    /// collective. The table is copied. The library calls destroy with user_data once the communicator
    /// and all engines made from it are gone; if this call fails, user_data stays the caller's.
    /// Collective. Since: 0.1
    pub fn otr_comm_create_custom(context: *mut otr_context, table: *const otr_comm_table, out_comm: *mut *mut otr_comm) -> i32;
    /// The ranks of an MPI communicator, on any hosts. mpi_comm: the address of an MPI_Comm, or NULL for
    /// MPI_COMM_WORLD; a copy of it is used, so it stays the caller's. The library is the one that this
    /// process has loaded, else the launcher's (docs/mpi.md); MPI is initialised if nobody has done
    /// that, and then finalised at the process's end. It needs MPI_THREAD_MULTIPLE; with
    /// MPI_THREAD_SERIALIZED the host makes no MPI call during one of ours or during a pass. Destroy all
    /// that is made from it before MPI_Finalize. Ranks share no memory, as with otr_comm_create_custom.
    /// options: NULL, or a timeout. Collective. OTR_E_NOT_FOUND: no plugin or no MPI library, with every
    /// path tried; OTR_E_UNSUPPORTED: MPI was initialised without threads. Since: 0.1
    pub fn otr_comm_create_mpi(context: *mut otr_context, mpi_comm: *const c_void, options: *const otr_comm_options, out_comm: *mut *mut otr_comm) -> i32;
    /// A communicator of two levels, for hosts that exchange little: `world` has every rank, `host`
    /// those of this rank's host (such as otr_comm_create_shm), `across` those at this rank's place on
    /// each host (such as otr_comm_create_custom). Every host has as many ranks, L, and they are
    /// consecutive: rank r of `world` is rank r % L of `host` and rank r / L of `across`. Gradients are
    /// summed over the ranks of a host first, in float32, and one sum goes to each other host: 4 bytes
    /// an element of what a host sends another, where one level sends each rank's. So the order of
    /// additions differs from one level's, and is stated (docs/contract.md, section 1). Ranks share no
    /// memory for parameters. The three stay the caller's, and can be destroyed. Collective over all
    /// three. OTR_E_ARGUMENT, on all ranks: a rank has another place. Since: 0.1
    pub fn otr_comm_create_hierarchical(world: *mut otr_comm, host: *mut otr_comm, across: *mut otr_comm, out_comm: *mut *mut otr_comm) -> i32;
    /// A second group of the same ranks, for another thread: its collective calls are ordered
    /// independently. Collective. Since: 0.1
    pub fn otr_comm_duplicate(comm: *mut otr_comm, out_comm: *mut *mut otr_comm) -> i32;
    /// Creates a group for each color, of the ranks that give it, ordered by key and then by rank. With
    /// color -1 a rank joins no group and *out_comm is NULL. Collective. OTR_E_UNSUPPORTED: a custom
    /// communicator whose table has no split. Since: 0.1
    pub fn otr_comm_split(comm: *mut otr_comm, color: i32, key: i32, out_comm: *mut *mut otr_comm) -> i32;
    /// Local. Any thread. Since: 0.1
    pub fn otr_comm_rank(comm: *const otr_comm, out_rank: *mut i32) -> i32;
    pub fn otr_comm_size(comm: *const otr_comm, out_world_size: *mut i32) -> i32;
    /// 1: the ranks see each other's memory, so parameters are one copy for all of them where the
    /// configuration allows that, and acquiring one is local. 0: they do not. Local. Any thread.
    /// Since: 0.1
    pub fn otr_comm_shares_memory(comm: *const otr_comm, out_shares: *mut i32) -> i32;
    /// Returns when every rank has called it. Collective. Since: 0.1
    pub fn otr_comm_barrier(comm: *mut otr_comm) -> i32;
    /// Copies `bytes` bytes of rank `root`'s data to all others. Collective. Since: 0.1
    pub fn otr_comm_broadcast(comm: *mut otr_comm, data: *mut c_void, bytes: usize, root: i32) -> i32;
    /// all receives world_size × bytes, in rank order; `bytes` is equal on all ranks. Collective.
    /// Since: 0.1
    pub fn otr_comm_all_gather(comm: *mut otr_comm, mine: *const c_void, bytes: usize, all: *mut c_void) -> i32;
    /// Sends a part to every rank and receives one from each, this one too. parts: part_bytes\[r\] bytes
    /// for rank r, one part behind the other; received: received_bytes\[r\] bytes of rank r, in rank
    /// order, as many as it sends here. Both arrays have world_size entries, which may differ and be 0.
    /// parts and received do not overlap. On each rank the first call reserves 8 MiB at most, or 8 KiB
    /// for each rank of the group if that is more. Collective. OTR_E_MISMATCH: a rank expects other
    /// sizes than are sent: all ranks are told, received is not defined, and the group goes on;
    /// OTR_E_UNSUPPORTED: a communicator of two levels. Since: 0.1
    pub fn otr_comm_all_to_all(comm: *mut otr_comm, parts: *const c_void, part_bytes: *const usize, received: *mut c_void, received_bytes: *const usize) -> i32;
    /// Replaces each of `count` values by its sum over ranks, added in rank order, so all ranks hold the
    /// same bits. Collective. Since: 0.1
    pub fn otr_comm_all_reduce_sum(comm: *mut otr_comm, values: *mut f64, count: usize) -> i32;
    /// Ends the group: every rank's pending and later collective calls return OTR_E_ABORTED with this
    /// rank's number and `reason` (NULL allowed). Local. Any thread. Since: 0.1
    pub fn otr_comm_abort(comm: *mut otr_comm, reason: *const c_char) -> i32;
    /// Leaves the group; engines made from it go on, because they hold groups of their own. A rank that
    /// still waits for this one gets OTR_E_PEER_DEAD. Local. Any thread. Since: 0.1
    pub fn otr_comm_destroy(comm: *mut otr_comm);
    /// Reads the configuration: DeepSpeed-compatible JSON, with own keys under "outrigger"
    /// (docs/configuration.md lists all). config_json: NUL-terminated UTF-8; NULL or "" for defaults
    /// (float32, stage 0, AdamW, no clipping). The engine keeps the communicator. Local. OTR_E_CONFIG:
    /// path, line and remedy of the first fault; OTR_E_UNSUPPORTED: legal but not built yet. Since: 0.1
    pub fn otr_engine_create(comm: *mut otr_comm, config_json: *const c_char, out_engine: *mut *mut otr_engine) -> i32;
    /// Puts the engine on a device (or back on the CPU): its parameters, and the gradients that the host
    /// gives, are tensors there. Master weights, moments and summed gradients are there too, or, with
    /// zero_optimization.offload_optimizer, in host memory. Call it right after otr_engine_create,
    /// before anything else is set or declared. Every rank gives the same device_type. Local.
    /// OTR_E_CONFIG: the configuration needs offload there; OTR_E_STATE: parameters are declared
    /// already. Since: 0.1
    pub fn otr_engine_set_device(engine: *mut otr_engine, device_type: i32, device_id: i32) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_param_options_init(options: *mut otr_param_options, size: usize) -> i32;
    /// Declares a parameter, before commit. name: unique, UTF-8. initial: shape and values, float32,
    /// bfloat16, float16 or float64, any strides, copied now; or data NULL: the value is then 0 until
    /// otr_engine_set_initial or otr_engine_parameter_write. Any shape, empty ones included.
    /// Cost: rank 0 keeps the values that are given here, 4 bytes an element, until commit sends them to
    /// all; those of the others are ignored. With "initial_values": "compare" each rank keeps its own,
    /// and equal ones are not sent. Data NULL and otr_engine_set_initial need no memory beyond what the
    /// host holds itself, and send nothing where all ranks have the same values.
    /// Every rank declares the same parameters in the same order. For an alias, initial is NULL or has
    /// the same shape and is not read. Ids count from 0. Local. OTR_E_STATE after commit;
    /// OTR_E_DUPLICATE: the name is taken. Since: 0.1
    pub fn otr_engine_add_parameter(engine: *mut otr_engine, name: *const c_char, initial: *const otr_tensor, options: *const otr_param_options, out_id: *mut i64) -> i32;
    /// Compares the configuration and the declarations of all ranks, computes the layout, allocates all
    /// large blocks, and distributes rank 0's values. Collective. OTR_E_MISMATCH names the first
    /// difference and its rank; OTR_E_OUT_OF_MEMORY says what was needed for what. Since: 0.1
    pub fn otr_engine_commit(engine: *mut otr_engine) -> i32;
    /// Gives parameters their first values, between commit and the first pass. It may be called any
    /// number of times, for instance for one module at a time, whose memory the host then frees. ids:
    /// count of them, the same on all ranks; values: a whole value for each, its shape, float32,
    /// bfloat16, float16 or float64, any strides, on the CPU or the engine's device; read during the
    /// call only. An alias sets the parameter that it shares. Each rank keeps its part of what it gave.
    /// Where ranks gave different values, rank 0's are sent to all, in pieces (with "initial_values":
    /// "verify" this is an error). A float32 or split master starts with the values as given, unless
    /// "round_initial_values" is set. When the call returns, all ranks may read the values. count may be
    /// 0, ids and values then NULL. Collective. OTR_E_STATE: a pass was begun already; OTR_E_SHAPE,
    /// OTR_E_DTYPE, OTR_E_NOT_FOUND: nothing was done; OTR_E_MISMATCH: ranks give other ids, or with
    /// "initial_values": "verify" other values. Since: 0.1
    pub fn otr_engine_set_initial(engine: *mut otr_engine, ids: *const i64, count: i64, values: *const otr_tensor) -> i32;
    /// Waits for all background work of all ranks, an asynchronous save among it, and ends the engine's
    /// collectives. All memory is given back. Acquired tensors and slots become invalid, also those that
    /// were not released; their addresses stay until destroy. Collective. A failure of that save comes
    /// first: the engine is as before then, and the call can be made again. Since: 0.1
    pub fn otr_engine_finalize(engine: *mut otr_engine) -> i32;
    /// Tells all ranks that this engine cannot go on: their collective calls return OTR_E_ABORTED with
    /// this rank's number and `reason` (NULL allowed). Local. Any thread. Since: 0.1
    pub fn otr_engine_abort(engine: *mut otr_engine, reason: *const c_char) -> i32;
    /// OTR_OK, or the first failure of background work or of a collective call (sticky). Local. Any
    /// thread. Since: 0.1
    pub fn otr_engine_check(engine: *mut otr_engine) -> i32;
    /// Local; never waits for other ranks. Tensors that the engine handed out become invalid, and an
    /// asynchronous save that is not complete does not appear. Since: 0.1
    pub fn otr_engine_destroy(engine: *mut otr_engine);
    /// Passes not destroyed yet; for leak tests. Any thread. Since: 0.1
    pub fn otr_engine_live_children(engine: *const otr_engine, out_count: *mut i64) -> i32;
    /// Parameters declared, aliases and frozen ones included. Any thread. Since: 0.1
    pub fn otr_engine_parameter_count(engine: *const otr_engine, out_count: *mut i64) -> i32;
    /// OTR_E_NOT_FOUND gives the nearest known name. Any thread. Since: 0.1
    pub fn otr_engine_parameter_id(engine: *const otr_engine, name: *const c_char, out_id: *mut i64) -> i32;
    /// The parameter's name; valid as long as the engine. Any thread. Since: 0.1
    pub fn otr_engine_parameter_name(engine: *const otr_engine, id: i64, out_name: *mut *const c_char) -> i32;
    /// The parameter's shape; *out_shape has *out_ndim entries (NULL for none) and lives as long as the
    /// engine. Any thread. Since: 0.1
    pub fn otr_engine_parameter_shape(engine: *const otr_engine, id: i64, out_ndim: *mut i32, out_shape: *mut *const i64) -> i32;
    /// Makes the parameters readable in the published format (the compute dtype), or in float32 with
    /// OTR_ACQUIRE_FLOAT32 in info. ids: count ids; out_tensors: count tensors, whose shape and strides
    /// belong to the engine. Read-only, valid until the matching release or the next step, whichever
    /// comes first. In the published format on the host a parameter keeps its address for the engine's
    /// life: a tensor that you keep is valid again after the next acquire, and reads zeros in between
    /// where acquire is collective. Acquires of one id nest. ids and out_tensors may be NULL with count
    /// 0. Local where ranks share memory or have copies: a tensor in the published format is then a
    /// pointer and costs nothing. Collective at stage 3 over a custom communicator, on a device and
    /// without "share_parameters". If such a call is interrupted, nothing is acquired; made again with
    /// the same ids, it continues with what is missing. With offload_param a device's tensors are copies
    /// of host memory: local where ranks share that, and in the order of the stream of info; the host
    /// does not wait for them. While a step is pending (otr_engine_step_begin) the call waits until it
    /// has updated these parameters, and fails as the step does. May wait. Since: 0.1
    pub fn otr_engine_acquire(engine: *mut otr_engine, ids: *const i64, count: i64, info: *const otr_call_info, out_tensors: *mut otr_tensor) -> i32;
    /// Ends one acquire of each id; float32 copies are freed with the last. With offload_param the copy
    /// on the device stays for the next acquire as long as stage3_max_live_parameters and the device's
    /// memory have room for it, at most until the next step. Local. While a step is pending the call
    /// waits for the sum of its gradients. May wait.
    /// Where acquire is collective, every rank releases an id before or after the same acquires.
    /// OTR_E_STATE: an id that is not acquired. Since: 0.1
    pub fn otr_engine_release(engine: *mut otr_engine, ids: *const i64, count: i64, info: *const otr_call_info) -> i32;
    /// Starts to gather these parameters on a thread of the library, for acquires with the same info
    /// that follow soon. Where acquire is collective, every rank prefetches the same ids at the same
    /// point of its sequence of collective calls and local writes of weights; a prefetched parameter
    /// stays until it is acquired and released, or until the step. With offload_param, where acquire is
    /// local, copies to the device begin, of those for which stage3_max_live_parameters has room.
    /// Elsewhere the call only checks its arguments. It is an optimization only, and does not wait for
    /// other ranks. While a step is pending the call waits for the sum of its gradients, and leaves out
    /// parameters that are not updated yet; where acquire is collective it waits for the step. Local.
    /// May wait. Since: 0.1
    pub fn otr_engine_prefetch(engine: *mut otr_engine, ids: *const i64, count: i64, info: *const otr_call_info) -> i32;
    /// Copies a value of the whole parameter into `out` (its shape, any strides; float32, bfloat16,
    /// float16 or float64, rounded to nearest even) on every rank. An alias reads what it shares.
    /// Collective. OTR_E_NOT_FOUND: the parameter has no such value. Since: 0.1
    pub fn otr_engine_parameter_read(engine: *mut otr_engine, id: i64, value: i32, out: *const otr_tensor) -> i32;
    /// Sets a value of the whole parameter from rank 0's tensor (its shape, any strides).
    /// OTR_VALUE_MASTER sets the weight: the master and from it the published value; of a frozen
    /// parameter, the published value. Weights and moments cannot be written between a pass and its
    /// step. Exception: with optimizer.type "Host", weights can be written after otr_engine_reduce,
    /// unless its report says that the window is skipped. After a gradient was written, the step (with
    /// "Host" the next otr_engine_reduce) computes norm, Inf/NaN and clipping anew. Collective.
    /// OTR_E_NOT_FOUND: the parameter has no such value; OTR_E_ARGUMENT: OTR_VALUE_PUBLISHED, which
    /// follows the master. Since: 0.1
    pub fn otr_engine_parameter_write(engine: *mut otr_engine, id: i64, value: i32, source: *const otr_tensor) -> i32;
    /// The elements of a parameter that this rank updates: *out_count from *out_first on, in row-major
    /// order; count 0: none. The same for master, moments and gradient. Local. Since: 0.1
    pub fn otr_engine_local_range(engine: *const otr_engine, id: i64, out_first: *mut i64, out_count: *mut i64) -> i32;
    /// Like otr_engine_parameter_read, for the elements of otr_engine_local_range only: `out` is 1-D
    /// with that count. Local. Since: 0.1
    pub fn otr_engine_local_read(engine: *mut otr_engine, id: i64, value: i32, out: *const otr_tensor) -> i32;
    /// Like otr_engine_parameter_write, each rank for its own elements. Where ranks share parameters, a
    /// written weight is visible to the others at once: make sure that all have read it before any
    /// writes it, and that all have written it before any reads it, with otr_comm_barrier for example.
    /// Elsewhere (a custom communicator, a device, "share_parameters": false) the others see it at
    /// stages 1 and 2 after the next applied step or otr_engine_parameter_write of a weight, at stage 3
    /// when they acquire it next, unless it was prefetched before. With offload_param on a device ranks
    /// that have acquired it since the last step may see it after the next one only. With a mesh, ranks
    /// of all groups that have the same elements write the same values; nobody checks it. With "states":
    /// "all" there, ranks of other groups see it, at every stage, after the next applied step or
    /// otr_engine_parameter_write of a weight. Local; waits for parameters that are being prefetched.
    /// Since: 0.1
    pub fn otr_engine_local_write(engine: *mut otr_engine, id: i64, value: i32, source: *const otr_tensor) -> i32;
    /// Freezes (0) a parameter that was declared trainable, or thaws it (1), with all its names: while
    /// frozen it takes no gradient, is not updated, and keeps its master and moments. Not allowed
    /// between a pass and its step. Every rank makes the same call; step compares. Local. OTR_E_STATE:
    /// declared frozen. Since: 0.1
    pub fn otr_engine_set_trainable(engine: *mut otr_engine, id: i64, trainable: i32) -> i32;
    /// Sets a hyperparameter of a parameter group (NULL: of all groups) from the next step on: "lr",
    /// "weight_decay", and as far as the rule has them "adam_lr" (Muon's rate for parameters that are
    /// not matrices), "eps", "beta1", "beta2", "momentum" and "dampening". Under a schedule (the
    /// configuration's "scheduler") "lr" is the rate that it scales. Every rank sets the same value;
    /// step compares. Local. OTR_E_NOT_FOUND: no such group or name; OTR_E_ARGUMENT: outside the legal
    /// range; OTR_E_STATE: the schedule alone gives the value. Since: 0.1
    pub fn otr_engine_set_group_value(engine: *mut otr_engine, group: *const c_char, name: *const c_char, value: f64) -> i32;
    /// group NULL: the "default" group. A value that the schedule alone gives is that of the next
    /// update; "scheduled_lr" is the rate of the next update under any schedule, or none. Local.
    /// Since: 0.1
    pub fn otr_engine_get_group_value(engine: *const otr_engine, group: *const c_char, name: *const c_char, out_value: *mut f64) -> i32;
    /// The configuration in effect: every key with its value and origin ("user", "default", "derived"),
    /// as JSON. *inout_size: in, the size of buffer in bytes; out, the size needed with the final NUL.
    /// buffer may be NULL with size 0, to ask (OTR_OK). OTR_E_BUFFER_SIZE: too small. Local. Since: 0.1
    pub fn otr_engine_config(engine: *const otr_engine, buffer: *mut c_char, inout_size: *mut usize) -> i32;
    /// Checks a configuration for a world size without creating anything; buffer receives what
    /// otr_engine_config would give. Any thread. Since: 0.1
    pub fn otr_config_check(config_json: *const c_char, world_size: i32, buffer: *mut c_char, inout_size: *mut usize) -> i32;
    /// The ledger: one entry for each purpose, then one with the purpose "total" (whose peak is the peak
    /// of the sum); first for the CPU's memory, then, if the engine is on a device, for the device's.
    /// The total's peak follows what the system counts: private blocks that commit creates (moments,
    /// separate masters, summed gradients) enter it with their first value, or with the first pass,
    /// although the entries show them as resident at once. entries: room for *inout_count entries, with
    /// struct_size set in the first one; on return, *inout_count is the number of entries. entries may
    /// be NULL with count 0, to ask for that number (OTR_OK). OTR_E_BUFFER_SIZE: too few. Local.
    /// Since: 0.1
    pub fn otr_engine_memory(engine: *const otr_engine, entries: *mut otr_memory_entry, inout_count: *mut usize) -> i32;
    /// What the system has given for the engine's host memory in blocks of a MiB and more and in windows
    /// that ranks share (this rank's part), as JSON: "bytes" of address space; "resident_bytes",
    /// "huge_bytes" and "locked_bytes" of it, or null with the "reason"; "nodes" that its pages lie on;
    /// "binding" of pages to memory nodes, and "pin", page-locking for a device's copies: what was asked
    /// for, what there is, and the reason where that is less. Where the system keeps a block in one
    /// mapping with other memory, the mapping's figures count by the block's share. *inout_size: in, the
    /// size of buffer in bytes; out, the size needed with the final NUL. buffer may be NULL with size 0,
    /// to ask (OTR_OK); the text may be longer at the next call. Takes milliseconds. OTR_E_BUFFER_SIZE:
    /// too small. Local. Since: 0.1
    pub fn otr_engine_host_memory(engine: *const otr_engine, buffer: *mut c_char, inout_size: *mut usize) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_offload_options_init(options: *mut otr_offload_options, size: usize) -> i32;
    /// Moves states from the device to host memory, so that others can use the device between two
    /// windows; returns when its memory is free. otr_engine_memory shows where they are. What is on the
    /// host already stays; so does a bucket for the exchange of gradients. Until
    /// otr_engine_reload_states a call that needs what was moved returns OTR_E_STATE: acquires,
    /// prefetches and reads of OTR_VALUE_PUBLISHED need published parameters, passes the memory for
    /// gradients, and steps, checkpoints, snapshots, other reads and all writes need everything.
    /// options: NULL for defaults; every rank gives the same. Collective. A failure is the same on all
    /// ranks; OTR_E_OUT_OF_MEMORY leaves the engine as it was. OTR_E_STATE: a window or pass is open, a
    /// parameter is acquired, or states are away already; OTR_E_MISMATCH: ranks move others;
    /// OTR_E_DEVICE_FAULT poisons. Since: 0.1
    pub fn otr_engine_offload_states(engine: *mut otr_engine, options: *const otr_offload_options) -> i32;
    /// Moves all of it back; returns when it is there. Tensors acquired before may lie elsewhere.
    /// Collective. A failure is the same on all ranks. OTR_E_OUT_OF_MEMORY: a device has no room; the
    /// states stay in host memory, and the call can be made again. OTR_E_STATE: nothing was moved;
    /// OTR_E_DEVICE_FAULT poisons. Since: 0.1
    pub fn otr_engine_reload_states(engine: *mut otr_engine) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_estimate_options_init(options: *mut otr_estimate_options, size: usize) -> i32;
    /// What one rank of world_size would hold for the parameters declared so far (their data may be
    /// NULL; nothing is allocated): entries as from otr_engine_memory. Resident bytes are those of the
    /// ledger after commit, to the byte; peaks add what options say the host does, where gradients find
    /// their place free. With `start`, peaks are those from the declarations until before the first
    /// pass, for values in host memory to the byte; the ledger's peak later is the larger of the two.
    /// With on_device there are a device's entries, too, and no plugin is needed; those of an engine
    /// that is on the host have the device_type OTR_DEVICE_EXTENSION. OTR_E_CONFIG: the configuration is
    /// not legal on a device. OTR_LAYOUT_DEEPSPEED: DeepSpeed 0.19.8's layout of the same configuration,
    /// by formula, which knows no start. Local. Since: 0.1
    pub fn otr_engine_estimate(engine: *const otr_engine, options: *const otr_estimate_options, entries: *mut otr_memory_entry, inout_count: *mut usize) -> i32;
    /// Begins a pass and multiplies the outputs' gradients by loss scale / accumulation steps, before
    /// the host's backward runs. output_grads: count tensors of any shape and strides, float32,
    /// bfloat16, float16 or float64; a scalar loss is a tensor of ndim 0 that holds 1. count may be 0,
    /// output_grads then NULL. They are copied. info: with a tag, the gradients come from another engine
    /// and are multiplied by what they lack only; flags: OTR_PASS_KEEP_DTYPE. Several passes may be open
    /// at a time, and passes over the same outputs add; every rank begins them in the same order. Local.
    /// OTR_E_STATE: not committed, or otr_engine_reduce has closed the window. Since: 0.1
    pub fn otr_pass_begin(engine: *mut otr_engine, output_grads: *const otr_tensor, count: i64, info: *const otr_call_info, out_pass: *mut *mut otr_pass) -> i32;
    /// The index-th output's gradient, scaled: float32 (or as OTR_PASS_KEEP_DTYPE says), row-major,
    /// shape as given to begin. Owned by the pass; its memory stays until otr_pass_destroy, and the host
    /// may overwrite it. Any thread. Since: 0.1
    pub fn otr_pass_get_output_grad(pass: *mut otr_pass, index: i64, out_tensor: *mut otr_tensor) -> i32;
    /// The factor that begin applied (loss scale / accumulation steps), for a host that folds it into a
    /// computation of its own. Any thread. Since: 0.1
    pub fn otr_pass_get_scale(pass: *const otr_pass, out_scale: *mut f64) -> i32;
    /// Fills the tag of *info with what the gradients of this pass carry, the gradients of its inputs
    /// included: given with them to otr_pass_begin of the engine (or process, or cluster) that made the
    /// inputs, the chain goes on as if all were one engine. info: struct_size set; the rest of it is
    /// left alone. Any thread. Since: 0.1
    pub fn otr_pass_get_tag(pass: *const otr_pass, info: *mut otr_call_info) -> i32;
    /// out = grad without the factors it carries: a gradient of this pass, such as an input's, for a
    /// host that knows nothing of scales. Behind a tag that is all that the tag says and this pass
    /// applied, so that out is the loss's gradient, of which the mean over this engine's ranks counts.
    /// Equal shapes, any dtypes and strides; out may be grad. Local. Any thread. Since: 0.1
    pub fn otr_pass_unscale(pass: *const otr_pass, grad: *const otr_tensor, out: *const otr_tensor) -> i32;
    /// The first output whose gradient was finite and is not after scaling, -1 for none: the step will
    /// be skipped with OTR_SKIP_SEED_OVERFLOW and the loss scale falls, so the host may spare itself the
    /// backward. Any thread. Since: 0.1
    pub fn otr_pass_get_seed_overflow(pass: *const otr_pass, out_index: *mut i64) -> i32;
    /// Memory to write this parameter's gradient into (a slot): compute dtype, row-major, uninitialised,
    /// owned by the pass. It is valid until you hand it back through otr_pass_add_grad, or until any
    /// thread ends, abandons or destroys the pass. Ownership then returns to the library: use no view of
    /// it, because a late write would overwrite other gradients. The caller makes sure that all writers
    /// are done before, on threads and on streams (except the stream given to otr_pass_add_grad with
    /// it). One slot at a time for each parameter. The call never waits for other ranks: if the
    /// gradient's own memory is in use, the slot is scratch memory. On a device the slot is for work
    /// that comes after in the stream that otr_pass_begin was given, and this call and
    /// otr_pass_add_grad may wait until the device has done what it was given a few buckets before. Any
    /// thread. Since: 0.1
    pub fn otr_pass_get_slot(pass: *mut otr_pass, id: i64, out_slot: *mut otr_tensor) -> i32;
    /// Adds a gradient, from the scaled output gradients, to a parameter: the slot that
    /// otr_pass_get_slot gave (same data pointer; nothing is copied), or any tensor of the parameter's
    /// shape, float32, bfloat16, float16 or float64, any strides, which is copied and may be freed after
    /// the call. info: with a tag, the gradient is multiplied by what it lacks first. Contributions add,
    /// in the order of calls. Any thread. OTR_E_STATE: the parameter is frozen, or the pass ended or was
    /// abandoned; the gradient's memory is then not touched. OTR_E_SHAPE: another shape. Since: 0.1
    pub fn otr_pass_add_grad(pass: *mut otr_pass, id: i64, grad: *const otr_tensor, info: *const otr_call_info) -> i32;
    /// Ends the pass: parameters without a gradient count as zero on this rank; remaining buckets go
    /// out. Does not wait for other ranks. Local. Since: 0.1
    pub fn otr_pass_end(pass: *mut otr_pass) -> i32;
    /// Gives the pass up, for a host that cannot complete it: the next step discards the accumulation
    /// window on all ranks, unless nothing was added to it, and says so. Its slots are the library's
    /// again, so nobody may be writing into one (otr_pass_get_slot); output gradients stay until
    /// destroy. After the pass ended: nothing. Local. Since: 0.1
    pub fn otr_pass_abandon(pass: *mut otr_pass) -> i32;
    /// A pass that was not ended is abandoned: the next step discards the accumulation window on all
    /// ranks, unless nothing was added to it, and says so. Nobody may be writing into a slot of the
    /// pass, or using its output gradients: on a device they are freed in the order of the stream that
    /// otr_pass_begin was given. Local. Since: 0.1
    pub fn otr_pass_destroy(pass: *mut otr_pass);
    /// One whole pass: otr_pass_begin, vjp on this thread, otr_pass_end. Local. OTR_E_HOST: vjp returned
    /// another number than 0; the pass is then abandoned. Since: 0.1
    pub fn otr_engine_backward(engine: *mut otr_engine, output_grads: *const otr_tensor, count: i64, info: *const otr_call_info, vjp: Option<otr_vjp_callback>, user_data: *mut c_void) -> i32;
    /// Ends a micro-batch. The last one of an accumulation window makes the step: it reduces the
    /// gradients, agrees on Inf/NaN, takes the global norm, clips, updates the owned shard and
    /// publishes. Any other one is only counted. report: NULL, or with struct_size set. Acquired tensors
    /// become invalid at a boundary. Collective. A skipped step is a success. After a failure before the
    /// update nothing has changed; a failure during the update poisons the engine.
    ///
    /// With report NULL, one rank whose states are all on a device gives the step to the device, which
    /// decides by itself, and returns without waiting for it (docs/devices.md says with which
    /// configurations). The outcome is heard by the first call that needs it: otr_engine_report, the
    /// step that ends the next window, or one that reads or writes values or progress. That call waits
    /// if the outcome has not come, and returns OTR_E_DEVICE_FAULT if the device has failed.
    ///
    /// OTR_E_STATE: a pass is open, or none was made; OTR_E_LOSS_SCALE: gradients overflowed at the
    /// smallest loss scale; the window was skipped, and the engine can go on. Since: 0.1
    pub fn otr_engine_step(engine: *mut otr_engine, report: *mut otr_step_report) -> i32;
    /// Starts a step, as otr_engine_step would make it, on a thread of the library, and returns at once.
    /// The thread starts with the first call and ends with the engine. Until otr_engine_report has
    /// returned the step's report, only otr_engine_report, otr_engine_abort, otr_engine_check,
    /// otr_engine_memory, otr_engine_live_children, otr_engine_destroy, otr_engine_config,
    /// otr_engine_get_group_value, otr_engine_acquire, otr_engine_release, otr_engine_prefetch and
    /// queries of names, ids and shapes work; other calls return OTR_E_STATE. An acquire waits until the
    /// step has updated its parameters on all ranks and, where that takes moving, they have come: a
    /// forward can begin while others are updated or on their way. It waits for the whole step at stage
    /// 3 of ranks that share no parameters, in a mesh with "states": "all", and with several ranks on a
    /// device that updates by itself or whose memory NCCL moves. Destroy abandons the step without
    /// waiting for other ranks. Some ranks may begin the step while others call otr_engine_step. A
    /// custom communicator's functions are called on the library's threads. Local.
    ///
    /// OTR_E_STATE: a pass is open, none was made, or a step is pending already. Since: 0.1
    pub fn otr_engine_step_begin(engine: *mut otr_engine) -> i32;
    /// The result of the last step that otr_engine_step_begin began, or that otr_engine_step made with
    /// NULL for its report: report and errors are those of otr_engine_step. If the step is not over
    /// within timeout_seconds: OTR_OK, with outcome OTR_STEP_PENDING and zeros. timeout_seconds: 0 only
    /// asks; negative: waits as long as the step takes, which the communicator's timeout bounds. report:
    /// struct_size set, not NULL. Once the step is over, every further call gives the same result. May
    /// wait. OTR_E_INTERRUPTED: ask again, the step goes on; OTR_E_STATE: there was no such step. Since:
    /// 0.1
    pub fn otr_engine_report(engine: *mut otr_engine, timeout_seconds: f64, report: *mut otr_step_report) -> i32;
    /// The first half of the step that ends a window: sums the gradients over ranks and agrees on norm
    /// and Inf/NaN. Until the step, OTR_VALUE_GRAD can be read and replaced, and no pass begins. report
    /// says what the step would do now; its outcome is OTR_STEP_REDUCED. A second call computes the
    /// report anew.
    ///
    /// With optimizer.type "Host" the caller then updates: each rank reads OTR_VALUE_GRAD and
    /// OTR_VALUE_MASTER of its elements with otr_engine_local_read, multiplies the gradient by the
    /// report's clip_coefficient, and writes OTR_VALUE_MASTER with otr_engine_local_write (or all ranks
    /// a whole parameter). The step publishes what was written and counts it, or skips if this report
    /// says so. Without this call before it, the step returns OTR_E_STATE.
    ///
    /// Collective. OTR_E_STATE: a pass is open, none was made, the next step ends no window, or a rank
    /// has written weights since. Since: 0.1
    pub fn otr_engine_reduce(engine: *mut otr_engine, report: *mut otr_step_report) -> i32;
    /// out_has_grad = 1 if the step would update this parameter: some rank gave it a gradient in the
    /// window, or one was written here, or "unused_parameters" is "zero"; else 0. Local.
    /// OTR_E_STATE: not between otr_engine_reduce and otr_engine_step. Since: 0.1
    pub fn otr_engine_has_grad(engine: *const otr_engine, id: i64, out_has_grad: *mut i32) -> i32;
    /// Drops the gradients of the window, summed or not, and of all its steps so far: a new window
    /// begins. Weights, states, counters and the loss scale stay. Collective. OTR_E_STATE: a pass is
    /// open, or with optimizer.type "Host" a rank has written weights; OTR_E_MISMATCH: ranks have made
    /// different numbers of passes. Since: 0.1
    pub fn otr_engine_discard(engine: *mut otr_engine) -> i32;
    /// One step of several engines, all or none: they agree on skipping, on one norm (the root of the
    /// sum of their squared norms) and so on one clip coefficient. reports: NULL, or count structs with
    /// struct_size set in each. joint: NULL if every rank has all the engines, in the same order; else a
    /// group of the ranks of all of them, each with the engines it has (count 0 and engines NULL where
    /// it has none). The next step of each engine ends its window, and they have the same
    /// gradient_clipping. Collective over all of them. OTR_E_ABORTED: a rank could not take part;
    /// nothing was updated. Since: 0.1
    pub fn otr_step_many(engines: *const *mut otr_engine, count: i64, joint: *mut otr_comm, reports: *mut otr_step_report) -> i32;
    /// Sets who ends accumulation windows, from the next step on until the next such call. Gradients are
    /// still divided by gradient_accumulation_steps, or with "outrigger": {"accumulation_divisor":
    /// "counted"} by the number of steps in the window. Every rank makes the same call. Local.
    /// Since: 0.1
    pub fn otr_engine_set_boundary(engine: *mut otr_engine, boundary: i32) -> i32;
    /// Whether the next step ends the window. Local. Since: 0.1
    pub fn otr_engine_get_boundary(engine: *const otr_engine, out_is_boundary: *mut i32) -> i32;
    /// The loss scale of this window's passes; 1 without loss scaling. Local. Since: 0.1
    pub fn otr_engine_get_loss_scale(engine: *const otr_engine, out_scale: *mut f64) -> i32;
    /// All that a run is besides tensors, as one line of JSON: step counts, the loss scale and its
    /// history, noted norms (skip_outlier_norms), who ends windows, hyperparameters that were set,
    /// frozen parameters, and each parameter's count of updates, which its bias correction, its schedule
    /// and its random stream follow. With it and with every parameter's values (OTR_VALUE_MASTER,
    /// _EXP_AVG, _EXP_AVG_SQ) another engine goes on as this one would, with the same bits. The same
    /// text on every rank. *inout_size: in, the size of buffer in bytes; out, the size needed with the
    /// final NUL. buffer may be NULL with size 0, to ask (OTR_OK). Local. OTR_E_BUFFER_SIZE: too small;
    /// OTR_E_STATE: a window or a pass is open, or a step is pending. Since: 0.1
    pub fn otr_engine_get_progress(engine: *const otr_engine, buffer: *mut c_char, inout_size: *mut usize) -> i32;
    /// Goes on from a progress that otr_engine_get_progress gave, of this engine or of another one of
    /// the same parameters, whatever its world, stage and formats; after commit, at any time between two
    /// windows. Values are written apart from it, with otr_engine_parameter_write. A fixed loss scale
    /// stays that of the configuration. Another world, reduction order, seed or optimizer than the
    /// text's is a warning in the log: the run goes on, with other bits. Collective: the same text on
    /// every rank. OTR_E_CONFIG: no progress, or of parameters with other names or shapes, or of other
    /// groups; OTR_E_NOT_FOUND, OTR_E_ARGUMENT, OTR_E_STATE: a name that is not here, a hyperparameter
    /// out of its range, or that a schedule sets here; OTR_E_ABORTED: another rank's text was refused;
    /// OTR_E_MISMATCH: ranks set different ones; OTR_E_STATE: a window or a pass is open, or a step is
    /// pending. After each of these nothing has changed, and the engine can go on. Since: 0.1
    pub fn otr_engine_set_progress(engine: *mut otr_engine, progress_json: *const c_char) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_watch_options_init(options: *mut otr_watch_options, size: usize) -> i32;
    /// Begins to make records of this rank's steps, from the next one on, for otr_engine_get_record and
    /// for what options name. Each call adds to those before, at most 16. The variables OTR_RECORDS and
    /// OTR_TRACE of the environment name folders for every engine of the process, from its commit on.
    /// A rank's own matter: others may do without. A file that cannot be written any more is told to the
    /// log, once, and the training goes on. options: NULL for records alone. Local. OTR_E_IO: a folder
    /// or file cannot be made; OTR_E_STATE: a step is pending, or there were 16 calls. Since: 0.1
    pub fn otr_engine_watch(engine: *mut otr_engine, options: *const otr_watch_options) -> i32;
    /// Gives the next record a number of the host's, such as "loss". name: 1 to 64 bytes of UTF-8; a
    /// second value of the same name replaces the first; at most 32 names in a record. Without a watch
    /// it is dropped. Any thread. OTR_E_ARGUMENT: no such name, or too many. Since: 0.1
    pub fn otr_engine_note(engine: *mut otr_engine, name: *const c_char, value: f64) -> i32;
    /// The record of the last step whose outcome is known. *inout_size: in, the size of buffer in bytes;
    /// out, the size needed with the final NUL. buffer may be NULL with size 0, to ask (OTR_OK). Any
    /// thread. OTR_E_NOT_FOUND: there is none yet; OTR_E_STATE: otr_engine_watch was not called;
    /// OTR_E_BUFFER_SIZE: too small. Since: 0.1
    pub fn otr_engine_get_record(engine: *const otr_engine, buffer: *mut c_char, inout_size: *mut usize) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_save_options_init(options: *mut otr_save_options, size: usize) -> i32;
    /// Saves the training: masters and moments as they are stored, frozen parameters, and the progress.
    /// directory: a folder that exists; tag: at most 200 bytes of UTF-8 without '/', spaces or control
    /// characters, not beginning with '.', not "latest". options: NULL for defaults; every rank gives
    /// the same but for parts. When it returns, the checkpoint is durable and `latest` names it; until
    /// then, and if it fails, what was there before is whole. What a writer that died left behind is
    /// removed. Between two windows. Collective. A failure is the same on all ranks, names one, and
    /// leaves the engine as it was: OTR_E_IO (no space, no permission …), OTR_E_DUPLICATE: the tag is
    /// taken; OTR_E_CORRUPT: `latest` is no file, or names none; OTR_E_STATE: another process is writing
    /// there, or a window or pass is open; OTR_E_MISMATCH: ranks give other tags or options.
    ///
    /// asynchronous: the call returns when the bytes of parts, and the values that the host can see
    /// where they are, are copied; the training goes on while a thread of the library writes what was
    /// there at the call, and the checkpoint appears, as a whole, when all ranks have. Masters and
    /// moments that only the library changes are copied when a step or a write is about to change them,
    /// as far as they are not written by then; a device's at once. The copies take memory as masters and
    /// moments do: reserved with "outrigger": {"checkpoint": {"asynchronous": true}}, else from the
    /// first such save on. See otr_engine_wait_save. Finalize waits for the end; destroy gives the save
    /// up. A custom communicator's functions are called on the library's thread. Since: 0.1
    pub fn otr_engine_save(engine: *mut otr_engine, directory: *const c_char, tag: *const c_char, options: *const otr_save_options) -> i32;
    /// How the last asynchronous save is getting on. Waits until it is over, at most timeout_seconds; 0
    /// only asks; negative: as long as it takes. out_status: struct_size set, or NULL. Local: saves go
    /// on without their callers. May wait. A save that failed: its status and text, once. The next
    /// otr_engine_save, otr_engine_load, otr_engine_restore or otr_engine_finalize gives them on all
    /// ranks, unless all have had them; it then does nothing, and can be called again.
    /// OTR_E_INTERRUPTED: the save goes on. Since: 0.1
    pub fn otr_engine_wait_save(engine: *mut otr_engine, timeout_seconds: f64, out_status: *mut otr_save_status) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_load_options_init(options: *mut otr_load_options, size: usize) -> i32;
    /// Goes on from a checkpoint, after commit, whatever number of ranks, stage, mesh, offload, bucket
    /// size and formats it was made with; parameters are matched by name. tag NULL: what `latest` names.
    /// A rank reads the files that have its part, with their checksums. In the same formats values come
    /// back bit by bit, and with the same world and reduction order so does every later step; into
    /// another format they are rounded to nearest. Everything is read and checked before anything
    /// changes. Between two windows. Collective. A failure is the same on all ranks, names one, and
    /// leaves the engine as it was: OTR_E_NOT_FOUND: no such checkpoint, parameter or moment;
    /// OTR_E_CORRUPT: a file is damaged; OTR_E_SHAPE; OTR_E_UNSUPPORTED: of a later release; OTR_E_IO,
    /// OTR_E_STATE, OTR_E_MISMATCH as for a save, OTR_E_CONFIG as for otr_engine_set_progress. One that
    /// comes while values are written poisons the engine.
    ///
    /// A pattern means whole names: '*' stands for any characters, none and '.' among them, '?' for
    /// exactly one character of UTF-8, every other one for itself. include and exclude choose parameters
    /// here. Tied parameters are loaded together: if one is included and none is excluded. With renamed,
    /// names there are compared with the other names; without weights_only, moments and progress come
    /// under them, too. OTR_E_NOT_FOUND: a pattern means no parameter here, or a renaming none here or
    /// there; the text has the nearest name. OTR_E_ARGUMENT: a renaming or a pattern of resized means
    /// nothing that is loaded, two renamings mean one parameter, two parameters here would take one
    /// there, or nothing is left to load.
    ///
    /// What is loaded, and what has to be there, else OTR_E_NOT_FOUND. Of tied parameters one name is
    /// enough. A shape that differs is OTR_E_SHAPE in all rows, but for the first dimension of a resized
    /// one. What is not loaded keeps its values.
    ///   weights_only  strict  include, exclude  loaded, and what has to be there
    ///   0             1       no                weights, moments and progress: the same parameters here
    ///                                           and there, with each moment that is kept here
    ///   0             1       given             OTR_E_ARGUMENT, as is resized
    ///   0             0       either            OTR_E_ARGUMENT
    ///   1             1       no                weights: the same parameters here and there
    ///   1             1       given             weights that they choose: all of these there, and any
    ///                                           others
    ///   1             0       no                weights that are in both: one at least, and any others
    ///   1             0       given             those of them that they choose: the same
    /// Since: 0.1
    pub fn otr_engine_load(engine: *mut otr_engine, directory: *const c_char, tag: *const c_char, options: *const otr_load_options) -> i32;
    /// An empty one. Local. Since: 0.1
    pub fn otr_snapshot_create(out_snapshot: *mut *mut otr_snapshot) -> i32;
    /// NULL is allowed. Local. Since: 0.1
    pub fn otr_snapshot_destroy(snapshot: *mut otr_snapshot);
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_snapshot_options_init(options: *mut otr_snapshot_options, size: usize) -> i32;
    /// Fills a snapshot, whose memory it uses again: masters and moments as they are stored, frozen
    /// parameters, the progress, and parts. Between two windows, for a way back to this moment
    /// (otr_engine_restore) that needs no disk. replicas \> 0: ranks that are far from each other keep
    /// copies of each other's, so that a process that is lost comes back by way of another one's memory;
    /// each rank's memory grows by as many times its own part. What the snapshot had before is gone,
    /// even if this fails: who needs a whole one at every moment fills two in turn. options: NULL for
    /// defaults; every rank gives the same but for parts. Collective. A failure is the same on all
    /// ranks, and leaves the engine as it was and the snapshots empty: OTR_E_ARGUMENT,
    /// OTR_E_OUT_OF_MEMORY; OTR_E_STATE: a window or pass is open; OTR_E_UNSUPPORTED: replicas over a
    /// custom communicator that cannot be divided. Since: 0.1
    pub fn otr_engine_snapshot(engine: *mut otr_engine, snapshot: *mut otr_snapshot, options: *const otr_snapshot_options) -> i32;
    /// Goes back to the latest moment of which every rank's part is in some rank's snapshots, after
    /// commit, in this engine or in another one of the same parameters, formats and ranks, of this
    /// process or of one that takes the place of a lost one. Every rank gives what it has, at most four,
    /// in any order; a rank without its own part gives an empty one, which takes it. Values come back
    /// bit by bit, and so does every later step. Between two windows. Collective. OTR_E_NOT_FOUND: there
    /// is no such moment; OTR_E_MISMATCH: of other parameters, formats or shards (otr_engine_load takes
    /// them); OTR_E_ARGUMENT; OTR_E_STATE: a window or pass is open. Since: 0.1
    pub fn otr_engine_restore(engine: *mut otr_engine, snapshots: *const *mut otr_snapshot, count: i64) -> i32;
    /// out_info: struct_size set. Local. Since: 0.1
    pub fn otr_snapshot_get_info(snapshot: *const otr_snapshot, out_info: *mut otr_snapshot_info) -> i32;
    /// A part of its rank's host. *inout_size: in, the size of buffer; out, the bytes that there are.
    /// buffer may be NULL with size 0, to ask (OTR_OK). Local. OTR_E_NOT_FOUND: no such name;
    /// OTR_E_STATE: the snapshot is empty; OTR_E_BUFFER_SIZE: too small. Since: 0.1
    pub fn otr_snapshot_part(snapshot: *const otr_snapshot, name: *const c_char, buffer: *mut c_void, inout_size: *mut usize) -> i32;
    /// tag NULL: what `latest` names. Checks manifest and index, not the values. Local. Any thread.
    /// OTR_E_NOT_FOUND: no such checkpoint, or with tag NULL no directory or no `latest`; OTR_E_CORRUPT:
    /// it is damaged, or `latest` is, or names what is not there; OTR_E_UNSUPPORTED, OTR_E_IO.
    /// Since: 0.1
    pub fn otr_checkpoint_open(directory: *const c_char, tag: *const c_char, out_checkpoint: *mut *mut otr_checkpoint) -> i32;
    /// Local. Since: 0.1
    pub fn otr_checkpoint_destroy(checkpoint: *mut otr_checkpoint);
    /// JSON: {"tag", "library", "ranks", "parts": names by rank, "files": with their bytes, "formats",
    /// "progress", "configuration", "parameters": each with its states}. *inout_size: in, the size of
    /// buffer in bytes; out, the size needed with the final NUL. buffer may be NULL with size 0, to ask
    /// (OTR_OK). Local. OTR_E_BUFFER_SIZE: too small. Since: 0.1
    pub fn otr_checkpoint_describe(checkpoint: *mut otr_checkpoint, buffer: *mut c_char, inout_size: *mut usize) -> i32;
    /// Bytes that a rank's host gave to the save. *inout_size: in, the size of buffer; out, the bytes
    /// that there are. buffer may be NULL with size 0, to ask (OTR_OK). Local. OTR_E_NOT_FOUND: no such
    /// rank or name; OTR_E_CORRUPT; OTR_E_BUFFER_SIZE: too small. Since: 0.1
    pub fn otr_checkpoint_part(checkpoint: *mut otr_checkpoint, rank: i32, name: *const c_char, buffer: *mut c_void, inout_size: *mut usize) -> i32;
    /// Elements \[first, first + count) of a parameter, row-major, as float32, whatever they are stored
    /// as. value: OTR_VALUE_MASTER (of a frozen parameter its one weight), OTR_VALUE_PUBLISHED,
    /// OTR_VALUE_EXP_AVG or OTR_VALUE_EXP_AVG_SQ. An alias reads what it shares. out: count floats of
    /// the caller's. Checked with the checksums; the memory that it takes does not grow with the
    /// parameter. Local. Any thread; calls on one handle wait for each other. OTR_E_NOT_FOUND: no such
    /// parameter, or it has no such value; OTR_E_ARGUMENT: the elements are not there; OTR_E_CORRUPT
    /// names the file and the tensor, and what is in out then is not defined. Since: 0.1
    pub fn otr_checkpoint_read(checkpoint: *mut otr_checkpoint, name: *const c_char, value: i32, first: i64, count: i64, out: *mut f32) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_export_options_init(options: *mut otr_export_options, size: usize) -> i32;
    /// Writes the weights, frozen ones too, as a safetensors file `path` that the safetensors package
    /// and transformers read. With max_shard_bytes, path is a folder that exists, and gets the files of
    /// a Hugging Face model: model-00001-of-0000N.safetensors and so on and
    /// model.safetensors.index.json; or model.safetensors, if one file is enough. An alias is left out,
    /// as transformers does it, and is named in the metadata of the file that has what it shares. Takes
    /// some MiB of memory, whatever the size. options: NULL for defaults. The files get their names when
    /// all are durable: a failure before leaves everything as it was. Files of a former export in that
    /// folder are replaced or, where they have other names, removed. Local. OTR_E_DUPLICATE: there is
    /// such a file, and replace is 0; OTR_E_IO, OTR_E_NOT_FOUND: no such folder; OTR_E_CORRUPT: the
    /// checkpoint is damaged. Since: 0.1
    pub fn otr_checkpoint_export(checkpoint: *mut otr_checkpoint, path: *const c_char, options: *const otr_export_options) -> i32;
    /// Reads every value and compares it with its checksum. Local. OTR_E_CORRUPT names what is damaged,
    /// at most 20 tensors and files, and counts it; OTR_E_NOT_FOUND, OTR_E_IO of a file. Since: 0.1
    pub fn otr_checkpoint_verify(checkpoint: *mut otr_checkpoint) -> i32;
    /// JSON: {"latest": a tag, or null, "tags": of all complete checkpoints of a directory, sorted}.
    /// buffer and *inout_size as for otr_checkpoint_describe. Local. Any thread. OTR_E_NOT_FOUND: no
    /// such directory; OTR_E_CORRUPT: `latest` holds no tag; OTR_E_BUFFER_SIZE: too small. Since: 0.1
    pub fn otr_checkpoint_list(directory: *const c_char, buffer: *mut c_char, inout_size: *mut usize) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_writer_options_init(options: *mut otr_writer_options, size: usize) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_writer_param_options_init(options: *mut otr_writer_param_options, size: usize) -> i32;
    /// Begins the checkpoint directory/tag. directory exists; tag as for otr_engine_save. Nothing of it
    /// is seen before otr_checkpoint_writer_finish; until then, or until the writer is destroyed, nobody
    /// else can write there. options: NULL for defaults. Local. OTR_E_STATE: another process, or another
    /// writer of this one, is writing there; OTR_E_DUPLICATE: the tag is taken; OTR_E_CORRUPT: `latest`
    /// is no file, or names none; OTR_E_NOT_FOUND, OTR_E_IO. Since: 0.1
    pub fn otr_checkpoint_writer_create(directory: *const c_char, tag: *const c_char, options: *const otr_writer_options, out_writer: *mut *mut otr_checkpoint_writer) -> i32;
    /// Declares a parameter, before the first value is written. name: UTF-8; shape: ndim extents.
    /// options: NULL for defaults. Local. Any thread. OTR_E_DUPLICATE: the name was added before;
    /// OTR_E_NOT_FOUND, OTR_E_SHAPE: what it is an alias of is not there, or has another number of
    /// elements; OTR_E_STATE: values were written. Since: 0.1
    pub fn otr_checkpoint_writer_add_parameter(writer: *mut otr_checkpoint_writer, name: *const c_char, shape: *const i64, ndim: i64, options: *const otr_writer_param_options) -> i32;
    /// Bytes of a host that ride along, as those of rank 0's save; copied. Local. Any thread.
    /// OTR_E_DUPLICATE: the name was added before; OTR_E_STATE: values were written. Since: 0.1
    pub fn otr_checkpoint_writer_add_part(writer: *mut otr_checkpoint_writer, name: *const c_char, mine: *const c_void, bytes: usize) -> i32;
    /// Writes elements of a parameter, from first on in row-major order, as many as `source` has: any
    /// shape, any strides, float32, bfloat16, float16 or float64, on the host; rounded to nearest even
    /// into what the checkpoint keeps. value: OTR_VALUE_MASTER (the weight, of a frozen parameter too),
    /// OTR_VALUE_EXP_AVG or OTR_VALUE_EXP_AVG_SQ. Runs come in any order, each element once; from front
    /// to back is the fastest. The tensor is read during the call only. Local. Any thread.
    /// OTR_E_NOT_FOUND: no such parameter, or no such moment of it; OTR_E_ARGUMENT: the elements are not
    /// there, or it is an alias; OTR_E_STATE: some of them were written before; OTR_E_IO: the writer can
    /// only be destroyed now. Since: 0.1
    pub fn otr_checkpoint_writer_write(writer: *mut otr_checkpoint_writer, name: *const c_char, value: i32, first: i64, source: *const otr_tensor) -> i32;
    /// Makes the checkpoint durable, lets it appear under its tag and names it in `latest`.
    /// otr_engine_load takes weights, moments and counts of updates from it; what only an engine knows
    /// (hyperparameters, schedules, loss scale) stays there as it is. Local. OTR_E_STATE: elements are
    /// missing, which can still be written, or it was finished before; OTR_E_IO: nothing has appeared.
    /// Since: 0.1
    pub fn otr_checkpoint_writer_finish(writer: *mut otr_checkpoint_writer) -> i32;
    /// Without a finish nothing of the checkpoint stays. Local. Since: 0.1
    pub fn otr_checkpoint_writer_destroy(writer: *mut otr_checkpoint_writer);
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_import_options_init(options: *mut otr_import_options, size: usize) -> i32;
    /// Makes the checkpoint directory/tag, of weights only, from a safetensors file, a model's
    /// .index.json, or a folder with model.safetensors or model.safetensors.index.json. All tensors
    /// become trainable parameters, kept as bfloat16 or float16 if all are, else as float32; aliases
    /// that the metadata notes come along. Takes \< 100 MiB of memory besides the headers. options: NULL
    /// for defaults. Local. OTR_E_NOT_FOUND: no such file or folder; OTR_E_CORRUPT: a file is damaged,
    /// index and files differ, or the index names a file elsewhere; OTR_E_UNSUPPORTED: a dtype that is
    /// no float; the rest as for otr_checkpoint_writer_create. Since: 0.1
    pub fn otr_checkpoint_import(source: *const c_char, directory: *const c_char, tag: *const c_char, options: *const otr_import_options) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_message_options_init(options: *mut otr_message_options, size: usize) -> i32;
    /// Copies the tensors into buffer, bit by bit. names: count names, UTF-8, different from each other;
    /// tensors: count tensors on the CPU, of any shape and strides, empty ones too, of dtype bool, int8
    /// to int64, uint8 to uint64, float16, bfloat16, float32 or float64. A tensor whose data is NULL
    /// gets a place that the call leaves as it is: fill it by way of otr_message_unpack with
    /// OTR_MESSAGE_UNCHECKED, then call otr_message_seal; so values can be computed where they are sent
    /// from. A tensor that is copied must not lie in buffer. *inout_size: in, the size of buffer; out,
    /// the bytes of the message. buffer: at a multiple of 8; NULL with size 0, to ask (OTR_OK). options:
    /// NULL for defaults. Any thread. OTR_E_ARGUMENT; OTR_E_SHAPE; OTR_E_DTYPE: another dtype;
    /// OTR_E_DEVICE: not on the CPU; OTR_E_BUFFER_SIZE: too small. Since: 0.1
    pub fn otr_message_pack(names: *const *const c_char, tensors: *const otr_tensor, count: i64, options: *const otr_message_options, buffer: *mut c_void, inout_size: *mut usize) -> i32;
    /// Writes the checksum, after places have been filled or values changed. Any thread. OTR_E_CORRUPT:
    /// no message; OTR_E_ARGUMENT: buffer is not at a multiple of 8. Since: 0.1
    pub fn otr_message_seal(buffer: *mut c_void, size: usize) -> i32;
    /// Checks a message and makes it readable. data: size bytes at a multiple of 8, which stay where
    /// they are until the message is destroyed, and are never written. They may come from anybody: what
    /// is wrong in them is an error and no more, and the memory that the call takes is at most 16 times
    /// the header's. flags: 0 or OTR_MESSAGE_UNCHECKED. Any thread. OTR_E_CORRUPT: damaged, cut short,
    /// no message, or not sealed; OTR_E_UNSUPPORTED: of a later version; OTR_E_ARGUMENT; OTR_E_DTYPE: an
    /// element that DLPack does not have. Since: 0.1
    pub fn otr_message_unpack(data: *const c_void, size: usize, flags: u32, out_message: *mut *mut otr_message) -> i32;
    /// The memory stays as it is. NULL is allowed. Local. Since: 0.1
    pub fn otr_message_destroy(message: *mut otr_message);
    /// out_info: struct_size set. Any thread. Since: 0.1
    pub fn otr_message_get_info(message: *const otr_message, out_info: *mut otr_message_info) -> i32;
    /// The name of tensor `index` of 0 to tensor_count - 1, in the order of their bytes: wider elements
    /// first; valid as long as the message. Any thread. OTR_E_NOT_FOUND: no such index. Since: 0.1
    pub fn otr_message_tensor_name(message: *const otr_message, index: i64, out_name: *mut *const c_char) -> i32;
    /// A row-major view of the message's memory, which may be written where its owner may write it; its
    /// shape is valid as long as the message. Any thread. OTR_E_NOT_FOUND gives the nearest name.
    /// Since: 0.1
    pub fn otr_message_get_tensor(message: *const otr_message, name: *const c_char, out_part: *mut otr_tensor) -> i32;
    /// Fills the tag of *info with what was packed, for otr_pass_begin; loss_scale 0: nothing was said.
    /// info: struct_size set; the rest of it is left alone. Any thread. Since: 0.1
    pub fn otr_message_get_tag(message: *const otr_message, info: *mut otr_call_info) -> i32;
    /// The name of attribute `index` of 0 to attribute_count - 1, sorted; valid as long as the message.
    /// Any thread. OTR_E_NOT_FOUND: no such index. Since: 0.1
    pub fn otr_message_attribute_name(message: *const otr_message, index: i64, out_name: *mut *const c_char) -> i32;
    /// Valid as long as the message. Any thread. OTR_E_NOT_FOUND: no such name. Since: 0.1
    pub fn otr_message_get_attribute(message: *const otr_message, name: *const c_char, out_text: *mut *const c_char) -> i32;
    /// Who sends what between two groups of any widths: the rows of the ranks of one group, one rank's
    /// behind the other's, are those of the ranks of the other. source_rows, target_rows: of each rank,
    /// 0 or more. routes: in the order of the rows, none of 0 rows, at most source_ranks + target_ranks
    /// - 1; NULL to ask. *inout_count: in, the room; out, the number of routes. Any thread.
    /// OTR_E_ARGUMENT: a negative number, or different sums; OTR_E_BUFFER_SIZE: too small. Since: 0.1
    pub fn otr_message_routes(source_rows: *const i64, source_ranks: i32, target_rows: *const i64, target_ranks: i32, routes: *mut otr_message_route, inout_count: *mut i64) -> i32;
    /// Any thread. OTR_E_ABI: size smaller than the first release's. Since: 0.1
    pub fn otr_shard_options_init(options: *mut otr_shard_options, size: usize) -> i32;
    /// Wraps caller's memory: weights and grads (each float32, bfloat16 or float16), both 1-D,
    /// contiguous, of the same count. grads may be NULL: otr_shard_set_grads gives them later. The
    /// memory of all four tensors is used until destroy; the tensor structs, shapes and strings are read
    /// during the call only. options: NULL for defaults. Local. Since: 0.1
    pub fn otr_shard_wrap(context: *mut otr_context, weights: *const otr_tensor, grads: *const otr_tensor, options: *const otr_shard_options, out_shard: *mut *mut otr_shard) -> i32;
    /// Gradients in another place, from the next step on: a framework that makes a new tensor in each
    /// backward needs no copy. As for otr_shard_wrap; NULL: none, and a step is OTR_E_STATE until they
    /// are given. After a failure the shard has what it had. Local. Since: 0.1
    pub fn otr_shard_set_grads(shard: *mut otr_shard, grads: *const otr_tensor) -> i32;
    /// A 1-D view of a state, OTR_VALUE_EXP_AVG or OTR_VALUE_EXP_AVG_SQ, as it is stored; it exists
    /// after the first step or otr_optimizer_prepare, and stays at its place until destroy.
    /// OTR_E_NOT_FOUND before; OTR_E_UNSUPPORTED for 8-bit blocks, which have no dtype: otr_shard_read.
    /// Local. Since: 0.1
    pub fn otr_shard_state(shard: *mut otr_shard, value: i32, out_tensor: *mut otr_tensor) -> i32;
    /// Copies a value out or in, for checkpoints: OTR_VALUE_MASTER (the weights, of a split master both
    /// halves), OTR_VALUE_EXP_AVG or OTR_VALUE_EXP_AVG_SQ; the tensor is 1-D, of the shard's count, of
    /// any float dtype. What is written is rounded to nearest. OTR_E_NOT_FOUND: the shard has no states
    /// yet, or its rule keeps no such one. Local. Since: 0.1
    pub fn otr_shard_read(shard: *mut otr_shard, value: i32, destination: *const otr_tensor) -> i32;
    pub fn otr_shard_write(shard: *mut otr_shard, value: i32, source: *const otr_tensor) -> i32;
    /// How many updates the shard has had: it decides the bias corrections, the schedule's learning rate
    /// and the random stream of the next one. Set when a checkpoint is loaded; legal: 0 to 2^53. Local.
    /// Since: 0.1
    pub fn otr_shard_get_step(shard: *const otr_shard, out_step: *mut i64) -> i32;
    pub fn otr_shard_set_step(shard: *mut otr_shard, step: i64) -> i32;
    /// Bytes of states that the shard owns. Local. Since: 0.1
    pub fn otr_shard_state_bytes(shard: *const otr_shard, out_bytes: *mut i64) -> i32;
    /// Frees the states; the caller's memory is not touched. States below 1 MiB that one call made for
    /// several shards lie one behind the other, and their memory goes back with the last of these
    /// shards. Local. Any thread. Since: 0.1
    pub fn otr_shard_destroy(shard: *mut otr_shard);
    /// optimizer_json: {"type": "AdamW", "params": {"lr": …}, "scheduler": {…}, "gradient_clipping": 0,
    /// "states": {…}, "seed": 0}; docs/configuration.md lists the keys. A schedule counts the updates of
    /// each shard, as otr_shard_get_step tells them; the report's lr is the first shard's. Local.
    /// OTR_E_CONFIG as otr_engine_create. Since: 0.1
    pub fn otr_optimizer_create(context: *mut otr_context, optimizer_json: *const c_char, out_optimizer: *mut *mut otr_optimizer) -> i32;
    /// "lr", "weight_decay", and what else the rule has of "adam_lr", "eps", "beta1", "beta2",
    /// "momentum", "dampening". Under a schedule "lr" is the rate that it scales. "gradient_factor", of
    /// every rule: what the gradients of the next steps are multiplied by, before norm and clipping, as
    /// 1 / loss scale, or the factor of a clipping over more than one optimizer; finite, not 0; default
    /// 1. OTR_E_NOT_FOUND: another name; OTR_E_ARGUMENT: out of range; OTR_E_STATE: the schedule alone
    /// gives the value. Local. Since: 0.1
    pub fn otr_optimizer_set_value(optimizer: *mut otr_optimizer, name: *const c_char, value: f64) -> i32;
    /// One update of `count` shards: norm over their gradients and Inf/NaN check (both left out, and
    /// grad_norm NaN, without clipping if "check_grad_overflow" is false), clip, update; a skip changes
    /// nothing. The first step allocates a shard's states. report as for otr_engine_step,
    /// nonfinite_param is the shard's index. Lamb takes each shard for a layer, Muon one with rows for
    /// a matrix. Local. OTR_E_STATE: a shard was stepped with other formats or with a rule of other
    /// states, or Lamb or Muon got a part of a layer or of a matrix, or a shard has no gradients.
    /// Since: 0.1
    pub fn otr_optimizer_step(optimizer: *mut otr_optimizer, shards: *const *mut otr_shard, count: i64, report: *mut otr_step_report) -> i32;
    /// The norm that a step over these shards would report: of their gradients times the factor, in
    /// float64; Inf if an element is Inf or NaN. Nothing changes. To clip over several optimizers or
    /// processes: add up squares, and give each optimizer the factor. Local. OTR_E_STATE: a shard has no
    /// gradients. Since: 0.1
    pub fn otr_optimizer_norm(optimizer: *mut otr_optimizer, shards: *const *mut otr_shard, count: i64, out_norm: *mut f64) -> i32;
    /// Gives shards that have none their states, zero, as the first step would: to load a checkpoint
    /// into them. Errors as of otr_optimizer_step; what a shard has stays. Local. Since: 0.1
    pub fn otr_optimizer_prepare(optimizer: *mut otr_optimizer, shards: *const *mut otr_shard, count: i64) -> i32;
    /// Saves shards as a checkpoint of this process: weights and moments as they are stored, updates,
    /// and the optimizer's hyperparameters and counts, but not its gradient_factor. Each shard is a
    /// parameter of its name (otr_shard_options.name), 1-D; one whose first_element is not 0 is called
    /// "name\[first:end\]". directory, tag, options and what is durable when, as for otr_engine_save;
    /// processes save into folders or under tags of their own. All that reads checkpoints reads this
    /// one: otr_checkpoint_open, and otr_engine_load of an engine whose parameters have these names and
    /// shapes. Shards that have no states get them, as by otr_optimizer_prepare. Local. May wait.
    /// OTR_E_IO, OTR_E_DUPLICATE (the tag is taken, or two shards have one name), OTR_E_CORRUPT,
    /// OTR_E_STATE as for otr_engine_save and otr_optimizer_prepare; OTR_E_UNSUPPORTED: asynchronous, or
    /// shards whose states have different formats. Since: 0.1
    pub fn otr_optimizer_save(optimizer: *mut otr_optimizer, shards: *const *mut otr_shard, count: i64, directory: *const c_char, tag: *const c_char, options: *const otr_save_options) -> i32;
    /// Shards go on from a checkpoint, by their names: one of otr_optimizer_save, or of an engine, or
    /// imported. tag NULL: what `latest` names. options: weights_only, and strict as otr_engine_load has
    /// it; the others are OTR_E_UNSUPPORTED. In the same formats values come back bit by bit, and so
    /// does every later step; into another format they are rounded to nearest. Hyperparameters come back
    /// where the checkpoint has one group of them. Everything is read and checked before anything
    /// changes. Local. May wait. OTR_E_NOT_FOUND: no such checkpoint, parameter or moment;
    /// OTR_E_SHAPE: another number of elements; OTR_E_CORRUPT, OTR_E_IO; errors as of
    /// otr_optimizer_prepare. Since: 0.1
    pub fn otr_optimizer_load(optimizer: *mut otr_optimizer, shards: *const *mut otr_shard, count: i64, directory: *const c_char, tag: *const c_char, options: *const otr_load_options) -> i32;
    /// The same into memory, and back into the same shards or into others of their names, formats and
    /// counts. options: parts; replicas is 0. Local. A snapshot that failed is empty.
    /// OTR_E_OUT_OF_MEMORY, OTR_E_DUPLICATE; restore: OTR_E_STATE: the snapshot is empty;
    /// OTR_E_MISMATCH: it is of other shards, or an engine's. Since: 0.1
    pub fn otr_optimizer_snapshot(optimizer: *mut otr_optimizer, shards: *const *mut otr_shard, count: i64, snapshot: *mut otr_snapshot, options: *const otr_snapshot_options) -> i32;
    pub fn otr_optimizer_restore(optimizer: *mut otr_optimizer, shards: *const *mut otr_shard, count: i64, snapshot: *const otr_snapshot) -> i32;
    /// Shards that it stepped stay usable. Local. Any thread. Since: 0.1
    pub fn otr_optimizer_destroy(optimizer: *mut otr_optimizer);
}
