// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a call of the safe crate takes beside the same call of the C interface: a gradient of 8 elements, and a pass and a step without
//! gradients. Rounds of both take turns; a number is the median of the rounds.
//!
//!     cargo run --release --example overhead
use outrigger::sys::*;
use outrigger::{Comm, Context, Engine, ParameterId, Plan, Result, Tensor};
use std::ptr;
use std::time::Instant;

const PARAMETERS: usize = 1000;
const ELEMENTS: usize = 8;
const STEPS: usize = 100;
const ROUNDS: usize = 200;
const CONFIG: &str =
    r#"{"optimizer": {"type": "SGD", "params": {"lr": 0.0}}, "gradient_clipping": 0}"#;

/// Nanoseconds of one call, of as many.
fn timed(calls: usize, all: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    all()?;
    Ok(start.elapsed().as_nanos() as f64 / calls as f64)
}

fn ok(status: i32) {
    assert_eq!(status, OTR_OK);
}

fn adds(engine: &Engine, ids: &[ParameterId], grad: &[f32]) -> Result<f64> {
    let pass = engine.pass(&[])?;
    let nanoseconds = timed(ids.len(), || {
        ids.iter()
            .try_for_each(|&id| pass.add_grad(id, &Tensor::new(grad, &[ELEMENTS])?))
    })?;
    pass.end()?;
    Ok(nanoseconds)
}

fn adds_in_c(engine: &Engine, ids: &[ParameterId], grad: &[f32]) -> Result<f64> {
    let mut pass = ptr::null_mut();
    // SAFETY: the engine lives, and so do the gradient and its shape.
    unsafe {
        ok(otr_pass_begin(
            engine.as_raw(),
            ptr::null(),
            0,
            ptr::null(),
            &mut pass,
        ));
        let nanoseconds = timed(ids.len(), || {
            for id in ids {
                let mut shape = [ELEMENTS as i64];
                let tensor = otr_tensor {
                    data: grad.as_ptr().cast_mut().cast(),
                    device: otr_device {
                        device_type: OTR_DEVICE_CPU,
                        device_id: 0,
                    },
                    ndim: 1,
                    dtype: otr_dtype {
                        code: OTR_DTYPE_FLOAT as u8,
                        bits: 32,
                        lanes: 1,
                    },
                    shape: shape.as_mut_ptr(),
                    strides: ptr::null_mut(),
                    byte_offset: 0,
                };
                ok(otr_pass_add_grad(pass, id.index(), &tensor, ptr::null()));
            }
            Ok(())
        })?;
        ok(otr_pass_end(pass));
        otr_pass_destroy(pass);
        Ok(nanoseconds)
    }
}

fn steps(engine: &mut Engine) -> Result<f64> {
    timed(STEPS, || {
        (0..STEPS).try_for_each(|_| {
            engine.pass(&[])?.end()?;
            engine.step().map(|_| ())
        })
    })
}

fn steps_in_c(engine: &mut Engine) -> Result<f64> {
    timed(STEPS, || {
        for _ in 0..STEPS {
            let mut pass = ptr::null_mut();
            // SAFETY: numbers and pointers may have zero bits.
            let mut report: otr_step_report = unsafe { std::mem::zeroed() };
            report.struct_size = std::mem::size_of::<otr_step_report>() as u32;
            // SAFETY: the engine is borrowed exclusively.
            unsafe {
                ok(otr_pass_begin(
                    engine.as_raw(),
                    ptr::null(),
                    0,
                    ptr::null(),
                    &mut pass,
                ));
                ok(otr_pass_end(pass));
                otr_pass_destroy(pass);
                ok(otr_engine_step(engine.as_raw(), &mut report));
            }
        }
        Ok(())
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn show(what: &str, rounds: Vec<(f64, f64)>) {
    let (safe, c) = rounds.into_iter().unzip();
    let (safe, c) = (median(safe), median(c));
    println!(
        "{what}: Rust {safe:.0} ns, C {c:.0} ns, {:+.0} ns",
        safe - c
    );
}

fn main() -> Result<()> {
    let mut plan = Plan::new(&Comm::alone(&Context::new()?)?, CONFIG)?;
    let grad = [1.0_f32; ELEMENTS];
    let initial = Tensor::new(&grad, &[ELEMENTS])?;
    let ids = (0..PARAMETERS)
        .map(|i| plan.parameter(&format!("w{i}"), &initial))
        .collect::<Result<Vec<_>>>()?;
    let mut engine = plan.commit()?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let c = adds_in_c(&engine, &ids, &grad)?;
        engine.step()?;
        rounds.push((adds(&engine, &ids, &grad)?, c));
        engine.step()?;
    }
    show("a gradient of 8 elements", rounds);

    let mut plan = Plan::new(&Comm::alone(&Context::new()?)?, CONFIG)?;
    plan.parameter("w", &initial)?;
    let mut engine = plan.commit()?;
    let rounds = (0..ROUNDS)
        .map(|_| {
            let c = steps_in_c(&mut engine)?;
            Ok((steps(&mut engine)?, c))
        })
        .collect::<Result<Vec<_>>>()?;
    show("a pass and a step without gradients", rounds);
    engine.finalize()
}
