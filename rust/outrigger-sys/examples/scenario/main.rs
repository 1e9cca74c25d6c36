// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scenario (tests/bindings/scenario/README.md) in Rust.
//!
//!     scenario CONFIG.json OUTPUT      writes OUTPUT.<rank>
mod chain;
mod print;
mod safe;
mod tensor;

use outrigger_sys::*;
use print::{double, shape, Printer};
use safe::*;
use std::{env, fs, io};
use tensor::{view, view_mut, Bf16};

const PARAMETERS: [(&str, &[i64]); 8] = [
    ("embed.weight", &[5, 3]),
    ("linear.bias", &[7]),
    ("norm.empty", &[0, 4]),
    ("frozen.table", &[2, 3]),
    ("head.weight", &[5, 3]),
    ("scale", &[]),
    ("wide.weight", &[3, 101]),
    ("unused.gain", &[4]),
];
const EMBED: i64 = 0;
const BIAS: i64 = 1;
const EMPTY: i64 = 2;
const FROZEN: i64 = 3;
const HEAD: i64 = 4;
const SCALE: i64 = 5;
const WIDE: i64 = 6;

struct Rank {
    rank: i64,
    world: i64,
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

    fn add_parameters(&mut self, engine: &Engine) -> Result<()> {
        for (d, (name, extents)) in (0i64..).zip(PARAMETERS) {
            let count: i64 = extents.iter().product();
            let value = |i| ((7 * i + 3 * d) % 33 - 16) as f32 / 16.0 + self.rank as f32;
            let values: Vec<f32> = (0..count).map(value).collect();
            let mut wanted = options(otr_param_options_init)?;
            match d {
                BIAS => wanted.contributions = 2,
                FROZEN => wanted.trainable = 0,
                HEAD => wanted.alias_of = EMBED,
                _ => {}
            }
            let initial = view(&values, extents);
            let id = engine.add_parameter(name, (d != HEAD).then_some(&initial), &wanted)?;
            self.out.line(format!(
                "parameter {id} {name} {}",
                shape(&engine.parameter_shape(id)?)
            ));
        }
        Ok(())
    }

    fn print_acquired(&mut self, engine: &Engine, flags: u32) -> Result<()> {
        let ids = [EMBED, WIDE];
        let mut info = options(otr_call_info_init)?;
        info.flags = flags;
        engine.prefetch(&ids, &info)?;
        for (id, weight) in ids.iter().zip(engine.acquire(&ids, &info)?) {
            self.out.tensor(&format!("acquired {id}"), &weight);
        }
        engine.release(&ids, &info)
    }

    /// The toy model's backward: parameter gradients from the scaled gradients of the outputs.
    fn backward(&self, pass: &Pass, number: i64) -> Result<()> {
        let (dy0, dy1, dl) = (
            pass.output_grad(0)?,
            pass.output_grad(1)?,
            pass.output_grad(2)?,
        );
        let (dy0, dy1, dl) = (dy0.data::<f32>(), dy1.data::<f32>(), dl.data::<f32>()[0]);
        let x = |row: usize, column: usize| ((row + 2 * column) % 5) as f32 / 2.0 - 1.0;
        // A sum of floats starts from -0.0 in Rust and from 0.0 elsewhere.
        let sum =
            |values: &mut dyn Iterator<Item = f32>| values.fold(0.0, |total, value| total + value);
        let embed = |e: usize| sum(&mut (0..4).map(|i| x(i, e / 3) * dy0[3 * i + e % 3]));
        add_by_slot(pass, EMBED, &(0..15).map(embed).collect::<Vec<_>>())?;
        let head = |e: usize| dl * dy0[3 * (e / 3 % 4) + e % 3];
        add_by_tensor(pass, HEAD, &(0..15).map(head).collect::<Vec<_>>())?;
        if self.rank == 0 || number % 2 == 0 {
            add_by_slot(pass, BIAS, &dy1[..7])?;
            add_by_tensor(pass, BIAS, &dy1[7..])?;
        }
        if number % 2 == 0 {
            add_by_tensor(pass, EMPTY, &[])?;
        }
        add_by_tensor(pass, SCALE, &[sum(&mut dy0.iter().copied()) + dl])?;
        let mut wide: Vec<f32> = (0..303)
            .map(|e| dl * dy0[3 * (e % 101 % 4) + e / 101])
            .collect();
        if number == 3 && self.rank == self.world - 1 {
            wide[101 + 7] = f32::INFINITY;
        }
        if number % 2 == 0 {
            add_by_slot(pass, WIDE, &wide)
        } else {
            add_by_tensor(pass, WIDE, &wide)
        }
    }

    fn run_pass(&mut self, engine: &mut Engine, number: i64) -> Result<()> {
        let y0: Vec<f32> = (0..12)
            .map(|i| ((i + self.rank + number) % 8 - 3) as f32 / 4.0)
            .collect();
        let y1: Vec<f64> = (0..14)
            .map(|i| ((3 * i + 2 * self.rank + number) % 8 - 4) as f64 / 4.0)
            .collect();
        let pass =
            engine.begin_pass(&[view(&y0, &[4, 3]), view(&y1, &[2, 7]), view(&[1.0f32], &[])])?;
        self.out
            .line(format!("pass {number} scale {}", double(pass.scale()?)));
        for i in 0..3 {
            self.out
                .tensor(&format!("pass {number} output {i}"), &pass.output_grad(i)?);
        }
        self.backward(&pass, number)?;
        pass.end()?;
        let report = if number % 2 == 0 {
            engine.step()?
        } else {
            engine.step_begin()?;
            engine.report(-1.0)?
        };
        self.out.report(&format!("step {number}"), &report);
        if report.reason == OTR_SKIP_NONFINITE {
            let name = engine.parameter_name(report.nonfinite_param)?;
            self.out.line(format!(
                "skipped for {name} of rank {}",
                report.nonfinite_rank
            ));
        }
        Ok(())
    }

