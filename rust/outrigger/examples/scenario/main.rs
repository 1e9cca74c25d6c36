// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scenario (tests/bindings/scenario/README.md) in Rust.
//!
//!     scenario CONFIG.json OUTPUT      writes OUTPUT.<rank>
mod chain;
mod print;

use half::bf16;
use outrigger::{
    sys, Comm, Context, Engine, Error, Optimizer, ParameterId, ParameterOptions, Pass, Plan,
    Result, Shard, ShardOptions, Skip,
};
use outrigger::{Tensor, TensorMut, Value};
use print::{double, shape, Printer};
use std::{env, ffi::CStr, fs, io, ptr};

const PARAMETERS: [(&str, &[usize]); 8] = [
    ("embed.weight", &[5, 3]),
    ("linear.bias", &[7]),
    ("norm.empty", &[0, 4]),
    ("frozen.table", &[2, 3]),
    ("head.weight", &[5, 3]),
    ("scale", &[]),
    ("wide.weight", &[3, 101]),
    ("unused.gain", &[4]),
];
const EMBED: usize = 0;
const BIAS: usize = 1;
const EMPTY: usize = 2;
const FROZEN: usize = 3;
const HEAD: usize = 4;
const SCALE: usize = 5;
const WIDE: usize = 6;

struct Rank {
    rank: i64,
    world: i64,
    ids: Vec<ParameterId>,
    out: Printer,
}

impl Rank {
    fn collectives(&mut self, comm: &Comm) -> Result<()> {
        let mut sums = [self.rank as f64 + 0.5, 2.0];
        comm.all_reduce_sum(&mut sums)?;
        self.out.line(format!(
            "all_reduce {} {}",
            double(sums[0]),
            double(sums[1])
        ));
        let all = comm.all_gather(&[10 + self.rank as u8])?;
        let words: Vec<String> = all.iter().map(u8::to_string).collect();
        self.out.line(format!("all_gather {}", words.join(" ")));
        let token: f32 = if self.rank == self.world - 1 {
            1.0
        } else {
            0.0
        };
        let mut token = token.to_ne_bytes();
        comm.broadcast(&mut token, self.world as i32 - 1)?;
        comm.barrier()?;
        self.out
            .line(format!("broadcast {:08x}", u32::from_ne_bytes(token)));
        Ok(())
    }

    fn commit(&mut self, mut plan: Plan) -> Result<Engine> {
        for (d, (name, extents)) in PARAMETERS.into_iter().enumerate() {
            let count: usize = extents.iter().product();
            let value = |i| ((7 * i + 3 * d) % 33) as f32 / 16.0 - 1.0 + self.rank as f32;
            let values: Vec<f32> = (0..count).map(value).collect();
            let initial = Tensor::new(&values, extents)?;
            let asked = ParameterOptions {
                frozen: d == FROZEN,
                alias_of: (d == HEAD).then(|| self.ids[EMBED]),
                contributions: (d == BIAS).then_some(2),
                ..Default::default()
            };
            self.ids
                .push(plan.parameter_with(name, (d != HEAD).then_some(&initial), &asked)?);
        }
        let engine = plan.commit()?;
        for (id, (name, _)) in self.ids.iter().zip(PARAMETERS) {
            self.out.line(format!(
                "parameter {} {name} {}",
                id.index(),
                shape(&engine.parameter_shape(*id)?)
            ));
        }
        Ok(engine)
    }

    fn print_acquired(&mut self, engine: &Engine, as_float32: bool) -> Result<()> {
        let ids = [self.ids[EMBED], self.ids[WIDE]];
        engine.prefetch(&ids)?;
        let weights = if as_float32 {
            engine.acquire_float32(&ids)?
        } else {
            engine.acquire(&ids)?
        };
        for (i, id) in ids.iter().enumerate() {
            let label = format!("acquired {}", id.index());
            self.out
                .either(&label, &weights.shape(i)?, weights.get(i), || {
                    weights.get(i)
                })?;
        }
        Ok(())
    }

