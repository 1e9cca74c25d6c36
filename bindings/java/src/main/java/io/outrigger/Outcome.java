// SPDX-License-Identifier: Apache-2.0
// Generated from outrigger.h by bindings/gen; not to be edited.
package io.outrigger;

/** What a step did. */
public enum Outcome {
    /** Not a boundary: gradients are kept, nothing was updated. */
    ACCUMULATED(1),
    /** Parameters were updated and published. */
    APPLIED(2),
    /** Nothing was updated, the gradients are gone; reason says why. */
    SKIPPED(3),
    /** otr_engine_reduce: gradients are summed, nothing was updated. */
    REDUCED(4),
    /** otr_engine_report: the step that was begun is not over. */
    PENDING(5);

    private final int number;

    Outcome(int number) {
        this.number = number;
    }

    /** The constant's number in outrigger.h. */
    public int number() {
        return number;
    }

    static Outcome of(int number) {
        for (Outcome each : values()) {
            if (each.number == number) {
                return each;
            }
        }
        throw new IllegalArgumentException("Outcome has no " + number + ": the library is of a later release");
    }
}
