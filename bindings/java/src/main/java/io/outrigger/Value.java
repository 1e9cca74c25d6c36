// SPDX-License-Identifier: Apache-2.0
// Generated from outrigger.h by bindings/gen; not to be edited.
package io.outrigger;

/** A value of a parameter. */
public enum Value {
    /** The weight that the optimizer updates. */
    MASTER(0),
    /** The weight that acquire shows. */
    PUBLISHED(1),
    /** The first moment, or SGD's momentum. */
    EXP_AVG(2),
    /** The second moment, or Adagrad's sum of squares. */
    EXP_AVG_SQ(3),
    /** The window's mean gradient, unscaled and not clipped; between otr_engine_reduce and otr_engine_step. */
    GRAD(4);

    private final int number;

    Value(int number) {
        this.number = number;
    }

    /** The constant's number in outrigger.h. */
    public int number() {
        return number;
    }

    static Value of(int number) {
        for (Value each : values()) {
            if (each.number == number) {
                return each;
            }
        }
        throw new IllegalArgumentException("Value has no " + number + ": the library is of a later release");
    }
}
