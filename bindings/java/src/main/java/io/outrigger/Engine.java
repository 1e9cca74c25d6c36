// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.Engines;
import io.outrigger.lowlevel.Lowlevel;
import io.outrigger.lowlevel.LowlevelConstants;
import io.outrigger.lowlevel.Range;
import io.outrigger.lowlevel.StepReports;
import io.outrigger.lowlevel.Tensors;
import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * One model's training state on this rank. Parameters are declared, commit() lays them out, then come passes and steps. One thread at a
 * time uses it, but for methods that say "any thread": a call of another is an IllegalStateException, and so is one after close().
 *
 * <p>Every method may throw OutriggerException: CONFIG of the constructor, STATE for a call that does not fit, SHAPE and DTYPE for a tensor;
 * collective ones also what Comm lists, and after a failure in their middle POISONED from then on, which check() tells.
 */
public final class Engine extends Handle<io.outrigger.lowlevel.Engine> {
    /** A backward: adds the parameters' gradients to the pass. */
    @FunctionalInterface
    public interface Backward<X extends Exception> {
        void run(Pass pass) throws X;
    }

    private final Set<Acquired> acquired = ConcurrentHashMap.newKeySet();

    /** config: DeepSpeed-compatible JSON; null: float32, stage 0, AdamW. Local. CONFIG: path, line and remedy of the first fault. */
    public Engine(Comm comm, String config) {
        super(comm.createEngine(config), io.outrigger.lowlevel.Engine::delete);
    }

    // ---- Life ----

    /** Declares a parameter and returns its id; the same ones in the same order on every rank. The value is copied; rank 0's wins. Local. */
    public long addParameter(String name, Tensor initial) {
        return addParameter(name, initial, new ParameterOptions());
    }

    /** The same with options; initial may be null for an alias. DUPLICATE: the name is taken. */
    public long addParameter(String name, Tensor initial, ParameterOptions options) {
        return options.with(given -> askAlone(
                engine -> Lowlevel.engine_add_parameter(engine, name, initial == null ? null : initial.made(), given)));
    }

    /** A parameter whose value is 0 until setInitial, which costs no memory until then. Local. */
    public long declareParameter(String name, ParameterOptions options, long... shape) {
        return options.with(given -> askAlone(engine -> Lowlevel.engine_declare_parameter(engine, name, shape, given)));
    }

    /** Compares the declarations over the ranks, allocates, distributes rank 0's values. Collective. MISMATCH, OUT_OF_MEMORY. */
    public void commit() {
        tellAlone(Lowlevel::engine_commit);
    }

    /** Gives parameters their first values, between commit and the first pass, as often as need be. Collective. */
    public void setInitial(long[] ids, Tensor... values) {
        withList(values, list -> tellAlone(engine -> Lowlevel.engine_set_initial(engine, ids, list)));
    }

    private static void withList(Tensor[] tensors, Action<Tensors> call) {
        Tensors list = Tensor.list(tensors);
        try {
            call.on(list);
        } finally {
            list.delete();
            Reference.reachabilityFence(tensors);
        }
    }

    /** Waits for the background work of all ranks and ends the engine's collectives. Collective. */
    public void finalizeRanks() {
        closeAcquired();
        tellAlone(Lowlevel::engine_finalize);
    }

    /** Tells all ranks that this engine cannot go on: their calls throw ABORTED with this rank's number and the reason. Local, any thread. */
    public void abort(String reason) {
        tell(engine -> Lowlevel.engine_abort(engine, reason));
    }

    /** Throws the first failure of background work or of a collective call; it stays. Local, any thread. */
    public void check() {
        tell(Lowlevel::engine_check);
    }

    /** Passes that are not given back; for leak tests. Any thread. */
    public long liveChildren() {
        return ask(Lowlevel::engine_live_children);
    }

    /** Gives the handle back: acquired tensors are closed. It ends nothing on other ranks: finalizeRanks() or abort() does. Local. */
    @Override
    public void close() {
        synchronized (acquired) {
            closeAcquired();
            super.close();
        }
    }

    // ---- Parameters ----

    /** The id of a name. NOT_FOUND gives the nearest known name. Any thread. */
    public long parameterId(String name) {
        return ask(engine -> Lowlevel.engine_parameter_id(engine, name));
    }

    /** Any thread. */
    public String parameterName(long id) {
        return ask(engine -> Lowlevel.engine_parameter_name(engine, id));
    }

    /** Any thread. */
    public long[] parameterShape(long id) {
        io.outrigger.lowlevel.Tensor shape = ask(engine -> Lowlevel.engine_parameter_shape(engine, id));
        try {
            return Tensor.extents(shape);
        } finally {
            shape.delete();
        }
    }

