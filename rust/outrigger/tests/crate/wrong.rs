// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wrong use that compiles is an error with a text, and harms nothing.
use crate::{add, alone, MOMENTUM};
use half::bf16;
use outrigger::*;

macro_rules! fails {
    ($call:expr, $kind:ident, $($part:literal),+) => {
        match $call {
            Err(Error::$kind(text)) => { $(assert!(text.contains($part), "{text}");)+ }
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("{} is accepted", stringify!($call)),
        }
    };
}

#[test]
fn tensors() {
    fails!(
        Tensor::new(&[1.0_f32; 5], &[2, 3]),
        Shape,
        "5",
        "[2, 3]",
        "6"
    );
    fails!(Tensor::new(&[1.0_f32], &[usize::MAX, 2]), Shape, "more");
    fails!(
        Tensor::strided(&[1.0_f32; 5], &[3], &[3]),
        Shape,
        "beyond",
        "5"
    );
    fails!(
        Tensor::strided(&[1.0_f32; 5], &[3], &[1, 1]),
        Shape,
        "entries"
    );
    fails!(TensorMut::new(&mut [1.0_f32; 2], &[3]), Shape, "3");
    fails!(Tensor::strided(&[1.0_f32; 4], &[2], &[4]), Shape, "beyond");
    assert!(Tensor::strided(&[1.0_f32; 5], &[2], &[4]).is_ok());
    assert!(Tensor::strided(&[1.0_f32; 0], &[0, 4], &[9, 1]).is_ok());
    assert!(
        Tensor::new(&[1.0_f32; 0], &[usize::MAX, 0, 7]).is_err()
            || cfg!(target_pointer_width = "32")
    );
    assert!(Tensor::new(&[1.0_f32; 1], &[1; 20]).is_ok());
}

#[test]
fn declarations() {
    let comm = Comm::alone(&Context::new().unwrap()).unwrap();
    fails!(
        Plan::new(&comm, r#"{"optimizer": {"type": "Adam"#),
        Config,
        "line"
    );
    fails!(Plan::new(&comm, "{\0}"), Argument, "NUL");
    let mut plan = Plan::new(&comm, MOMENTUM).unwrap();
    plan.parameter("w", &Tensor::unknown(&[2]).unwrap())
        .unwrap();
    fails!(
        plan.parameter("w", &Tensor::unknown(&[2]).unwrap()),
        Duplicate,
        "w"
    );
    let engine = plan.commit().unwrap();
    fails!(engine.parameter_id("ww"), NotFound, "\"ww\"");
    fails!(engine.value(None, "lrr"), NotFound, "lr");
}

#[test]
fn dtypes_and_shapes() {
    let (mut engine, w) = alone(MOMENTUM, &[1.0, 2.0]);
    fails!(
        engine.acquire(&[w]).unwrap().get::<bf16>(0),
        Dtype,
        "float32",
        "bfloat16"
    );
    fails!(engine.acquire(&[w]).unwrap().get::<f32>(1), NotFound, "1");
    let pass = engine.pass(&[]).unwrap();
    fails!(
        pass.add_grad(w, &Tensor::new(&[1.0_f32; 3], &[3]).unwrap()),
        Shape,
        "w"
    );
    let mut slot = pass.slot(w).unwrap();
    fails!(slot.get_mut::<bf16>(), Dtype, "float32");
    slot.get_mut::<f32>().unwrap().fill(0.0);
    fails!(pass.slot(w), State, "slot");
    pass.abandon().unwrap();
    assert_eq!(engine.step().unwrap().outcome, Outcome::Applied);
    fails!(
        engine.write(
            w,
            Value::Published,
            &Tensor::new(&[1.0_f32; 2], &[2]).unwrap()
        ),
        Argument,
        "OTR_VALUE_MASTER"
    );
    fails!(
        engine.set_initial(&[w], &[]),
        Argument,
        "1 ids and 0 values"
    );
}

#[test]
fn order() {
    let (mut engine, w) = alone(MOMENTUM, &[1.0, 2.0]);
    fails!(engine.step(), State, "pass");
    fails!(engine.report(None), State, "step");
    add(&engine, w, &[f32::NAN, 1.0]);
    let report = engine.step().unwrap();
    assert!(report.is_skipped());
    assert_eq!(
        (report.reason, report.nonfinite_param, report.nonfinite_rank),
        (Skip::Nonfinite, Some(w), Some(0))
    );
    engine.finalize().unwrap();
    fails!(engine.acquire(&[w]), State, "finalize");
    assert_eq!(Error::State("text".into()).to_string(), "OTR_E_STATE: text");
}
