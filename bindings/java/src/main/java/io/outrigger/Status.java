// SPDX-License-Identifier: Apache-2.0
// Generated from outrigger.h by bindings/gen; not to be edited.
package io.outrigger;

/** Why a call failed. */
public enum Status {
    /** A NULL pointer, or a value outside its legal range. */
    ARGUMENT(-1),
    /** The call does not fit the object's state. */
    STATE(-2),
    /** The configuration is malformed or contradicts itself. */
    CONFIG(-3),
    /** Legal, but not built into this library or not available here. */
    UNSUPPORTED(-4),
    /** A tensor's shape or strides are not what the call needs. */
    SHAPE(-5),
    /** A tensor's dtype is not what the call takes. */
    DTYPE(-6),
    /** A tensor's device is not the engine's. */
    DEVICE(-7),
    /** No parameter, group, field or file has this id or name. */
    NOT_FOUND(-8),
    /** The name is taken. */
    DUPLICATE(-9),
    /** Memory, shared memory or another system limit is exhausted. */
    OUT_OF_MEMORY(-10),
    /** The caller's buffer is too small; the needed size was written. */
    BUFFER_SIZE(-11),
    /** Another rank ended; collective calls cannot complete. */
    PEER_DEAD(-12),
    /** A rank was silent past the deadline. */
    TIMEOUT(-13),
    /** Ranks disagree: on order, shape, configuration or version. */
    MISMATCH(-14),
    /** A rank called abort. */
    ABORTED(-15),
    /** An earlier failure left the engine unusable; destroy it. */
    POISONED(-16),
    /** The operating system refused; the text has its reason. */
    SYSTEM(-17),
    /** A struct_size or version this library does not know. */
    ABI(-18),
    /** A callback of the host reported failure. */
    HOST(-19),
    /** The host asked a waiting call to end. */
    INTERRUPTED(-20),
    /** Gradients overflow at the smallest loss scale. */
    LOSS_SCALE(-21),
    /** A device failed; what was on it is lost. */
    DEVICE_FAULT(-22),
    /** A file cannot be read or written; the text has the reason. */
    IO(-23),
    /** A file is damaged, cut short, or not of the kind it should be. */
    CORRUPT(-24),
    /** A fault of this library; please report it with the text. */
    INTERNAL(-99),
    /** A status of a later release of the library. */
    UNKNOWN(0);

    private final int number;

    Status(int number) {
        this.number = number;
    }

    /** The constant's number in outrigger.h. */
    public int number() {
        return number;
    }

    static Status of(int number) {
        for (Status each : values()) {
            if (each.number == number) {
                return each;
            }
        }
        return UNKNOWN;
    }
}
