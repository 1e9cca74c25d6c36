// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import java.nio.charset.StandardCharsets;

/** A call failed: its status, and the library's text with the offending value, the rule and the way out. */
public final class OutriggerException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final Status status;
    private final String text;

    private OutriggerException(Status status, int number, String text) {
        super((status == Status.UNKNOWN ? "status " + number : "OTR_E_" + status) + ": " + text);
        this.status = status;
        this.text = text;
    }

    /** Called by the native library: the text is UTF-8. */
    static OutriggerException of(int status, byte[] text) {
        return new OutriggerException(Status.of(status), status, new String(text, StandardCharsets.UTF_8));
    }

    static OutriggerException of(Status status, String text) {
        return new OutriggerException(status, status.number(), text);
    }

    /** Why the call failed. */
    public Status status() {
        return status;
    }

    /** The library's text without the status. */
    public String text() {
        return text;
    }
}
