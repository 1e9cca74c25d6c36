// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.ContextOptions;
import io.outrigger.lowlevel.Lowlevel;

/**
 * What groups and engines are made of. Any thread; its children go on after close(). A call that waits for other ranks ends with
 * Status.INTERRUPTED when Thread.interrupt is called on its thread; the interrupt is then taken, and the call can be made again.
 */
public final class Context extends Handle<io.outrigger.lowlevel.Context> {
    /** With this process's share of the cores. */
    public Context() {
        this(0);
    }

    /** workers: threads for each engine's updates; 0: this process's share of the cores. */
    public Context(int workers) {
        super(create(workers), io.outrigger.lowlevel.Context::delete);
    }

    private static io.outrigger.lowlevel.Context create(int workers) {
        ContextOptions options = new ContextOptions();
        try {
            options.setWorkers(workers);
            return Lowlevel.context_create(options);
        } finally {
            options.delete();
        }
    }

    /** The version of the library that is loaded. */
    public static String version() {
        return Lowlevel.version();
    }
}
