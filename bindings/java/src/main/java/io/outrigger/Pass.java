// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.CallInfo;
import io.outrigger.lowlevel.Lowlevel;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * One backward pass, from Engine.beginPass or Engine.backward. Closed before end(), it is abandoned: the next step discards the window.
 * Tensors that it hands out are closed with it. Any thread may call getters and add gradients; one ends it.
 */
public final class Pass extends Handle<io.outrigger.lowlevel.Pass> {
    // What is handed out is closed with the pass, also where another thread closes it: the two are never at the same time.
    private final Map<Long, Tensor> slots = new ConcurrentHashMap<>();
    private final Map<Long, Tensor> outputGrads = new ConcurrentHashMap<>();

    Pass(io.outrigger.lowlevel.Pass made) {
        super(made, io.outrigger.lowlevel.Pass::delete);
    }

    /** The scaled gradient of an output: its shape, float32, writable, until the pass is closed. */
    public synchronized Tensor outputGrad(long index) {
        return outputGrads.computeIfAbsent(index, number -> Tensor.lent(ask(pass -> Lowlevel.pass_get_output_grad(pass, number)), this, true));
    }

    /** The factor that output gradients carry: loss scale / accumulation steps. */
    public double scale() {
        return ask(Lowlevel::pass_get_scale);
    }

    /** What its gradients carry. */
    public Tag tag() {
        CallInfo info = new CallInfo();
        try {
            tell(pass -> Lowlevel.pass_get_tag(pass, info));
            return Tag.of(info);
        } finally {
            info.delete();
        }
    }

    /** The first output whose gradient overflowed when it was scaled; -1: none. */
    public long seedOverflow() {
        return ask(Lowlevel::pass_get_seed_overflow);
    }

    /** out = grad without the factors that it carries; equal shapes, any float dtypes. SHAPE, DTYPE. */
    public void unscale(Tensor grad, Tensor out) {
        tell(pass -> Lowlevel.pass_unscale(pass, grad.made(), out.made()));
    }

    /**
     * Memory for a parameter's gradient: its shape, the compute dtype, uninitialised. Write into it and give it to addGrad, which closes it.
     * STATE: there is one of this parameter already, or the pass is over.
     */
    public synchronized Tensor slot(long id) {
        Tensor slot = Tensor.lent(ask(pass -> Lowlevel.pass_get_slot(pass, id)), this, false);
        slots.put(id, slot);
        return slot;
    }

    /** Adds a gradient: its slot, or any tensor of the parameter's shape and a float dtype, which is copied. STATE, SHAPE, DTYPE. */
    public void addGrad(long id, Tensor grad) {
        addGrad(id, grad, null);
    }

    /** The same of a gradient that carries other factors. */
    public void addGrad(long id, Tensor grad, Tag tag) {
        Tag.with(tag, 0, info -> {
            tell(pass -> Lowlevel.pass_add_grad(pass, id, grad.made(), info));
            return null;
        });
        if (slots.remove(id, grad)) {
            grad.close();
        }
    }

    /** Parameters without a gradient count as zero on this rank. Local. */
    public synchronized void end() {
        closeSlots();
        tellAlone(Lowlevel::pass_end);
    }

    /** Gives the pass up: the next step discards the window, unless nothing was added. Local. */
    public synchronized void abandon() {
        closeSlots();
        tellAlone(Lowlevel::pass_abandon);
    }

    private void closeSlots() {
        slots.values().forEach(Tensor::close);
        slots.clear();
    }

    @Override
    public synchronized void close() {
        if (isClosed()) {
            return;
        }
        abandon(); // at once, though a buffer of an output gradient may put off the rest; after end(): nothing
        outputGrads.values().forEach(Tensor::close);
        super.close();
    }
}