    /// The toy model's backward: parameter gradients from the scaled gradients of the outputs.
    fn backward(&self, pass: &Pass, number: i64) -> Result<()> {
        let (dy0, dy1) = (pass.output_grad::<f32>(0)?, pass.output_grad::<f32>(1)?);
        let dl = pass.output_grad::<f32>(2)?[0];
        let x = |row: usize, column: usize| ((row + 2 * column) % 5) as f32 / 2.0 - 1.0;
        // A sum of floats starts from -0.0 in Rust and from 0.0 elsewhere.
        let sum =
            |values: &mut dyn Iterator<Item = f32>| values.fold(0.0, |total, value| total + value);
        let embed = |e: usize| sum(&mut (0..4).map(|i| x(i, e / 3) * dy0[3 * i + e % 3]));
        self.add_by_slot(pass, EMBED, &(0..15).map(embed).collect::<Vec<_>>())?;
        let head = |e: usize| dl * dy0[3 * (e / 3 % 4) + e % 3];
        self.add_by_tensor(pass, HEAD, &(0..15).map(head).collect::<Vec<_>>())?;
        if self.rank == 0 || number % 2 == 0 {
            self.add_by_slot(pass, BIAS, &dy1[..7])?;
            self.add_by_tensor(pass, BIAS, &dy1[7..])?;
        }
        if number % 2 == 0 {
            self.add_by_tensor(pass, EMPTY, &[])?;
        }
        self.add_by_tensor(pass, SCALE, &[sum(&mut dy0.iter().copied()) + dl])?;
        let mut wide: Vec<f32> = (0..303)
            .map(|e| dl * dy0[3 * (e % 101 % 4) + e / 101])
            .collect();
        if number == 3 && self.rank == self.world - 1 {
            wide[101 + 7] = f32::INFINITY;
        }
        if number % 2 == 0 {
            self.add_by_slot(pass, WIDE, &wide)
        } else {
            self.add_by_tensor(pass, WIDE, &wide)
        }
    }

    /// The gradient in a place of the pass: slots have the compute dtype, and the values are exact in it.
    fn add_by_slot(&self, pass: &Pass, parameter: usize, gradient: &[f32]) -> Result<()> {
        let id = self.ids[parameter];
        let mut slot = pass.slot(id)?;
        match slot.get_mut::<bf16>() {
            Ok(places) => places
                .iter_mut()
                .zip(gradient)
                .for_each(|(place, &value)| *place = bf16::from_f32(value)),
            Err(Error::Dtype(_)) => slot.get_mut::<f32>()?.copy_from_slice(gradient),
            Err(error) => return Err(error),
        }
        slot.add()
    }

    fn add_by_tensor(&self, pass: &Pass, parameter: usize, gradient: &[f32]) -> Result<()> {
        pass.add_grad(
            self.ids[parameter],
            &Tensor::new(gradient, PARAMETERS[parameter].1)?,
        )
    }

    fn run_pass(&mut self, engine: &mut Engine, number: i64) -> Result<()> {
        let y0: Vec<f32> = (0..12)
            .map(|i| ((i + self.rank + number) % 8 - 3) as f32 / 4.0)
            .collect();
        let y1: Vec<f64> = (0..14)
            .map(|i| ((3 * i + 2 * self.rank + number) % 8 - 4) as f64 / 4.0)
            .collect();
        let outputs = [
            Tensor::new(&y0, &[4, 3])?,
            Tensor::new(&y1, &[2, 7])?,
            Tensor::scalar(&1.0_f32),
        ];
        let pass = engine.pass(&outputs)?;
        self.out
            .line(format!("pass {number} scale {}", double(pass.scale()?)));
        for (i, extents) in [&[4, 3][..], &[2, 7], &[]].into_iter().enumerate() {
            self.out.values(
                &format!("pass {number} output {i}"),
                extents,
                pass.output_grad::<f32>(i)?,
            );
        }
        self.backward(&pass, number)?;
        pass.end()?;
        let report = if number % 2 == 0 {
            engine.step()?
        } else {
            engine.step_begin()?;
            engine.report(None)?.expect("it has waited")
        };
        self.out.report(&format!("step {number}"), &report);
        if let (Skip::Nonfinite, Some(id), Some(rank)) =
            (report.reason, report.nonfinite_param, report.nonfinite_rank)
        {
            self.out.line(format!(
                "skipped for {} of rank {rank}",
                engine.parameter_name(id)?
            ));
        }
        Ok(())
    }

    fn wrong_calls(&mut self, engine: &mut Engine) -> Result<()> {
        fn failure<T>(result: Result<T>) -> String {
            result.err().map_or("no error".into(), |error| {
                format!("error {}", error.to_string().replacen(": ", " ", 1))
            })
        }
        let value = [0_f32; 15];
        self.out.line(failure(engine.parameter_id("embed.wieght")));
        self.out.line(declare_late(engine, &value)); // no method of the crate is that late
        self.out.line(failure(engine.set_value(None, "lr", -1.0)));
        let pass = engine.pass(&[])?;
        self.out.line(failure(
            pass.add_grad(self.ids[WIDE], &Tensor::new(&value, &[5, 3])?),
        ));
        Ok(()) // the pass is dropped; nothing was added: no trace
    }

