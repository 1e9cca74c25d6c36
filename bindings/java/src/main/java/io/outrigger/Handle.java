// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.function.Consumer;

/**
 * A handle of the library. It is given back once: when close() was called, no call of any thread is under way on it, and no direct
 * buffer of its memory can be reached any more. What nobody closes is given back after the object cannot be reached.
 *
 * @param <N> its class in io.outrigger.lowlevel
 */
abstract class Handle<N> implements AutoCloseable {
    static final Cleaner CLEANER = Cleaner.create();

    static {
        NativeLibrary.load();
    }

    /** What the handle and its buffers share, without the handle itself. */
    private static final class State<N> implements Runnable {
        private final N made;
        private final Consumer<N> destroy;
        private boolean isClosed;
        private boolean isDestroyed;
        private int uses;
        private Thread owner;
        private int depth;

        State(N made, Consumer<N> destroy) {
            this.made = made;
            this.destroy = destroy;
        }

        /** Of the Cleaner. */
        @Override
        public void run() {
            close();
        }

        synchronized void close() {
            isClosed = true;
            destroyIfUnused();
        }

        synchronized void use() {
            uses++;
        }

        synchronized void done() {
            uses--;
            destroyIfUnused();
        }

        synchronized void begin(String name, boolean isAlone) {
            if (isClosed) {
                throw new IllegalStateException("this " + name + " is closed");
            }
            if (isAlone) {
                Thread current = Thread.currentThread();
                if (owner != null && owner != current) {
                    throw new IllegalStateException("another thread is in a call on this " + name + ": one thread at a time uses it");
                }
                owner = current;
                depth++;
            }
            uses++;
        }

        synchronized void end(boolean isAlone) {
            if (isAlone && --depth == 0) {
                owner = null;
            }
            done();
        }

        private void destroyIfUnused() {
            if (isClosed && uses == 0 && !isDestroyed) {
                isDestroyed = true;
                destroy.accept(made);
            }
        }
    }

    /** A call with a result. */
    interface Question<N, R> {
        R on(N made);
    }

    /** A call without one. */
    interface Action<N> extends Question<N, Void> {
        void make(N made);

        @Override
        default Void on(N made) {
            make(made);
            return null;
        }
    }

    private final State<N> state;
    private final Cleaner.Cleanable net;

    Handle(N made, Consumer<N> destroy) {
        state = new State<>(made, destroy);
        net = CLEANER.register(this, state);
    }

    private String name() {
        return getClass().getSimpleName();
    }

    private <R> R call(Question<N, R> call, boolean isAlone) {
        state.begin(name(), isAlone);
        try {
            return call.on(state.made);
        } finally {
            Reference.reachabilityFence(call); // what it refers to, tensors above all, is reachable until it is over
            state.end(isAlone);
        }
    }

    /** A call that the header marks "any thread". */
    final <R> R ask(Question<N, R> call) {
        return call(call, false);
    }

    /** The same without a result. */
    final void tell(Action<N> call) {
        call(call, false);
    }

    /** A call of one thread at a time. */
    final <R> R askAlone(Question<N, R> call) {
        return call(call, true);
    }

    /** The same without a result. */
    final void tellAlone(Action<N> call) {
        call(call, true);
    }

    /** As long as `buffer` can be reached, what it shows stays. */
    final void keepFor(Object buffer) {
        State<N> kept = state;
        kept.use();
        CLEANER.register(buffer, kept::done);
    }

    /** Whether close() was called. */
    public final boolean isClosed() {
        synchronized (state) {
            return state.isClosed;
        }
    }

    /** Gives the handle back. Local, any thread. Doing it again is a no-op. */
    @Override
    public void close() {
        net.clean();
    }
}
