# SPDX-License-Identifier: Apache-2.0
"""Engine: one model's training state on this rank."""
from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import lowlevel
from .acquired import Acquired, acquire_info
from .arrays import new_float32
from .checkpoint import Checkpoint, load_options, save_options
from .handle import Handle, options_of, text_of
from .lowlevel import OutriggerError
from .passes import Pass, tagged
from .snapshot import snapshot_options
from .watch import Watchers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    from .arrays import Array, Float32Array, Tensor
    from .checkpoint import Patterns
    from .comm import Comm
    from .handle import Config
    from .snapshot import Snapshot
    from .watch import Record, Writer

T = TypeVar("T", bound="Tensor")


class Engine(Handle[lowlevel.Engine]):
    """One model's training state on this rank: parameters, gradients, master weights, optimizer states. Declared by
    add_parameter, laid out by commit, then passes and steps. As a context manager it finalizes on a normal exit and aborts
    on an exception.

    config: DeepSpeed-compatible, a dictionary or JSON; None: float32, stage 0, AdamW. Arrays that go in may be anything with
    the buffer protocol or DLPack: float32, float64, float16, ml_dtypes.bfloat16 (or uint16 for bfloat16), any strides.

    Every method may raise OutriggerError, whose name is the status and whose text names value, rule and way out: E_CONFIG
    here, E_STATE for a call that does not fit, E_SHAPE and E_DTYPE for an array; TypeError for an object that is no array.
    Collective ones also what Comm lists, and after a failure in their middle E_POISONED from then on (check() tells). A
    collective call that Ctrl-C ended while it waited for other ranks can be made again."""

    def __init__(self, comm: Comm, config: Config = None) -> None:
        super().__init__(lowlevel.engine_create(comm.handle, text_of(config)))
        self._rank = comm.rank
        self._watchers = Watchers()
        # Whether notes are of use to anybody.
        self.is_watched = any(os.environ.get(variable) for variable in ("OTR_RECORDS", "OTR_TRACE"))

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        try:
            if kind is None:
                self.finalize()
            else:
                lowlevel.engine_abort(self.handle, f"{kind.__name__}: {value}")
        finally:
            self.close()

    # ---- Life ----

    def add_parameter(self, name: str, initial: Tensor | None = None, shape: Iterable[int] | None = None,
                      **options: Unpack[lowlevel._ParamOptions]) -> int:
        """Declares a parameter and returns its id, before commit; the same ones in the same order on every rank. initial:
        any shape; copied, and rank 0's values win, which costs 4 bytes an element there until commit, and sends them to all
        ranks; with "initial_values": "compare", on every rank, and equal values are not sent. Instead of it,
        shape: the value is 0 until set_initial, which costs nothing. Options: trainable (0: frozen), alias_of (the id
        whose memory this name shares), group, contributions, held_bytes (of a value that is to come: what the caller
        holds until then). Local. E_DUPLICATE: the name is taken."""
        given = options_of(lowlevel.ParamOptions, options)
        if shape is None:
            return lowlevel.engine_add_parameter(self.handle, name, initial, given)
        if initial is not None:
            raise ValueError(f'parameter "{name}" has both an initial value and a shape: give one of them')
        return lowlevel.engine_declare_parameter(self.handle, name, shape, given)

    def commit(self) -> None:
        """Compares the declarations over the ranks, allocates, distributes rank 0's values. Collective. E_MISMATCH names the
        first difference; E_OUT_OF_MEMORY says what was needed for what."""
        lowlevel.engine_commit(self.handle)

    def set_initial(self, ids: Iterable[int], values: Iterable[Tensor]) -> None:
        """Gives parameters their first values, between commit and the first pass, as often as need be: a module's at a time,
        whose memory the caller then frees. values: a whole array for each id, the same on every rank (else rank 0's win), any
        floating dtype and strides. Each rank keeps its part; equal values are not sent. Collective. E_STATE: a pass was
        begun already; E_MISMATCH: other ids, or with "initial_values": "verify" other values."""
        lowlevel.engine_set_initial(self.handle, ids, values)

    def finalize(self) -> None:
        """Waits for the background work of all ranks, ends the engine and gives its memory back. Arrays of acquire and slot that are
        kept mean nothing from then on; reading them is safe. Collective."""
        lowlevel.engine_finalize(self.handle)

    def check(self) -> None:
        """Raises the first failure of background work or of a collective call; it stays. Local, any thread."""
        lowlevel.engine_check(self.handle)

    @property
    def live_children(self) -> int:
        """Passes that are not closed, or of which an array lives; for leak tests."""
        return lowlevel.engine_live_children(self.handle)

    # ---- Parameters ----

    @property
    def parameter_count(self) -> int:
        return lowlevel.engine_parameter_count(self.handle)

    def parameter_id(self, name: str) -> int:
        """E_NOT_FOUND gives the nearest known name."""
        return lowlevel.engine_parameter_id(self.handle, name)

    def parameter_name(self, id: int) -> str:
        return lowlevel.engine_parameter_name(self.handle, id)

    def parameter_shape(self, id: int) -> tuple[int, ...]:
        return lowlevel.engine_parameter_shape(self.handle, id)

    def acquire(self, ids: Iterable[int], float32: bool = False) -> Acquired:
        """A context manager that gives the parameters as read-only arrays: their shapes, the compute dtype without a copy,
        or float32 copies. They are valid inside of it, and until the next step at the most. Local on one host; collective
        at stage 3 where ranks share no memory."""
        return Acquired(self, ids, float32)

    def prefetch(self, ids: Iterable[int], float32: bool = False) -> None:
        """Begins to gather these parameters for acquires that come soon, on a thread of the library. Where acquire is collective
        every rank prefetches the same ones in the same order. Local."""
        lowlevel.engine_prefetch(self.handle, ids, acquire_info(float32))

    @overload
    def read(self, id: int, value: int = ...) -> Float32Array: ...
    @overload
    def read(self, id: int, value: int, out: T) -> T: ...
    @overload
    def read(self, id: int, *, out: T) -> T: ...

    def read(self, id, value=lowlevel.VALUE_MASTER, out=None):  # type: ignore[no-untyped-def]
        """Copies a value of the whole parameter (lowlevel.VALUE_…) into `out`, a writable array of its shape and any floating
        dtype, or into a new float32 array, and returns it. Collective. E_NOT_FOUND: the parameter has no such value."""
        if out is None:
            out = new_float32(self.parameter_shape(id))
        lowlevel.engine_parameter_read(self.handle, id, value, out)
        return out

    def write(self, id: int, source: Tensor, value: int = lowlevel.VALUE_MASTER) -> None:
        """Sets a value of the whole parameter from rank 0's array, of its shape. Not between a pass and its step, but for
        VALUE_GRAD. Collective."""
        lowlevel.engine_parameter_write(self.handle, id, value, source)

    def local_range(self, id: int) -> tuple[int, int]:
        """(first element, count) of what this rank updates, in row-major order."""
        first, count = lowlevel.engine_local_range(self.handle, id)
        return first, count

    @overload
    def local_read(self, id: int, value: int = ...) -> Float32Array: ...
    @overload
    def local_read(self, id: int, value: int, out: T) -> T: ...
    @overload
    def local_read(self, id: int, *, out: T) -> T: ...

    def local_read(self, id, value=lowlevel.VALUE_MASTER, out=None):  # type: ignore[no-untyped-def]
        """Like read, for the elements of local_range: 1-D, of that count. Local."""
        if out is None:
            out = new_float32(self.local_range(id)[1])
        lowlevel.engine_local_read(self.handle, id, value, out)
        return out

    def local_write(self, id: int, source: Tensor, value: int = lowlevel.VALUE_MASTER) -> None:
        """Like write, each rank for the elements of its local_range: 1-D, of that count. Local."""
        lowlevel.engine_local_write(self.handle, id, value, source)

    def set_trainable(self, id: int, trainable: bool) -> None:
        """Freezes or thaws a parameter between two windows, every rank alike. E_STATE: it was declared frozen."""
        lowlevel.engine_set_trainable(self.handle, id, int(trainable))

    # ---- Hyperparameters, configuration, memory ----

    def set_group_value(self, name: str, value: float, group: str | None = None) -> None:
        """Sets "lr", "weight_decay" or what else the rule has of "adam_lr", "eps", "beta1", "beta2", "momentum" and
        "dampening", of a parameter group (None: of all) from the next step on, every rank alike. Under a schedule "lr" is the rate
        that it scales; E_STATE: the schedule alone gives the value."""
        lowlevel.engine_set_group_value(self.handle, group, name, value)

    def get_group_value(self, name: str, group: str | None = None) -> float:
        """group None: the "default" group."""
        return lowlevel.engine_get_group_value(self.handle, group, name)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration in effect: every key as {"value": …, "origin": "user", "default" or "derived"}."""
        config: dict[str, Any] = json.loads(lowlevel.engine_config(self.handle))
        return config

    @property
    def memory(self) -> list[tuple[str, int, int]]:
        """The ledger: a list of (purpose, resident bytes, peak bytes), "total" last."""
        return lowlevel.engine_memory(self.handle)

    @property
    def host_memory(self) -> dict[str, Any]:
        """What the system has given for the engine's large blocks of host memory: "bytes" of them, "resident_bytes", "huge_bytes" and
        "locked_bytes", the "nodes" of their pages, "binding" to memory nodes, and "pin", what is page-locked for a device."""
        report: dict[str, Any] = json.loads(lowlevel.engine_host_memory(self.handle))
        return report

    def estimate(self, **options: Unpack[lowlevel._EstimateOptions]) -> list[tuple[str, int, int]]:
        """What one rank would hold for the parameters declared so far, as in memory. Options: world_size, rank,
        layout, separate_memory, grads_at_once, acquired_elements, widened_elements, output_elements; start (lowlevel.START_…:
        peaks of the start) with initial_element_bytes; on_device=1: as if on a device, whose entries follow the host's."""
        return lowlevel.engine_estimate(self.handle, options_of(lowlevel.EstimateOptions, options))

    def offload_states(self, states: int = 0, page_lock: bool = True) -> None:
        """Moves states from the device to host memory, so that others can use the device between two windows. states: a sum of
        lowlevel.STATES_PUBLISHED, STATES_MASTER, STATES_MOMENTS and STATES_GRADIENTS; 0: all. page_lock: False: the host memory is not
        page-locked. Until reload_states a call that needs what was moved raises E_STATE. Collective; a failure is the same on all ranks
        and leaves the engine as it was. E_STATE: a window or pass is open, a parameter is acquired, or states are away already."""
        options = lowlevel.OffloadOptions()
        options.states, options.page_lock = states, int(page_lock)
        lowlevel.engine_offload_states(self.handle, options)

    def reload_states(self) -> None:
        """Moves all of it back. Collective. E_OUT_OF_MEMORY: a device has no room; the states stay in host memory, and the call can be
        made again. E_STATE: nothing was moved."""
        lowlevel.engine_reload_states(self.handle)

    # ---- Backward and step ----

    def begin_pass(self, output_grads: Iterable[Tensor] = (), tag: lowlevel.CallInfo | None = None,
                   **info: Unpack[lowlevel._CallInfo]) -> Pass:
        """A Pass over gradients of the outputs, of any shapes (a scalar loss: np.float32(1)), which are copied and scaled.
        tag: another pass's, if the gradients come from there. Options: flags (lowlevel.PASS_KEEP_DTYPE), stream. Local."""
        return Pass(lowlevel.pass_begin(self.handle, output_grads, tagged(tag, info)))

    def backward(self, output_grads: Sequence[Tensor], vjp: Callable[[Pass, list[Array]], object],
                 tag: lowlevel.CallInfo | None = None, **info: Unpack[lowlevel._CallInfo]) -> None:
        """One whole pass: vjp(pass, scaled output gradients) adds the parameters' gradients to the pass. What it raises gives
        the pass up."""
        with self.begin_pass(output_grads, tag, **info) as backward:
            vjp(backward, [backward.output_grad(index) for index in range(len(output_grads))])

    def step(self) -> lowlevel.StepReport:
        """Ends a micro-batch; the last one of a window updates. The report's outcome is lowlevel.STEP_ACCUMULATED,
        STEP_APPLIED or STEP_SKIPPED, with the reason. Collective. E_LOSS_SCALE: gradients overflow at the smallest scale."""
        try:
            return lowlevel.engine_step(self.handle)
        finally:
            self._watchers.tell(self.handle)

    def step_begin(self) -> None:
        """Begins the step on a thread of the library and returns at once; report() tells how it ended. Until then acquire() waits for its
        parameters, and most other calls are errors."""
        lowlevel.engine_step_begin(self.handle)

    def report(self, timeout: float = -1.0) -> lowlevel.StepReport:
        """The report of the step that was begun last; its outcome is lowlevel.STEP_PENDING if that is not over within
        `timeout` seconds. 0 only asks, a negative one waits for the end."""
        try:
            return lowlevel.engine_report(self.handle, timeout)
        finally:
            self._watchers.tell(self.handle)

    def watch(self, writer: Writer | None = None, *, records: str | os.PathLike[str] | None = None, trace: str | os.PathLike[str] | None = None,
              name: str | None = None) -> None:
        """Makes records of this rank's steps, from the next one on. writer: a callable that gets each record as a dictionary, before the
        call returns that gives the step's report: one of outrigger.watch, or any. records: a folder for a file of JSON lines; trace: a folder for
        a trace; both get a file of this rank. name: of the engine, in these files. Each call adds to those before, at most 16. Local.
        E_IO: a folder or file cannot be made."""
        options = lowlevel.WatchOptions()
        options.name = name
        options.records, options.trace = (None if each is None else os.fspath(each) for each in (records, trace))
        lowlevel.engine_watch(self.handle, options)
        self.is_watched = True
        if writer is not None:
            self._watchers.writers.append(writer)

    def note(self, **values: float) -> None:
        """Gives the next record numbers of the caller's: note(loss=2.5). Names of 1 to 64 bytes, at most 32 in a record; without a watch
        they are dropped. Any thread."""
        for name, value in values.items():
            lowlevel.engine_note(self.handle, name, value)

    @property
    def record(self) -> Record:
        """The record of the last window whose outcome is known; see docs/watching.md. Any thread. E_NOT_FOUND: none has ended yet; E_STATE: watch
        was not called."""
        record: Record = json.loads(lowlevel.engine_get_record(self.handle))
        return record

    def reduce(self) -> lowlevel.StepReport:
        """The first half of the step: afterwards lowlevel.VALUE_GRAD can be read and written until the step. Collective."""
        return lowlevel.engine_reduce(self.handle)

    def has_grad(self, id: int) -> bool:
        """Whether the step would update this parameter; between reduce() and step() (else E_STATE)."""
        return lowlevel.engine_has_grad(self.handle, id)

    def discard(self) -> None:
        """Drops the gradients of the window, summed or not; counters and loss scale stay. Collective."""
        lowlevel.engine_discard(self.handle)

    def save(self, directory: str | os.PathLike[str], tag: str, parts: Mapping[str, bytes] | None = None, keep_last: int = 0,
             replace: bool = False, asynchronous: bool = False, when_busy: str = "wait") -> None:
        """Saves the training as directory/tag; the directory is made if it is not there. When it returns, the checkpoint is durable
        and the file `latest` names it; until then what was there before is whole. parts: bytes of this rank's host that ride
        along, by name: Checkpoint(directory).parts(rank) gives them back. keep_last: of the checkpoints there, those of the most
        steps that stay; 0: all. replace: one of that tag is replaced. asynchronous: returns before the values are written, and the
        training goes on meanwhile; when_busy: while an asynchronous save is under way, "wait" for its end or "refuse"
        (E_STATE). Between two windows. Collective; a failure is the same on all ranks and leaves the engine as it was; that of an
        asynchronous save comes from wait_save, or from the next save, load or finalize. E_DUPLICATE: the tag is taken; E_IO;
        E_STATE: another process is writing."""
        os.makedirs(directory, exist_ok=True)
        lowlevel.engine_save(self.handle, os.fspath(directory), tag,
                             save_options(parts, keep_last, replace, asynchronous, when_busy))

    def wait_save(self, timeout: float = -1.0) -> lowlevel.SaveStatus:
        """How the last asynchronous save is getting on, once it is over or so many seconds have passed; 0 only asks; negative: as long
        as it takes. state: lowlevel.SAVE_NONE, SAVE_UNDER_WAY, SAVE_DONE. A save that failed raises, once. Local."""
        return lowlevel.engine_wait_save(self.handle, timeout)

    def load(self, directory: str | os.PathLike[str], tag: str | None = None, weights_only: bool = False, strict: bool = True, *,
             include: Patterns | None = None, exclude: Patterns = (), renamed: Mapping[str, str] | None = None, resized: Patterns = ()) -> None:
        """Goes on from a checkpoint, after commit, whatever ranks, stage, mesh and formats it was made with. tag None: the latest.
        weights_only: neither moments nor progress; with strict False, those that are both here and there. In the same formats every
        bit comes back.

        include, exclude, resized, all with weights_only: patterns of names here, one or several, in which * is any characters and ? is one.
        include: these are loaded; None: all. exclude: these are not. resized: of these the first dimension may be another one in the
        checkpoint; the rows that are in both are taken, the others stay. renamed: what names here are there: {"head.weight":
        "lm_head.weight"}, or beginnings of names: {"*": "model.*"}; moments and progress come under them, too.

        Between two windows. Collective; a failure is the same on all ranks and leaves the engine as it was. E_NOT_FOUND: no such
        checkpoint or parameter, here or there; E_CORRUPT: a file is damaged; E_SHAPE; E_ARGUMENT: the options contradict each other;
        E_MISMATCH: ranks give others."""
        lowlevel.engine_load(self.handle, os.fspath(directory), tag, load_options(weights_only, strict, include, exclude, renamed, resized))

    def snapshot(self, into: Snapshot, parts: Mapping[str, bytes] | None = None, replicas: int = 0) -> None:
        """Fills a Snapshot with this moment's values and progress, in memory, for restore(). parts: bytes of this rank's host, by name.
        replicas: so many other ranks keep a copy of each rank's, so that a process that is lost comes back by way of another one's
        memory. What it had before is gone, even if this fails: who needs a whole one at every moment fills two in turn. Between two
        windows. Collective."""
        lowlevel.engine_snapshot(self.handle, into.handle, snapshot_options(parts, replicas))

    def restore(self, *snapshots: Snapshot) -> None:
        """Goes back to the latest moment of which every rank's part is in some rank's snapshots: in this engine, or after commit in
        another one of the same parameters, formats and ranks. Every rank gives what it has, at most four; a rank without its own
        part gives an empty one, which takes it. Between two windows. Collective. E_NOT_FOUND: there is no such moment; E_MISMATCH:
        it is of other parameters, formats or shards."""
        lowlevel.engine_restore(self.handle, [each.handle for each in snapshots])

    def resume(self, directory: str | os.PathLike[str]) -> dict[str, bytes]:
        """Goes on from the directory's latest checkpoint, if it has one: for a program that may be started again. The parts that this
        rank's host gave to the save (rank 0's where it did not save); {} where there is no checkpoint, and the training begins. After
        commit. Collective. Errors as of load, but for a directory that is not there or has no `latest`."""
        try:
            self.load(directory)
        except OutriggerError as error:
            if error.name != "OTR_E_NOT_FOUND" or os.path.lexists(os.path.join(directory, "latest")):
                raise
            return {}
        with Checkpoint(directory) as checkpoint:
            return checkpoint.parts(self._rank)

    def get_progress(self) -> dict[str, Any]:
        """All that the run is besides the parameters' values: step counts, loss scale, what was set by hand, counts of updates. Between
        two windows (else E_STATE). JSON keeps it exactly. The same on every rank."""
        progress: dict[str, Any] = json.loads(lowlevel.engine_get_progress(self.handle))
        return progress

    def set_progress(self, progress: dict[str, Any]) -> None:
        """Goes on from what get_progress gave, here or in another engine of the same parameters; their values are written apart, with
        write(). Collective. E_CONFIG: it does not fit; nothing has changed then."""
        lowlevel.engine_set_progress(self.handle, json.dumps(progress))

    def set_boundary(self, boundary: int) -> None:
        """Who ends windows: lowlevel.BOUNDARY_CONFIGURED, BOUNDARY_NO or BOUNDARY_YES; every rank alike."""
        lowlevel.engine_set_boundary(self.handle, boundary)

    @property
    def is_boundary(self) -> bool:
        """Whether the next step ends the window."""
        return lowlevel.engine_get_boundary(self.handle)

    @property
    def loss_scale(self) -> float:
        """Of this window's passes; 1 without loss scaling."""
        return lowlevel.engine_get_loss_scale(self.handle)


def step_many(engines: Iterable[Engine], joint: Comm | None = None) -> list[lowlevel.StepReport]:
    """One step of several engines, all or none; joint: a Comm of the ranks of all, where they have different ones.
    Collective over all of them. OutriggerError E_ABORTED: a rank could not take part; nothing was updated."""
    engines = list(engines)
    try:
        return lowlevel.step_many([engine.handle for engine in engines], None if joint is None else joint.handle)
    finally:
        for engine in engines:
            engine._watchers.tell(engine.handle)