    fn print_values(&mut self, engine: &Engine) -> Result<()> {
        let values = [
            (Value::Master, "master"),
            (Value::Published, "published"),
            (Value::ExpAvg, "exp_avg"),
            (Value::ExpAvgSq, "exp_avg_sq"),
        ];
        for (id, (_, extents)) in self.ids.iter().zip(PARAMETERS) {
            for (value, name) in values {
                let label = format!("value {} {name}", id.index());
                match engine.read::<f32>(*id, value) {
                    Ok(data) => self.out.values(&label, extents, &data),
                    Err(Error::NotFound(_)) => self.out.line(format!("{label} none")),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn shard_alone(&mut self, context: &Context) -> Result<()> {
        let mut weights: Vec<f32> = (-2..3).map(|i| i as f32 / 4.0).collect();
        let grads: Vec<f32> = (-1..4).rev().map(|i| i as f32 / 8.0).collect();
        let mut published = [bf16::ZERO; 5];
        let asked = ShardOptions {
            published: Some(TensorMut::new(&mut published, &[5])?),
            ..Default::default()
        };
        let mut shard = Shard::with(context, &mut weights, asked)?;
        let mut optimizer = Optimizer::new(context, r#"{"type": "AdamW", "params": {"lr": 0.5}}"#)?;
        optimizer.set_value("lr", 0.25)?;
        let report = optimizer.step(&mut [(&mut shard, Tensor::new(&grads, &[5])?)])?;
        let moments = [Value::ExpAvg, Value::ExpAvgSq]
            .map(|value| (value as i32, shard.state::<f32>(value).map(<[f32]>::to_vec)));
        let state_bytes = shard.state_bytes()?;
        drop(shard);
        self.out.report("shard step", &report);
        self.out.values("shard weights", &[5], &weights);
        self.out.values("shard published", &[5], &published);
        for (number, state) in moments {
            self.out
                .values(&format!("shard state {number}"), &[5], &state?);
        }
        self.out.line(format!("shard state_bytes {state_bytes}"));
        Ok(())
    }

    fn run(&mut self, plan: Plan) -> Result<()> {
        let mut engine = self.commit(plan)?;
        self.print_acquired(&engine, false)?;
        for number in 0..6 {
            // three windows of two passes
            if number == 4 {
                engine.set_value(None, "lr", 0.03125)?;
            }
            self.run_pass(&mut engine, number)?;
        }
        self.wrong_calls(&mut engine)?;
        self.print_values(&engine)?;
        self.print_acquired(&engine, false)?;
        self.print_acquired(&engine, true)?;
        for entry in engine.memory()? {
            self.out
                .line(format!("memory {} {}", entry.resident_bytes, entry.purpose));
        }
        self.out
            .line(format!("live_children {}", engine.live_passes()?));
        engine.finalize()
    }
}

/// What the C function says to a declaration after commit.
fn declare_late(engine: &Engine, value: &[f32; 15]) -> String {
    let mut shape = [5, 3];
    let tensor = sys::otr_tensor {
        data: value.as_ptr().cast_mut().cast(),
        device: sys::otr_device {
            device_type: sys::OTR_DEVICE_CPU,
            device_id: 0,
        },
        ndim: 2,
        dtype: sys::otr_dtype {
            code: sys::OTR_DTYPE_FLOAT as u8,
            bits: 32,
            lanes: 1,
        },
        shape: shape.as_mut_ptr(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let mut id = 0;
    // SAFETY: the engine lives; what the pointers name outlives the call; texts of the library are never NULL.
    unsafe {
        let status = sys::otr_engine_add_parameter(
            engine.as_raw(),
            c"late".as_ptr(),
            &tensor,
            ptr::null(),
            &mut id,
        );
        let [name, text] = [sys::otr_status_name(status), sys::otr_last_error_message()]
            .map(|text| CStr::from_ptr(text).to_string_lossy());
        format!("error {name} {text}")
    }
}

fn run(config: &str, output: &str) -> Result<()> {
    let context = Context::new()?;
    let comm = Comm::from_env(&context)?;
    let (rank, world) = (i64::from(comm.rank()), i64::from(comm.size()));
    let file = fs::File::create(format!("{output}.{rank}")).expect("the output can be created");
    let out = Printer(io::BufWriter::new(file));
    let mut state = Rank {
        rank,
        world,
        ids: Vec::new(),
        out,
    };
    state.out.line(format!("rank {rank} of {world}"));
    state.collectives(&comm)?;
    state.run(Plan::new(&comm, config)?)?;
    state.chain(&comm)?;
    state.save_and_load(&comm, &format!("{output}.saved"))?;
    state.shard_alone(&context)?;
    state.out.line("done");
    Ok(())
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let [_, config, output] = &arguments[..] else {
        eprintln!("usage: scenario CONFIG.json OUTPUT");
        std::process::exit(2);
    };
    let config = fs::read_to_string(config).expect("the configuration can be read");
    if let Err(error) = run(&config, output) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
