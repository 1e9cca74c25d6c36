// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.Tensors;

/** Weights that Engine.acquire made readable. Its tensors are read-only, and closed with it or by the next step that ends a window. */
public final class Acquired implements AutoCloseable {
    private final Engine engine;
    private final long[] ids;
    private final boolean isFloat32;
    private final Tensor[] tensors;
    private boolean isReleased;

    Acquired(Engine engine, long[] ids, boolean isFloat32, Tensors made) {
        this.engine = engine;
        this.ids = ids;
        this.isFloat32 = isFloat32;
        tensors = new Tensor[ids.length];
        try {
            for (int i = 0; i < ids.length; i++) {
                tensors[i] = Tensor.lent(made.view(i), engine, false); // the end of the engine, or the release, takes it back
            }
        } finally {
            made.delete();
        }
    }

    /** The index-th of the ids that were acquired. IndexOutOfBoundsException. */
    public Tensor get(int index) {
        return tensors[index];
    }

    /** A copy of its elements as float32. */
    public float[] floats(int index) {
        return get(index).floats();
    }

    void closeTensors() {
        for (Tensor tensor : tensors) {
            tensor.close();
        }
    }

    /** Releases the weights. Local. Doing it again is a no-op. */
    @Override
    public void close() {
        if (isReleased) {
            return;
        }
        isReleased = true;
        closeTensors();
        engine.release(this, ids, isFloat32);
    }
}