    /** Parameters declared. Any thread. */
    public long parameterCount() {
        return ask(Lowlevel::engine_parameter_count);
    }

    /** Makes parameters readable in the compute dtype, on one host without a copy. Local where ranks share memory. */
    public Acquired acquire(long... ids) {
        return acquire(false, ids);
    }

    /** The same as float32 copies, whatever the stored format. */
    public Acquired acquireFloat32(long... ids) {
        return acquire(true, ids);
    }

    private Acquired acquire(boolean isFloat32, long[] ids) {
        long[] own = ids.clone();
        synchronized (acquired) { // a close() of another thread comes before or after
            Tensors made = Tag.with(null, flags(isFloat32), info -> askAlone(engine -> Lowlevel.engine_acquire(engine, own, info)));
            Acquired shown = new Acquired(this, own, isFloat32, made);
            acquired.add(shown);
            return shown;
        }
    }

    private static long flags(boolean isFloat32) {
        return isFloat32 ? LowlevelConstants.ACQUIRE_FLOAT32 : 0;
    }

    /** Begins to gather parameters for an acquire that follows soon, as acquire or acquireFloat32 would. Local. */
    public void prefetch(boolean isFloat32, long... ids) {
        Tag.with(null, flags(isFloat32), info -> {
            tellAlone(engine -> Lowlevel.engine_prefetch(engine, ids, info));
            return null;
        });
    }

    void release(Acquired shown, long[] ids, boolean isFloat32) {
        if (!acquired.remove(shown)) {
            return; // a step or the end has taken it already
        }
        Tag.with(null, flags(isFloat32), info -> {
            tellAlone(engine -> Lowlevel.engine_release(engine, ids, info));
            return null;
        });
    }

    private void closeAcquired() {
        acquired.forEach(Acquired::closeTensors);
        acquired.clear();
    }

    /** Copies a value of the whole parameter into `out`, of its shape and any float dtype. Collective. NOT_FOUND: it has no such value. */
    public void read(long id, Value value, Tensor out) {
        tellAlone(engine -> Lowlevel.engine_parameter_read(engine, id, value.number(), out.made()));
    }

    /** The same, as a new float32 tensor. */
    public Tensor read(long id, Value value) {
        Tensor out = Tensor.zeros(DType.FLOAT32, parameterShape(id));
        read(id, value, out);
        return out;
    }

    /** Sets a value of the whole parameter from rank 0's tensor, of its shape. Not between a pass and its step. Collective. */
    public void write(long id, Value value, Tensor source) {
        tellAlone(engine -> Lowlevel.engine_parameter_write(engine, id, value.number(), source.made()));
    }

    /** The elements that this rank updates: {first, count}, row-major. Local. */
    public long[] localRange(long id) {
        Range range = askAlone(engine -> Lowlevel.engine_local_range(engine, id));
        try {
            return new long[] {range.getFirst(), range.getCount()};
        } finally {
            range.delete();
        }
    }

    /** Like read, for the elements of localRange: 1-D, of that count. Local. */
    public void localRead(long id, Value value, Tensor out) {
        tellAlone(engine -> Lowlevel.engine_local_read(engine, id, value.number(), out.made()));
    }

    /** Like write, each rank for the elements of its localRange. Local. */
    public void localWrite(long id, Value value, Tensor source) {
        tellAlone(engine -> Lowlevel.engine_local_write(engine, id, value.number(), source.made()));
    }

    /** Freezes or thaws a parameter between two windows, every rank alike. Local. */
    public void setTrainable(long id, boolean isTrainable) {
        tellAlone(engine -> Lowlevel.engine_set_trainable(engine, id, isTrainable ? 1 : 0));
    }

    // ---- Hyperparameters, configuration, memory ----

    /** Sets "lr" and its like of a group (null: of all) from the next step on, every rank alike. Local. */
    public void setGroupValue(String group, String name, double value) {
        tellAlone(engine -> Lowlevel.engine_set_group_value(engine, group, name, value));
    }

    /** group null: the "default" group. Local. */
    public double groupValue(String group, String name) {
        return askAlone(engine -> Lowlevel.engine_get_group_value(engine, group, name));
    }

    /** The configuration in effect, every key with its value and origin, as JSON. Local. */
    public String config() {
        return askAlone(Lowlevel::engine_config);
    }

    /** The ledger, "total" last. Local. */
    public List<MemoryEntry> memory() {
        return MemoryEntry.all(askAlone(Lowlevel::engine_memory));
    }

    // ---- Backward and step ----

