// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two engines in a chain: h = front(x), y = back(h).
use super::safe::*;
use super::tensor::{nothing, view, view_mut};
use super::{double, Rank};
use outrigger_sys::*;

const FRONT: &str = r#"{"torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {"loss_scale": 4},
    "gradient_clipping": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.25}}}"#;
const BACK: &str = r#"{"torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {"loss_scale": 64},
    "gradient_clipping": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}},
    "zero_optimization": {"stage": 2}}"#;
const SHAPE: &[i64] = &[2, 2];

fn make_engine(comm: &Comm, config: &str, name: &str) -> Result<Engine> {
    let engine = Engine::new(comm, config)?;
    let values = [0.5f32, -1.0, 1.0, 0.25];
    let id = engine.add_parameter(name, Some(&nothing(SHAPE)), &options(otr_param_options_init)?)?;
    engine.commit()?;
    engine.set_initial(&[id], &[view(&values, SHAPE)])?;
    Ok(engine)
}

impl Rank {
    fn window(&mut self, front: &Engine, back: &Engine, infinite: bool) -> Result<()> {
        let mut dy = [1f32, -0.5, 0.25, 2.0];
        if infinite && self.rank == self.world - 1 {
            dy[2] = f32::INFINITY;
        }
        let back = back.begin_pass(&[view(&dy, SHAPE)])?;
        let at_back = back.output_grad(0)?;
        self.out.tensor("chain back scaled", &at_back);
        // The gradient of the input, here twice the output's with the rows exchanged.
        let seeds = at_back.data::<f32>();
        let dh: Vec<f32> = (0..4).map(|i| 2.0 * seeds[(i + 2) % 4]).collect();
        let mut plain = [0f32; 4];
        let mut plain = view_mut(&mut plain, SHAPE);
        back.unscale(&view(&dh, SHAPE), &mut plain)?;
        self.out.tensor("chain input gradient", &plain);
        let tag = back.tag()?;
        let (scale, steps, ranks) = (double(tag.loss_scale), tag.accumulation, tag.ranks);
        self.out.line(format!("chain tag {scale} {steps} {ranks}"));
        let front = front.begin_tagged_pass(&[view(&dh, SHAPE)], &tag)?;
        let at_front = front.output_grad(0)?;
        self.out.tensor("chain front scaled", &at_front);
        front.add_grad(0, &at_front)?;
        back.add_grad(0, &at_back)?;
        drop(at_front);
        drop(at_back);
        front.end()?;
        back.end()
    }

    pub fn chain(&mut self, comm: &Comm) -> Result<()> {
        let mut engines = [
            make_engine(comm, FRONT, "front")?,
            make_engine(comm, BACK, "back")?,
        ];
        for infinite in [false, true] {
            self.window(&engines[0], &engines[1], infinite)?;
            for (name, report) in ["front", "back"].iter().zip(step_many(&mut engines)?) {
                self.out.report(&format!("chain {name} step"), &report);
            }
        }
        for (name, engine) in ["front", "back"].iter().zip(&engines) {
            for value in 0..4 {
                let mut data = [0f32; 4];
                let mut tensor = view_mut(&mut data, SHAPE);
                engine.read(0, value, &mut tensor)?;
                self.out
                    .tensor(&format!("chain {name} value {value}"), &tensor);
            }
            engine.finalize()?;
        }
        Ok(())
    }
}
