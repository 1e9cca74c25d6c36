// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.Lowlevel;
import io.outrigger.lowlevel.ShardOptions;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** A flat piece of parameters and gradients in the caller's memory, with states of its own. Keeps the tensors alive. Local. */
public final class Shard extends Handle<io.outrigger.lowlevel.Shard> {
    private final List<Tensor> states = new ArrayList<>();

    /** weights, grads: 1-D, of one count, each FLOAT32, BFLOAT16 or FLOAT16. */
    public Shard(Context context, Tensor weights, Tensor grads) {
        this(context, weights, grads, null);
    }

    /** published: of 16 bits and the same count; it receives the updated float32 weights. null: none. */
    public Shard(Context context, Tensor weights, Tensor grads, Tensor published) {
        super(wrap(context, weights, grads, published), delete(weights, grads, published));
    }

    private static io.outrigger.lowlevel.Shard wrap(Context context, Tensor weights, Tensor grads, Tensor published) {
        ShardOptions options = new ShardOptions();
        try {
            options.set_published(published == null ? null : published.made());
            return context.ask(made -> Lowlevel.shard_wrap(made, weights.made(), grads.made(), options));
        } finally {
            options.delete();
        }
    }

    /** The memory stays until the shard is gone. */
    private static Consumer<io.outrigger.lowlevel.Shard> delete(Tensor... kept) {
        return made -> {
            made.delete();
            Reference.reachabilityFence(kept);
        };
    }

    /** A 1-D view of Value.EXP_AVG or EXP_AVG_SQ, as stored, until the shard is closed. NOT_FOUND before the first step. */
    public Tensor state(Value value) {
        synchronized (states) { // a close() of another thread comes before or after
            Tensor state = Tensor.lent(askAlone(shard -> Lowlevel.shard_state(shard, value.number())), this, true);
            states.add(state);
            return state;
        }
    }

    /** Bytes of states that it owns. */
    public long stateBytes() {
        return askAlone(Lowlevel::shard_state_bytes);
    }

    /** Frees the states; the caller's memory stays as it is. */
    @Override
    public void close() {
        synchronized (states) {
            states.forEach(Tensor::close);
            states.clear();
            super.close();
        }
    }
}
