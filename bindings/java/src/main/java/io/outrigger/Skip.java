// SPDX-License-Identifier: Apache-2.0
// Generated from outrigger.h by bindings/gen; not to be edited.
package io.outrigger;

/** Why a step was skipped. */
public enum Skip {
    NONE(0),
    /** A gradient is Inf or NaN; see nonfinite_*. */
    NONFINITE(1),
    /** A rank abandoned a pass of this window. */
    ABANDONED(2),
    /** An output's gradient overflowed when it was scaled, on rank nonfinite_rank. */
    SEED_OVERFLOW(3),
    /** Another engine of the joint step was skipped. */
    JOINT(4),
    /** The norm is far beyond the last ones (skip_outlier_norms). */
    OUTLIER(5);

    private final int number;

    Skip(int number) {
        this.number = number;
    }

    /** The constant's number in outrigger.h. */
    public int number() {
        return number;
    }

    static Skip of(int number) {
        for (Skip each : values()) {
            if (each.number == number) {
                return each;
            }
        }
        throw new IllegalArgumentException("Skip has no " + number + ": the library is of a later release");
    }
}
