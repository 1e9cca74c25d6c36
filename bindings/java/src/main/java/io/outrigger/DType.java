// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import java.util.Locale;

/** What the elements of a Tensor are. */
public enum DType {
    FLOAT32(4),
    FLOAT64(8),
    /** The upper half of a float32; in a ShortBuffer its bits. */
    BFLOAT16(2),
    /** IEEE 754 binary16; in a ShortBuffer its bits. */
    FLOAT16(2),
    INT8(1),
    INT16(2),
    INT32(4),
    INT64(8),
    UINT8(1),
    UINT16(2),
    UINT32(4),
    UINT64(8),
    BOOL(1);

    private final int bytes;

    DType(int bytes) {
        this.bytes = bytes;
    }

    /** The bytes of one element. */
    public int bytes() {
        return bytes;
    }

    String libraryName() {
        return name().toLowerCase(Locale.ROOT);
    }

    static DType of(String libraryName) {
        return valueOf(libraryName.toUpperCase(Locale.ROOT));
    }
}