    /** A pass over gradients of the outputs, of any shapes and float dtypes (a loss: Tensor.scalar(1)), which are copied and scaled. Local. */
    public Pass beginPass(Tensor... outputGrads) {
        return beginPass(null, outputGrads);
    }

    /** The same of gradients that another pass's tag comes with; they are multiplied by what they lack. */
    public Pass beginPass(Tag tag, Tensor... outputGrads) {
        Pass[] begun = new Pass[1];
        withList(outputGrads, list -> begun[0] =
                new Pass(Tag.with(tag, 0, info -> askAlone(engine -> Lowlevel.pass_begin(engine, list, info)))));
        return begun[0];
    }

    /** One whole pass; what `backward` throws gives the pass up, and reaches the caller. */
    public <X extends Exception> void backward(Tensor[] outputGrads, Backward<X> backward) throws X {
        try (Pass pass = beginPass(outputGrads)) {
            backward.run(pass);
            pass.end();
        }
    }

    /** The same with one output. */
    public <X extends Exception> void backward(Tensor outputGrad, Backward<X> backward) throws X {
        backward(new Tensor[] {outputGrad}, backward);
    }

    /** Ends a micro-batch; the last one of a window updates, and closes acquired tensors. Collective. A skipped step is no failure. */
    public StepReport step() {
        return told(StepReport.of(askAlone(Lowlevel::engine_step)));
    }

    /** Begins the step on a thread of the library; report() tells how it ended. Local. */
    public void beginStep() {
        tellAlone(Lowlevel::engine_step_begin);
    }

    /** The report of the step that was begun last; Outcome.PENDING if it is not over within the seconds. Negative: waits for the end. */
    public StepReport report(double timeoutSeconds) {
        return told(StepReport.of(askAlone(engine -> Lowlevel.engine_report(engine, timeoutSeconds))));
    }

    private StepReport told(StepReport report) {
        if (report.isApplied() || report.isSkipped()) {
            closeAcquired();
        }
        return report;
    }

    /** The first half of a step: sums gradients and agrees on norm and Inf/NaN; then Value.GRAD can be read and written. Collective. */
    public StepReport reduce() {
        return StepReport.of(askAlone(Lowlevel::engine_reduce));
    }

    /** Drops the gradients of the window. Collective. */
    public void discard() {
        tellAlone(Lowlevel::engine_discard);
    }

    /** One step of several engines, all or none; joint: null, or a group of the ranks of all. Collective over all of them. */
    public static List<StepReport> stepMany(List<Engine> engines, Comm joint) {
        Engines list = new Engines();
        try {
            return stepFrom(engines, joint, list, 0);
        } finally {
            list.delete();
        }
    }

    /** Inside of a call on each engine from `index` on. */
    private static List<StepReport> stepFrom(List<Engine> engines, Comm joint, Engines list, int index) {
        if (index < engines.size()) {
            Engine engine = engines.get(index);
            return engine.askAlone(made -> {
                list.add(made);
                return stepFrom(engines, joint, list, index + 1);
            });
        }
        StepReports made = joint == null ? Lowlevel.step_many(list, null) : joint.askAlone(group -> Lowlevel.step_many(list, group));
        try {
            List<StepReport> reports = new ArrayList<>();
            for (int i = 0; i < engines.size(); i++) {
                reports.add(engines.get(i).told(StepReport.of(made.copy(i))));
            }
            return reports;
        } finally {
            made.delete();
        }
    }

    /** Who ends windows, from the next step on; every rank alike. Local. */
    public void setBoundary(Boundary boundary) {
        tellAlone(engine -> Lowlevel.engine_set_boundary(engine, boundary.number()));
    }

    /** Of this window's passes; 1 without loss scaling. Local. */
    public double lossScale() {
        return askAlone(Lowlevel::engine_get_loss_scale);
    }

    // ---- Checkpoints ----

    /** Saves the training as directory/tag, durable when it returns. Between two windows. Collective. DUPLICATE, IO, STATE. */
    public void save(Path directory, String tag) {
        tellAlone(engine -> Lowlevel.engine_save(engine, directory.toString(), tag, null));
    }

    /** Goes on from a checkpoint of any world, stage and formats; tag null: the last one. Collective. NOT_FOUND, CORRUPT, SHAPE. */
    public void load(Path directory, String tag) {
        tellAlone(engine -> Lowlevel.engine_load(engine, directory.toString(), tag, null));
    }

    /** All that a run is besides values, as JSON. Between two windows. Local. */
    public String progress() {
        return askAlone(Lowlevel::engine_get_progress);
    }

    /** Goes on from progress(); values are written apart. Collective. CONFIG: it does not fit. */
    public void setProgress(String json) {
        tellAlone(engine -> Lowlevel.engine_set_progress(engine, json));
    }
}