    fn wrong_calls(&mut self, engine: &Engine) -> Result<()> {
        fn failure<T>(result: Result<T>) -> String {
            result.err().map_or("no error".into(), |error| {
                format!("error {} {}", error.name, error.text)
            })
        }
        let value = [0f32; 15];
        let value = view(&value, &[5, 3]);
        self.out.line(failure(engine.parameter_id("embed.wieght")));
        self.out.line(failure(engine.add_parameter(
            "late",
            Some(&value),
            &options(otr_param_options_init)?,
        )));
        self.out.line(failure(engine.set_group_value("lr", -1.0)));
        let pass = engine.begin_pass(&[])?;
        self.out.line(failure(pass.add_grad(WIDE, &value)));
        Ok(()) // the pass is dropped; nothing was added: no trace
    }

    fn print_values(&mut self, engine: &Engine) -> Result<()> {
        for (d, (_, extents)) in (0i64..).zip(PARAMETERS) {
            for (value, name) in (0..).zip(["master", "published", "exp_avg", "exp_avg_sq"]) {
                let mut data = vec![0f32; extents.iter().product::<i64>() as usize];
                let mut tensor = view_mut(&mut data, extents);
                match engine.read(d, value, &mut tensor) {
                    Ok(()) => self.out.tensor(&format!("value {d} {name}"), &tensor),
                    Err(error) if error.code == OTR_E_NOT_FOUND => {
                        self.out.line(format!("value {d} {name} none"))
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn shard_alone(&mut self, context: &Context) -> Result<()> {
        let mut weights: Vec<f32> = (-2..3).map(|i| i as f32 / 4.0).collect();
        let mut grads: Vec<f32> = (-1..4).rev().map(|i| i as f32 / 8.0).collect();
        let mut published = vec![Bf16::default(); 5];
        let weights = view_mut(&mut weights, &[5]);
        let grads = view_mut(&mut grads, &[5]);
        let published = view_mut(&mut published, &[5]);
        let asked = ShardOptions {
            published: Some(&published),
            ..Default::default()
        };
        let shard = Shard::wrap(context, &weights, &grads, &asked)?;
        let optimizer = Optimizer::new(context, r#"{"type": "AdamW", "params": {"lr": 0.5}}"#)?;
        optimizer.set_value("lr", 0.25)?;
        self.out.report("shard step", &optimizer.step(&[&shard])?);
        self.out.tensor("shard weights", &weights);
        self.out.tensor("shard published", &published);
        for value in [OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ] {
            self.out
                .tensor(&format!("shard state {value}"), &shard.state(value)?);
        }
        self.out
            .line(format!("shard state_bytes {}", shard.state_bytes()?));
        Ok(())
    }

    fn run(&mut self, engine: &mut Engine) -> Result<()> {
        self.add_parameters(engine)?;
        engine.commit()?;
        self.print_acquired(engine, 0)?;
        for number in 0..6 {
            // three windows of two passes
            if number == 4 {
                engine.set_group_value("lr", 0.03125)?;
            }
            self.run_pass(engine, number)?;
        }
        self.wrong_calls(engine)?;
        self.print_values(engine)?;
        self.print_acquired(engine, 0)?;
        self.print_acquired(engine, OTR_ACQUIRE_FLOAT32)?;
        for (purpose, resident) in engine.memory()? {
            self.out.line(format!("memory {resident} {purpose}"));
        }
        self.out
            .line(format!("live_children {}", engine.live_children()?));
        engine.finalize()
    }
}

/// The gradient in a place of the pass: slots have the compute dtype, and the values are exact in it.
fn add_by_slot(pass: &Pass, id: i64, gradient: &[f32]) -> Result<()> {
    let mut slot = pass.slot(id)?;
    if slot.is::<Bf16>() {
        let bits = gradient
            .iter()
            .map(|value| Bf16((value.to_bits() >> 16) as u16));
        slot.data_mut::<Bf16>()
            .iter_mut()
            .zip(bits)
            .for_each(|(place, value)| *place = value);
    } else {
        slot.data_mut::<f32>().copy_from_slice(gradient);
    }
    pass.add_grad(id, &slot)
}

fn add_by_tensor(pass: &Pass, id: i64, gradient: &[f32]) -> Result<()> {
    pass.add_grad(id, &view(gradient, PARAMETERS[id as usize].1))
}

fn run(config: &str, output: &str) -> Result<()> {
    let context = Context::new()?;
    let comm = Comm::from_env(&context)?;
    let (rank, world) = (i64::from(comm.rank()?), i64::from(comm.size()?));
    let file = fs::File::create(format!("{output}.{rank}")).expect("the output can be created");
    let mut state = Rank {
        rank,
        world,
        out: Printer(io::BufWriter::new(file)),
    };
    state.out.line(format!("rank {rank} of {world}"));
    state.collectives(&comm)?;
    let mut engine = Engine::new(&comm, config)?;
    state.run(&mut engine)?;
    state.chain(&comm)?;
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
        eprintln!("{}: {}", error.name, error.text);
        std::process::exit(1);
    }
}
