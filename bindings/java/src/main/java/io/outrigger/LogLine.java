// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.Lowlevel;

/**
 * A line of the library's log.
 *
 * @param level how much it matters
 * @param text without a newline
 */
public record LogLine(Level level, String text) {
    /** How much a line matters. */
    public enum Level {
        /** An engine failed for good. */
        ERROR,
        /** A configuration that is legal and rarely meant, or a window that is bound to be skipped. */
        WARNING,
        /** What an engine is, and each skipped step with its cause. */
        INFO,
        /** Each update. */
        DEBUG;

        int code() {
            return Lowlevel.LOG_ERROR + ordinal();
        }
    }

    /** The first line that waits, of any context; null: there is none. Any thread. */
    static LogLine take() {
        io.outrigger.lowlevel.LogLine line = Lowlevel.log_take();
        if (line == null) {
            return null;
        }
        try {
            return new LogLine(Level.values()[line.level() - Lowlevel.LOG_ERROR], line.text());
        } finally {
            line.delete();
        }
    }
}
