// SPDX-License-Identifier: Apache-2.0
package io.outrigger.lowlevel;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Texts as the library takes them: UTF-8, with a NUL at the end. */
final class Text {
    private Text() {}

    static byte[] bytes(String text) {
        if (text == null) {
            return null;
        }
        if (text.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("a text for the library has a NUL in it");
        }
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return Arrays.copyOf(bytes, bytes.length + 1);
    }

    static String of(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }
}
