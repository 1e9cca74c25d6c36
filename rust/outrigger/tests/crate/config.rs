// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::on;
use outrigger::config::{Config, MomentFormat, UpdateRule};
use outrigger::*;

fn alone() -> Comm {
    Comm::alone(&Context::new().unwrap()).unwrap()
}

#[test]
fn texts_have_every_kind_of_value() {
    let config = Config::default()
        .gradient_accumulation_steps(4)
        .gradient_clipping(0.0)
        .optimizer(|rule| rule.r#type(UpdateRule::SGD))
        .optimizer(|rule| rule.params(|params| params.lr(1e-7).betas([0.5, 0.25]).nesterov(true)))
        .outrigger(|own| own.muon(|muon| muon.adam_parameters(&["a\"b\\", "ä\n"])))
        .gradient_accumulation_steps(2)
        .raw("tensorboard", r#"{"enabled": false}"#);
    assert_eq!(
        config.to_string(),
        r#"{"gradient_accumulation_steps": 2, "gradient_clipping": 0.0, "optimizer": {"type": "SGD", "params": {"lr": 1e-7, "betas": [0.5, 0.25], "nesterov": true}}, "outrigger": {"muon": {"adam_parameters": ["a\"b\\", "ä\u000a"]}}, "tensorboard": {"enabled": false}}"#
    );
    assert_eq!(Config::default().to_string(), "{}");
}

/// Each key that is set shows in what a step does.
#[test]
fn an_engine_follows_it() {
    let config = Config::default()
        .gradient_clipping(0.0)
        .gradient_accumulation_steps(2)
        .optimizer(|rule| {
            rule.r#type(UpdateRule::SGD)
                .params(|params| params.lr(0.25).momentum(0.5))
        })
        .zero_optimization(|zero| zero.stage(2))
        .outrigger(|own| {
            own.states(|states| states.exp_avg(|moment| moment.format(MomentFormat::Bfloat16)))
        });
    let (mut engine, w) = on(&alone(), &config.to_string(), &[1.0]);
    for _ in 0..2 {
        crate::add(&engine, w, &[1.0]);
        engine.step().unwrap();
        crate::add(&engine, w, &[3.0]);
        assert!(engine.step().unwrap().is_applied());
    }
    // Sums of 4, for no pass has scaled them: with momentum 4 and then 6.
    assert_eq!(engine.read::<f32>(w, Value::Master).unwrap(), [-1.5]);
    assert!(engine.config().unwrap().contains("bfloat16"));
}

#[test]
fn what_the_library_does_not_take() {
    let plan = |config: Config| match Plan::new(&alone(), &config.to_string()) {
        Err(Error::Config(text)) => text,
        other => panic!("{:?}", other.map(|_| ())),
    };
    assert!(plan(Config::default().zero_optimization(|zero| zero.stage(4))).contains("stage"));
    assert!(plan(Config::default().gradient_clipping(f64::NAN)).contains("line 1"));
    assert!(plan(Config::default().raw("gradient_cliping", "1")).contains("gradient_clipping"));
    assert!(plan(Config::default().raw("fp16", "{")).contains("line 1"));
}
