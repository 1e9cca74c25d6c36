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
        this(workers, null);
    }

    /** logged: lines up to this level wait for takeLog; null: none. */
    public Context(int workers, LogLine.Level logged) {
        super(create(workers, logged), io.outrigger.lowlevel.Context::delete);
    }

    /** The first line that waits, of any context; null: there is none. Any thread. */
    public static LogLine takeLog() {
        NativeLibrary.load();
        return LogLine.take();
    }

    private static io.outrigger.lowlevel.Context create(int workers, LogLine.Level logged) {
        ContextOptions options = new ContextOptions();
        try {
            options.setWorkers(workers);
            if (logged != null) {
                options.keep_log(logged.code());
            }
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
