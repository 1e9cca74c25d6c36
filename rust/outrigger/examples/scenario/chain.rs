// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two engines in a chain: h = front(x), y = back(h). And a training that is saved, and goes on at another stage and without offload.
use super::{double, Rank};
use outrigger::{
    step_many, Comm, Engine, Load, ParameterId, PassOptions, Plan, Result, Save, Tensor, TensorMut,
    Value,
};

const FRONT: &str = r#"{"torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {"loss_scale": 4},
    "gradient_clipping": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.25}}}"#;
const BACK: &str = r#"{"torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {"loss_scale": 64},
    "gradient_clipping": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}},
    "zero_optimization": {"stage": 2}}"#;
const SHAPE: &[usize] = &[2, 2];

fn make_engine(comm: &Comm, config: &str, name: &str) -> Result<(Engine, ParameterId)> {
    let mut plan = Plan::new(comm, config)?;
    let id = plan.parameter(name, &Tensor::unknown(SHAPE)?)?;
    let mut engine = plan.commit()?;
    engine.set_initial(&[id], &[Tensor::new(&[0.5_f32, -1.0, 1.0, 0.25], SHAPE)?])?;
    Ok((engine, id))
}

impl Rank {
    fn window(
        &mut self,
        front: (&Engine, ParameterId),
        back: (&Engine, ParameterId),
        infinite: bool,
    ) -> Result<()> {
        let mut dy = [1_f32, -0.5, 0.25, 2.0];
        if infinite && self.rank == self.world - 1 {
            dy[2] = f32::INFINITY;
        }
        let back_pass = back.0.pass(&[Tensor::new(&dy, SHAPE)?])?;
        let at_back = back_pass.output_grad::<f32>(0)?;
        self.out.values("chain back scaled", SHAPE, at_back);
        // The gradient of the input, here twice the output's with the rows exchanged.
        let dh: Vec<f32> = (0..4).map(|i| 2.0 * at_back[(i + 2) % 4]).collect();
        let mut plain = [0_f32; 4];
        back_pass.unscale(
            &Tensor::new(&dh, SHAPE)?,
            &mut TensorMut::new(&mut plain, SHAPE)?,
        )?;
        self.out.values("chain input gradient", SHAPE, &plain);
        let tag = back_pass.tag()?;
        let (scale, steps, ranks) = (double(tag.loss_scale), tag.accumulation, tag.ranks);
        self.out.line(format!("chain tag {scale} {steps} {ranks}"));
        let asked = PassOptions {
            tag: Some(tag),
            ..Default::default()
        };
        let front_pass = front.0.pass_with(&[Tensor::new(&dh, SHAPE)?], &asked)?;
        let at_front = front_pass.output_grad::<f32>(0)?;
        self.out.values("chain front scaled", SHAPE, at_front);
        front_pass.add_grad(front.1, &Tensor::new(at_front, SHAPE)?)?;
        back_pass.add_grad(back.1, &Tensor::new(at_back, SHAPE)?)?;
        front_pass.end()?;
        back_pass.end()
    }

    pub fn chain(&mut self, comm: &Comm) -> Result<()> {
        let (mut front, w) = make_engine(comm, FRONT, "front")?;
        let (mut back, v) = make_engine(comm, BACK, "back")?;
        for infinite in [false, true] {
            self.window((&front, w), (&back, v), infinite)?;
            let reports = step_many(&mut [&mut front, &mut back], None)?;
            for (name, report) in ["front", "back"].iter().zip(reports) {
                self.out.report(&format!("chain {name} step"), &report);
            }
        }
        self.finish(front, w, "chain front")?;
        self.finish(back, v, "chain back")
    }

    fn finish(&mut self, mut engine: Engine, id: ParameterId, name: &str) -> Result<()> {
        for (number, value) in [
            Value::Master,
            Value::Published,
            Value::ExpAvg,
            Value::ExpAvgSq,
        ]
        .into_iter()
        .enumerate()
        {
            self.out.values(
                &format!("{name} value {number}"),
                SHAPE,
                &engine.read::<f32>(id, value)?,
            );
        }
        engine.finalize()
    }

    /// With a gradient that differs between windows and ranks.
    fn step_alone(
        &mut self,
        engine: &mut Engine,
        w: ParameterId,
        window: i64,
        name: &str,
    ) -> Result<()> {
        let factor = ((window + 1) * (2 * self.rank + 1)) as f32;
        let gradient = [1_f32, -0.5, 0.25, 2.0].map(|each| each * factor);
        let pass = engine.pass(&[])?;
        pass.add_grad(w, &Tensor::new(&gradient, SHAPE)?)?;
        pass.end()?;
        let report = engine.step()?;
        self.out.report(&format!("{name} step {window}"), &report);
        Ok(())
    }

    pub fn save_and_load(&mut self, comm: &Comm, directory: &str) -> Result<()> {
        let offloaded = r#"{"stage": 2, "offload_optimizer": {"device": "cpu"}}"#;
        let (mut saved, w) = make_engine(comm, &kept(offloaded), "w")?;
        for window in 0..2 {
            self.step_alone(&mut saved, w, window, "saved")?;
        }
        saved.save(directory, "two", &Save::default())?;
        self.step_alone(&mut saved, w, 2, "saved")?;
        self.finish(saved, w, "saved")?;
        let (mut loaded, w) = make_engine(comm, &kept(r#"{"stage": 3}"#), "w")?;
        loaded.load(directory, Some("two"), &Load::default())?;
        self.step_alone(&mut loaded, w, 2, "loaded")?;
        self.finish(loaded, w, "loaded")
    }
}

fn kept(zero: &str) -> String {
    format!(
        r#"{{"zero_optimization": {zero}, "gradient_clipping": 0,
    "optimizer": {{"type": "AdamW", "params": {{"lr": 0.125}}}}}}"#
    )
}
