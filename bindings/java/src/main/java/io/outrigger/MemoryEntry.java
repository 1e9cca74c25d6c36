// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.MemoryEntries;
import java.util.ArrayList;
import java.util.List;

/**
 * One purpose of an engine's ledger.
 *
 * @param purpose such as "master weights"; the last one is "total"
 * @param residentBytes now, on this rank
 * @param peakBytes the most there was so far
 */
public record MemoryEntry(String purpose, long residentBytes, long peakBytes) {
    static List<MemoryEntry> all(MemoryEntries made) {
        try {
            List<MemoryEntry> all = new ArrayList<>();
            for (long i = 0; i < made.size(); i++) {
                all.add(new MemoryEntry(made.purpose(i), made.resident_bytes(i), made.peak_bytes(i)));
            }
            return all;
        } finally {
            made.delete();
        }
    }
}
