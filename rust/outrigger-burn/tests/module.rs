// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Burn's modules, by value against burn's own AdamW, and in wrong use.
use burn_core as burn;
use burn_core::module::{Module, Param};
use burn_core::tensor::{Device, Tensor, TensorData};
use burn_nn::{Linear, LinearConfig};
use burn_optim::{AdamWConfig, GradientsParams, SgdConfig};
use outrigger::{Comm, Context, Error, Outcome};
use outrigger_burn::Optimizer;
use std::thread;

const STEPS: usize = 4;

const SGD: &str = r#"{"type": "SGD", "params": {"lr": 0.5}}"#;
const ADAMW: &str = r#"{"type": "AdamW", "params": {"lr": 0.05, "weight_decay": 0.125}}"#;

fn config(stage: i32, rule: &str, more: &str) -> String {
    format!(
        r#"{{"optimizer": {rule}, "gradient_clipping": 0,
            "gradient_accumulation_steps": 2, "zero_optimization": {{"stage": {stage}}}{more}}}"#
    )
}

fn device() -> Device {
    Device::default().autodiff()
}

/// Numbers between -1 and 1.
fn noise<const D: usize>(seed: usize, shape: [usize; D]) -> Tensor<D> {
    let values = (0..shape.iter().product::<usize>()).map(|i| {
        let mixed = ((seed * 7919 + i + 1) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    });
    Tensor::from_data(
        TensorData::new(values.collect::<Vec<_>>(), shape),
        &device(),
    )
}

#[derive(Module, Debug)]
struct Mlp {
    up: Linear,
    down: Linear,
    fixed: Param<Tensor<1>>,
}

impl Mlp {
    fn new(seed: usize) -> Self {
        let set = |linear: Linear, place: usize| Linear {
            weight: linear
                .weight
                .map(|w| noise(seed + place, w.dims()).require_grad()),
            bias: linear
                .bias
                .map(|b| b.map(|b| noise(seed + place + 1, b.dims()).require_grad())),
        };
        Self {
            up: set(LinearConfig::new(3, 5).init(&device()), 10),
            down: set(LinearConfig::new(5, 2).init(&device()), 20),
            fixed: Param::from_tensor(noise(seed + 30, [2])).set_require_grad(false),
        }
    }

    /// Of rows of its own for every step, micro-batch and rank.
    fn loss(&self, step: usize, micro: usize, rank: usize) -> Tensor<1> {
        let place = (step * 2 + micro) * 2 + rank;
        let y = self
            .down
            .forward(self.up.forward(noise(100 + place, [4, 3])).tanh());
        let y = y * self.fixed.val().unsqueeze();
        (y - noise(900 + place, [4, 2])).powi_scalar(2).mean()
    }

    fn values(&self) -> Vec<f32> {
        let flat = |tensor: Tensor<1>| tensor.inner().into_data().try_to_vec::<f32>().unwrap();
        let linear = |linear: &Linear| {
            let mut values = flat(linear.weight.val().flatten(0, 1));
            values.extend(flat(linear.bias.as_ref().unwrap().val()));
            values
        };
        [linear(&self.up), linear(&self.down), flat(self.fixed.val())].concat()
    }
}

fn plain(rule: &str, ranks: usize) -> Vec<f32> {
    let mut model = Mlp::new(1);
    let adamw = AdamWConfig::new()
        .with_weight_decay(0.125)
        .with_epsilon(1e-8);
    let (mut optimizer, lr) = match rule {
        SGD => (SgdConfig::new().init(), 0.5),
        _ => (adamw.init(), 0.05),
    };
    for step in 0..STEPS {
        let parts = (0..2).flat_map(|micro| (0..ranks).map(move |rank| (micro, rank)));
        let losses = parts.map(|(micro, rank)| model.loss(step, micro, rank));
        let loss = Tensor::stack::<2>(losses.collect(), 0).mean();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(lr, model, grads);
    }
    model.values()
}

fn trained(comm: &Comm, config: &str) -> Vec<f32> {
    let rank = comm.rank() as usize;
    // Rank 0's values count.
    let (mut optimizer, mut model) = Optimizer::new(comm, config, Mlp::new(1 + rank)).unwrap();
    for step in 0..STEPS {
        for micro in 0..2 {
            let before = model.values();
            optimizer
                .backward(model.loss(step, micro, rank), &model)
                .unwrap();
            let (next, report) = optimizer.step(model).unwrap();
            assert_eq!(
                report.outcome,
                [Outcome::Accumulated, Outcome::Applied][micro]
            );
            assert_eq!(next.values() != before, report.is_applied());
            model = next;
        }
    }
    optimizer.engine_mut().finalize().unwrap();
    model.values()
}

fn alone() -> Comm {
    Comm::alone(&Context::new().unwrap()).unwrap()
}

fn near(a: &[f32], b: &[f32], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    let far = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    let furthest = far.fold(0.0, f32::max);
    assert!(furthest <= tolerance, "{furthest} apart");
}

#[test]
fn steps_are_burns_own() {
    for rule in [SGD, ADAMW] {
        near(
            &trained(&alone(), &config(0, rule, "")),
            &plain(rule, 1),
            2e-5,
        );
        for stage in [2, 3] {
            let comms = Comm::threads(&Context::new().unwrap(), 2).unwrap();
            let ends: Vec<_> = thread::scope(|scope| {
                let run = |comm: Comm| move || trained(&comm, &config(stage, rule, ""));
                let ranks: Vec<_> = comms
                    .into_iter()
                    .map(|comm| scope.spawn(run(comm)))
                    .collect();
                ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
            });
            near(&ends[0], &plain(rule, 2), 2e-5);
            assert_eq!(ends[0], ends[1]);
        }
    }
}

/// A loss scale changes no weight by more than float16's rounding.
#[test]
fn a_loss_scale_leaves_no_trace() {
    let scaled = config(1, SGD, r#", "fp16": {"enabled": true, "loss_scale": 64}"#);
    near(&trained(&alone(), &scaled), &plain(SGD, 1), 1e-2);
}

#[test]
fn a_load_comes_back_by_publish() {
    let (mut optimizer, model) =
        Optimizer::new(&alone(), &config(1, ADAMW, ""), Mlp::new(1)).unwrap();
    let fixed = optimizer.engine().parameter_id("fixed").unwrap();
    let thawed = optimizer.engine_mut().set_trainable(fixed, true);
    assert!(matches!(thawed, Err(Error::State(_)))); // it has no states
    let id = optimizer.engine().parameter_id("down.bias").unwrap();
    let values = [7.0_f32, 8.0];
    let values = outrigger::Tensor::new(&values, &[2]).unwrap();
    optimizer
        .engine_mut()
        .write(id, outrigger::Value::Master, &values)
        .unwrap();
    let model = optimizer.publish(model).unwrap();
    assert_eq!(model.values()[30..32], [7.0, 8.0]);
    assert!(model.down.bias.unwrap().val().is_require_grad());
}

fn state(result: outrigger_burn::Result<()>) -> String {
    match result {
        Err(outrigger_burn::Error::Outrigger(Error::State(text))) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn losses_that_train_nothing() {
    let (mut optimizer, model) =
        Optimizer::new(&alone(), &config(1, ADAMW, ""), Mlp::new(1)).unwrap();
    let stranger = Mlp::new(1);
    let text = state(optimizer.backward(stranger.loss(0, 0, 0), &stranger));
    assert!(text.contains("no trained parameter"), "{text}");
    state(optimizer.backward(stranger.loss(0, 0, 0), &model));
    state(optimizer.backward(model.loss(0, 0, 0).detach(), &model));
    optimizer.backward(model.loss(0, 0, 0), &model).unwrap();
    optimizer.engine_mut().finalize().unwrap();
    state(optimizer.backward(model.loss(0, 0, 0), &model));
}

#[test]
fn modules_that_cannot_be_trained() {
    let plain = Mlp::new(1).no_grad();
    match Optimizer::new(&alone(), &config(1, ADAMW, ""), plain).map(|_| ()) {
        Err(outrigger_burn::Error::Outrigger(Error::Argument(text))) => {
            assert!(text.contains("autodiff"))
        }
        other => panic!("{other:?}"),
    }
    match Optimizer::new(
        &alone(),
        "{\"zero_optimization\": {\"stage\": 9}}",
        Mlp::new(1),
    )
    .map(|_| ())
    {
        Err(outrigger_burn::Error::Outrigger(Error::Config(text))) => {
            assert!(text.contains("stage"))
        }
        other => panic!("{other:?}"),
    }
}
