// SPDX-License-Identifier: Apache-2.0
// Generated from outrigger.h by bindings/gen; not to be edited.
package io.outrigger;

/** Who ends accumulation windows. */
public enum Boundary {
    /** Every gradient_accumulation_steps-th step ends a window. */
    CONFIGURED(0),
    /** Steps accumulate. */
    NO(1),
    /** Every step ends its window. */
    YES(2);

    private final int number;

    Boundary(int number) {
        this.number = number;
    }

    /** The constant's number in outrigger.h. */
    public int number() {
        return number;
    }

    static Boundary of(int number) {
        for (Boundary each : values()) {
            if (each.number == number) {
                return each;
            }
        }
        throw new IllegalArgumentException("Boundary has no " + number + ": the library is of a later release");
    }
}
