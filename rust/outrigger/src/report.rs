// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a step did.
use crate::engine::ParameterId;
use crate::raw::{check, sized};
use crate::{Outcome, Result, Skip};
use outrigger_sys::*;

/// What a step did, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// What it did.
    pub outcome: Outcome,
    /// Why it was skipped.
    pub reason: Skip,
    /// The rank whose contribution is not finite; `None`: none, or only the sum is not.
    pub nonfinite_rank: Option<i32>,
    /// The first parameter, or of an [`Optimizer`](crate::Optimizer) the first shard, whose gradient is not finite.
    pub nonfinite_param: Option<ParameterId>,
    /// Elements that are not finite, over all ranks and parameters.
    pub nonfinite_count: i64,
    /// Steps since commit.
    pub micro_steps: i64,
    /// Updates since commit.
    pub applied_steps: i64,
    /// Skips since commit.
    pub skipped_steps: i64,
    /// L2 norm of the mean gradient, before clipping.
    pub grad_norm: f64,
    /// The factor that clipping applied; 1: none.
    pub clip_coefficient: f64,
    /// Of this window's passes.
    pub loss_scale: f64,
    /// Of the default group, as used.
    pub lr: f64,
    /// Elements whose update is not zero, over all ranks.
    pub updates: i64,
    /// Of these, the ones whose weight stayed the same after rounding.
    pub vanished: i64,
}

impl Report {
    /// Whether parameters were updated.
    pub fn is_applied(&self) -> bool {
        self.outcome == Outcome::Applied
    }

    /// Whether the window's gradients are gone without an update.
    pub fn is_skipped(&self) -> bool {
        self.outcome == Outcome::Skipped
    }

    pub(crate) fn of(call: impl FnOnce(*mut otr_step_report) -> i32) -> Result<Self> {
        let mut raw = sized!(otr_step_report);
        check(call(&mut raw))?;
        Ok(Self::from_raw(&raw))
    }

    pub(crate) fn from_raw(raw: &otr_step_report) -> Self {
        let named = |number: i32| (number >= 0).then_some(number);
        Self {
            outcome: Outcome::from_raw(raw.outcome).unwrap_or(Outcome::Pending),
            reason: Skip::from_raw(raw.reason).unwrap_or(Skip::None),
            nonfinite_rank: named(raw.nonfinite_rank),
            nonfinite_param: (raw.nonfinite_param >= 0).then_some(ParameterId(raw.nonfinite_param)),
            nonfinite_count: raw.nonfinite_count,
            micro_steps: raw.micro_steps,
            applied_steps: raw.applied_steps,
            skipped_steps: raw.skipped_steps,
            grad_norm: raw.grad_norm,
            clip_coefficient: raw.clip_coefficient,
            loss_scale: raw.loss_scale,
            lr: raw.lr,
            updates: raw.updates,
            vanished: raw.vanished,
        }
    }
}
