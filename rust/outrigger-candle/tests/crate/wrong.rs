// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::*;
use outrigger::Error;
use outrigger_candle::Engine;

fn text<T>(result: outrigger_candle::Result<T>, fits: fn(&Error) -> bool) -> String {
    match result {
        Err(outrigger_candle::Error::Outrigger(error)) if fits(&error) => error.to_string(),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was accepted"),
    }
}

#[test]
fn a_map_without_parameters() {
    let varmap = VarMap::new();
    varmap
        .get(2, "counts", candle_nn::Init::Const(1.0), DType::U32, CPU)
        .unwrap();
    let made = Engine::new(&alone(), &single(1, SGD, ""), &varmap);
    assert!(text(made, |error| matches!(error, Error::Argument(_))).contains("no Var of a float"));
}

/// A loss that trains nothing is an error and not a training that stands still.
#[test]
fn a_loss_of_another_model() {
    let (mut varmap, mut other) = (VarMap::new(), VarMap::new());
    let (model, stranger) = (Mlp::new(&mut varmap, 1), Mlp::new(&mut other, 1));
    let mut engine = Engine::new(&alone(), &single(1, SGD, ""), &varmap).unwrap();
    let state = |error: &Error| matches!(error, Error::State(_));
    let detached = model.loss(0, 0, 0).detach();
    for loss in [stranger.loss(0, 0, 0), detached] {
        assert!(text(engine.backward(&loss), state).contains("no output depends"));
        let before = values(&varmap);
        engine.step().unwrap();
        assert_eq!(values(&varmap), before);
    }
    engine.backward(&model.loss(0, 0, 0)).unwrap();
    assert!(engine.step().unwrap().is_applied());
}

#[test]
fn gradients_that_do_not_fit() {
    let mut varmap = VarMap::new();
    let model = Mlp::new(&mut varmap, 1);
    let engine = Engine::new(&alone(), &single(1, SGD, ""), &varmap).unwrap();
    let y = model.forward(&noise(1, &[4, 3]));
    let pass = engine.backward_from(&[(&y, &noise(2, &[2, 4]))], None);
    assert!(text(pass, |error| matches!(error, Error::Shape(_))).contains("[4, 2]"));
    let pass = engine.backward_from(&[], None);
    assert!(text(pass, |error| matches!(error, Error::Argument(_))).contains("no outputs"));
    let whole = y.to_dtype(DType::U32).unwrap();
    let pass = engine.backward_from(&[(&whole, &whole)], None);
    assert!(text(pass, |error| matches!(error, Error::Dtype(_))).contains("U32"));
}

#[test]
fn faults_of_the_library_come_through() {
    let mut varmap = VarMap::new();
    let model = Mlp::new(&mut varmap, 1);
    let made = Engine::new(&alone(), r#"{"zero_optimization": {"stage": 7}}"#, &varmap);
    assert!(text(made, |error| matches!(error, Error::Config(_))).contains("stage"));
    let mut engine = Engine::new(&alone(), &single(1, SGD, ""), &varmap).unwrap();
    let named = engine.set_trainable("up.wieght", false);
    assert!(text(named, |error| matches!(error, Error::NotFound(_))).contains("up.weight"));
    engine.finalize().unwrap();
    let pass = engine.backward(&model.loss(0, 0, 0));
    text(pass, |error| matches!(error, Error::State(_)));
}

/// Ranks whose maps differ hear of it when they commit.
#[test]
fn ranks_with_other_models() {
    let errors = two_ranks(|comm| {
        let varmap = VarMap::new();
        let size = 2 + comm.rank() as usize;
        varmap
            .get(size, "w", candle_nn::Init::Const(1.0), DType::F32, CPU)
            .unwrap();
        text(Engine::new(&comm, &single(1, SGD, ""), &varmap), |error| {
            matches!(error, Error::Mismatch(_))
        })
    });
    assert!(errors.iter().all(|error| error.contains('w')), "{errors:?}");
}
