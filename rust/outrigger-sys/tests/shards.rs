// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shards with a split master and with rows, through the scenario's safe layer.
#[allow(dead_code)]
#[path = "../examples/scenario/safe.rs"]
mod safe;
#[allow(dead_code)]
#[path = "../examples/scenario/tensor.rs"]
mod tensor;

use outrigger_sys::*;
use safe::*;
use tensor::{view_mut, Bf16};

const COUNT: usize = 300;

fn grads() -> Vec<f32> {
    (0..COUNT).map(|i| (i as f32).sin()).collect()
}

/// The float32 that a bfloat16 and its remainder are together.
fn joined(weight: Bf16, remainder: u16) -> f32 {
    f32::from_bits((u32::from(weight.0) << 16).wrapping_add(remainder as i16 as u32))
}

#[test]
fn a_split_master_is_the_float32_one() -> Result<()> {
    let context = Context::new()?;
    let whole = Optimizer::new(&context, r#"{"params": {"lr": 0.01}}"#)?;
    let split = Optimizer::new(
        &context,
        r#"{"params": {"lr": 0.01}, "states": {"master": {"format": "split"}}}"#,
    )?;
    let (mut masters, mut weights, mut remainders) = (
        vec![1.0f32; COUNT],
        vec![Bf16(0x3f80); COUNT],
        vec![0u16; COUNT],
    );
    let (mut first, mut second) = (grads(), grads());
    {
        let shape = [COUNT as i64];
        let remainder = view_mut(&mut remainders, &shape);
        let asked = ShardOptions {
            remainder: Some(&remainder),
            ..Default::default()
        };
        let (master, grad) = (view_mut(&mut masters, &shape), view_mut(&mut first, &shape));
        let plain = Shard::wrap(&context, &master, &grad, &ShardOptions::default())?;
        let (weight, grad) = (
            view_mut(&mut weights, &shape),
            view_mut(&mut second, &shape),
        );
        let halves = Shard::wrap(&context, &weight, &grad, &asked)?;
        for _ in 0..3 {
            assert_eq!(whole.step(&[&plain])?.outcome, OTR_STEP_APPLIED);
            assert_eq!(split.step(&[&halves])?.outcome, OTR_STEP_APPLIED);
        }
    }
    assert!(remainders.iter().any(|&each| each != 0));
    for i in 0..COUNT {
        assert_eq!(joined(weights[i], remainders[i]), masters[i], "element {i}");
    }
    Ok(())
}

#[test]
fn a_remainder_wants_bfloat16_weights() -> Result<()> {
    let context = Context::new()?;
    let (mut weights, mut remainders, mut grads) = ([1.0f32; 4], [0u16; 4], [1.0f32; 4]);
    let remainder = view_mut(&mut remainders, &[4]);
    let asked = ShardOptions {
        remainder: Some(&remainder),
        ..Default::default()
    };
    let (weight, grad) = (view_mut(&mut weights, &[4]), view_mut(&mut grads, &[4]));
    let refused = Shard::wrap(&context, &weight, &grad, &asked).err();
    assert!(refused.expect("refused").text.contains("remainder"));
    Ok(())
}

#[test]
fn rows_make_a_matrix_for_muon() -> Result<()> {
    let context = Context::new()?;
    let config = r#"{"type": "Muon", "params": {"lr": 0.5, "adam_lr": 0.25, "nesterov": false}}"#;
    let optimizer = Optimizer::new(&context, config)?;
    let gradient = [3.0f32, 0.0, 0.0, 0.0, -4.0, 0.0];
    let (mut matrix, mut other) = ([0.0f32; 6], [0.0f32; 6]);
    let (mut first, mut second) = (gradient, gradient);
    {
        let rows = ShardOptions {
            rows: 2,
            ..Default::default()
        };
        let (weight, grad) = (view_mut(&mut matrix, &[6]), view_mut(&mut first, &[6]));
        let whole = Shard::wrap(&context, &weight, &grad, &rows)?;
        let (weight, grad) = (view_mut(&mut other, &[6]), view_mut(&mut second, &[6]));
        let flat = Shard::wrap(&context, &weight, &grad, &ShardOptions::default())?;
        optimizer.step(&[&whole, &flat])?;
        assert_eq!((whole.state_bytes()?, flat.state_bytes()?), (24, 48));
        let missing = whole.state(OTR_VALUE_EXP_AVG_SQ).err();
        assert_eq!(missing.map(|error| error.code), Some(OTR_E_NOT_FOUND));
        let five = ShardOptions {
            rows: 5,
            ..Default::default()
        };
        let refused = Shard::wrap(&context, &weight, &grad, &five).err();
        assert_eq!(refused.map(|error| error.code), Some(OTR_E_ARGUMENT));
    }
    // Newton-Schulz of a diagonal matrix.
    let singular = |x: f32| {
        (0..5).fold(x, |x, _| {
            3.4445 * x - 4.7750 * x.powi(3) + 2.0315 * x.powi(5)
        })
    };
    for i in 0..6 {
        let expected = -0.5 * gradient[i].signum() * singular(gradient[i].abs() / 5.0);
        assert!(
            (matrix[i] - expected).abs() < 1e-5,
            "{} {expected}",
            matrix[i]
        );
        let expected = if gradient[i] == 0.0 {
            0.0
        } else {
            -0.25 * gradient[i].signum()
        };
        assert!(
            (other[i] - expected).abs() < 1e-5,
            "{} {expected}",
            other[i]
        );
    }
    Ok(())
}
