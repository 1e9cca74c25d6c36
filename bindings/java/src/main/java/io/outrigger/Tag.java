// SPDX-License-Identifier: Apache-2.0
package io.outrigger;

import io.outrigger.lowlevel.CallInfo;

/**
 * What the gradients of a pass carry, for Engine.beginPass of the engine that made their inputs.
 *
 * @param lossScale multiplied into them
 * @param accumulation the accumulation steps that they were divided by; 0: still to be divided
 * @param ranks the ranks that their sum is still to be divided by
 */
public record Tag(double lossScale, int accumulation, int ranks) {
    static Tag of(CallInfo info) {
        return new Tag(info.getLoss_scale(), info.getAccumulation(), info.getRanks());
    }

    /** Runs a call with the tag as the library takes it; null for none. */
    static <R> R with(Tag tag, long flags, Handle.Question<CallInfo, R> call) {
        if (tag == null && flags == 0) {
            return call.on(null);
        }
        CallInfo info = new CallInfo();
        try {
            info.setFlags(flags);
            if (tag != null) {
                info.setLoss_scale(tag.lossScale);
                info.setAccumulation(tag.accumulation);
                info.setRanks(tag.ranks);
            }
            return call.on(info);
        } finally {
            info.delete();
        }
    }
}
