// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.CommOptions;
import io.outrigger.lowlevel.Comms;
import io.outrigger.lowlevel.Lowlevel;
import java.util.ArrayList;
import java.util.List;

/**
 * A group of ranks. One thread at a time uses it: a call of another is an IllegalStateException. Collective calls throw
 * OutriggerException: PEER_DEAD, TIMEOUT and ABORTED name the rank, MISMATCH what it did otherwise.
 */
public final class Comm extends Handle<io.outrigger.lowlevel.Comm> {
    private Comm(io.outrigger.lowlevel.Comm made) {
        super(made, io.outrigger.lowlevel.Comm::delete);
    }

    /** A group of one. Local. */
    public static Comm alone(Context context) {
        return new Comm(context.ask(Lowlevel::comm_create_self));
    }

    /** The processes of the launcher; without one, a group of one. Collective. CONFIG lists what was found in the environment. */
    public static Comm fromEnv(Context context) {
        return new Comm(context.ask(made -> Lowlevel.comm_from_env(made, null)));
    }

    /** The same with the seconds that a call waits for a silent rank; 300 otherwise. */
    public static Comm fromEnv(Context context, double timeoutSeconds) {
        return with(timeoutSeconds, options -> new Comm(context.ask(made -> Lowlevel.comm_from_env(made, options))));
    }

    /** `size` groups of this process, each for a thread of its own. Local. */
    public static List<Comm> threads(Context context, int size, double timeoutSeconds) {
        return with(timeoutSeconds, options -> {
            Comms made = context.ask(from -> Lowlevel.comm_create_threads(from, size, options));
            try {
                List<Comm> all = new ArrayList<>();
                for (int rank = 0; rank < size; rank++) {
                    all.add(new Comm(made.take(rank)));
                }
                return all;
            } finally {
                made.delete();
            }
        });
    }

    private static <R> R with(double timeoutSeconds, Question<CommOptions, R> call) {
        CommOptions options = new CommOptions();
        try {
            options.setTimeout(timeoutSeconds);
            return call.on(options);
        } finally {
            options.delete();
        }
    }

    /** The ranks that give the same color, ordered by key and then by rank; null with color -1. Collective. */
    public Comm split(int color, int key) {
        io.outrigger.lowlevel.Comm made = askAlone(comm -> Lowlevel.comm_split(comm, color, key));
        return made == null ? null : new Comm(made);
    }

    /** The same ranks with an order of their own, for another thread. Collective. */
    public Comm duplicate() {
        return new Comm(askAlone(Lowlevel::comm_duplicate));
    }

    public int rank() {
        return ask(Lowlevel::comm_rank);
    }

    /** The number of ranks. */
    public int size() {
        return ask(Lowlevel::comm_size);
    }

    /** Returns when every rank has called it. Collective. */
    public void barrier() {
        tellAlone(Lowlevel::comm_barrier);
    }

    /** Copies rank root's elements to all; as many bytes on every rank. Collective. */
    public void broadcast(Tensor tensor, int root) {
        tellAlone(comm -> Lowlevel.comm_broadcast(comm, tensor.made(), root));
    }

    /** `all` receives every rank's elements, in rank order. Collective. SHAPE: it has not size() times the bytes. */
    public void allGather(Tensor mine, Tensor all) {
        tellAlone(comm -> Lowlevel.comm_all_gather(comm, mine.made(), all.made()));
    }

    /** Replaces each value by its sum over the ranks, added in rank order. Collective. */
    public void allReduceSum(double[] values) {
        Tensor copy = Tensor.of(values, values.length);
        tellAlone(comm -> Lowlevel.comm_all_reduce_sum(comm, copy.made()));
        copy.buffer().asDoubleBuffer().get(values);
    }

    /** Ends the group: calls of all ranks throw ABORTED with this rank's number and the reason. Local, any thread. */
    public void abort(String reason) {
        tell(comm -> Lowlevel.comm_abort(comm, reason));
    }

    io.outrigger.lowlevel.Engine createEngine(String config) {
        return askAlone(comm -> Lowlevel.engine_create(comm, config));
    }
}
