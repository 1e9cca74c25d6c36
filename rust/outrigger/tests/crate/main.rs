// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The safe crate, by value and in wrong use.
mod channels;
mod checkpoints;
mod config;
mod engine;
mod messages;
mod panics;
mod shards;
mod wrong;

use outrigger::{Comm, Context, Engine, ParameterId, Plan, Tensor};

/// SGD with momentum: a factor that is wrong shows.
pub const MOMENTUM: &str = r#"{"optimizer": {"type": "SGD", "params": {"lr": 0.25, "momentum": 0.5}}, "gradient_clipping": 0, "zero_optimization": {"stage": 2}}"#;

pub fn alone(config: &str, initial: &[f32]) -> (Engine, ParameterId) {
    on(
        &Comm::alone(&Context::new().unwrap()).unwrap(),
        config,
        initial,
    )
}

pub fn on(comm: &Comm, config: &str, initial: &[f32]) -> (Engine, ParameterId) {
    let mut plan = Plan::new(comm, config).unwrap();
    let id = plan
        .parameter("w", &Tensor::new(initial, &[initial.len()]).unwrap())
        .unwrap();
    (plan.commit().unwrap(), id)
}

pub fn add(engine: &Engine, id: ParameterId, grad: &[f32]) {
    let pass = engine.pass(&[]).unwrap();
    pass.add_grad(id, &Tensor::new(grad, &[grad.len()]).unwrap())
        .unwrap();
    pass.end().unwrap();
}
