// SPDX-License-Identifier: Apache-2.0
// Generated from outrigger.h by bindings/gen; not to be edited.
package io.outrigger;

/**
 * What a step did, and why.
 *
 * @param outcome what the step did
 * @param reason why it was skipped
 * @param nonfiniteRank rank whose contribution was not finite; -1: none, or only the sum was not
 * @param nonfiniteParam lowest id of a parameter whose gradient is not finite; -1: none
 * @param nonfiniteCount elements not finite, over all ranks and parameters
 * @param microSteps step calls since commit
 * @param appliedSteps updates since commit
 * @param skippedSteps skips since commit
 * @param gradNorm L2 norm of the mean gradient, before clipping; Inf or NaN if skipped for it
 * @param clipCoefficient factor that clipping applied; 1: none
 * @param lossScale of this window's passes
 * @param lr of the default group, as used; under a schedule, what it gives
 * @param updates elements whose update was not zero, over all ranks
 * @param vanished of these, the ones whose weight stayed the same after rounding
 */
public record StepReport(
        Outcome outcome,
        Skip reason,
        int nonfiniteRank,
        long nonfiniteParam,
        long nonfiniteCount,
        long microSteps,
        long appliedSteps,
        long skippedSteps,
        double gradNorm,
        double clipCoefficient,
        double lossScale,
        double lr,
        long updates,
        long vanished) {
    /** Whether parameters were updated. */
    public boolean isApplied() {
        return outcome == Outcome.APPLIED;
    }

    /** Whether nothing was updated, for reason(). */
    public boolean isSkipped() {
        return outcome == Outcome.SKIPPED;
    }

    /** Copies the library's report and gives it back. */
    static StepReport of(io.outrigger.lowlevel.StepReport made) {
        try {
            return new StepReport(
                    Outcome.of(made.getOutcome()),
                    Skip.of(made.getReason()),
                    made.getNonfinite_rank(),
                    made.getNonfinite_param(),
                    made.getNonfinite_count(),
                    made.getMicro_steps(),
                    made.getApplied_steps(),
                    made.getSkipped_steps(),
                    made.getGrad_norm(),
                    made.getClip_coefficient(),
                    made.getLoss_scale(),
                    made.getLr(),
                    made.getUpdates(),
                    made.getVanished());
        } finally {
            made.delete();
        }
    }
}
