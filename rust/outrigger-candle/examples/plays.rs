// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small GPT over the bytes of a text, in candle, under ZeRO stage 2 with master weights and optimizer states on the host.
//!
//!     cargo run --release --example plays -- plays.txt 300
//!     outrigger run -n 2 -- target/release/examples/plays plays.txt 300
//!
//! `make demo` leaves Shakespeare's plays in build/demo/plays.txt.
use candle_core::{DType, Device, IndexOp, Tensor, D};
use candle_nn::{embedding, linear, linear_no_bias, loss::cross_entropy, ops::softmax};
use candle_nn::{Embedding, Init, Linear, Module, VarBuilder, VarMap};
use outrigger::{Comm, Context};
use outrigger_candle::{Engine, Result};

const CONFIG: &str = r#"{
    "optimizer": {"type": "AdamW", "params": {"lr": 0.003, "betas": [0.9, 0.99], "weight_decay": 0.01}},
    "gradient_clipping": 1.0,
    "gradient_accumulation_steps": 2,
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "outrigger": {"states": {"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}}
}"#;
const CHARACTERS: usize = 128;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const LAYERS: usize = 2;
const ROWS: usize = 8;
const CONTEXT: usize = 48;

struct Layer {
    norms: [Tensor; 2],
    attention: [Linear; 2],
    mlp: [Linear; 2],
}

struct Gpt {
    characters: Embedding,
    places: Tensor,
    layers: Vec<Layer>,
    norm: Tensor,
    head: Linear,
    mask: Tensor,
}

/// Over the root of the mean square, in operations that candle can go back through.
fn normed(x: &Tensor, weight: &Tensor) -> candle_core::Result<Tensor> {
    let root = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
    x.broadcast_div(&root)?.broadcast_mul(weight)
}

impl Layer {
    fn new(builder: VarBuilder) -> candle_core::Result<Self> {
        let norm = |name| builder.get_with_hints(WIDTH, name, Init::Const(1.0));
        Ok(Self {
            norms: [norm("norm_1")?, norm("norm_2")?],
            attention: [
                linear_no_bias(WIDTH, 3 * WIDTH, builder.pp("qkv"))?,
                linear_no_bias(WIDTH, WIDTH, builder.pp("out"))?,
            ],
            mlp: [
                linear(WIDTH, 4 * WIDTH, builder.pp("up"))?,
                linear(4 * WIDTH, WIDTH, builder.pp("down"))?,
            ],
        })
    }

    fn forward(&self, x: &Tensor, mask: &Tensor) -> candle_core::Result<Tensor> {
        let (rows, length, _) = x.dims3()?;
        let size = WIDTH / HEADS;
        let qkv = self.attention[0].forward(&normed(x, &self.norms[0])?)?;
        let qkv = qkv.reshape((rows, length, 3, HEADS, size))?;
        let part = |i| qkv.i((.., .., i))?.transpose(1, 2)?.contiguous();
        let (q, k, v) = (part(0)?, part(1)?, part(2)?);
        let scores = (q.matmul(&k.t()?.contiguous()?)? / (size as f64).sqrt())?;
        let weights = softmax(&scores.broadcast_add(mask)?, D::Minus1)?;
        let mixed = weights.matmul(&v)?.transpose(1, 2)?;
        let mixed = mixed.reshape((rows, length, WIDTH))?;
        let x = (x + self.attention[1].forward(&mixed)?)?;
        let up = self.mlp[0].forward(&normed(&x, &self.norms[1])?)?;
        &x + self.mlp[1].forward(&up.relu()?)?
    }
}

impl Gpt {
    fn new(builder: VarBuilder) -> candle_core::Result<Self> {
        let device = builder.device();
        let masked = |i: usize| {
            if i % CONTEXT > i / CONTEXT {
                f32::NEG_INFINITY
            } else {
                0.0
            }
        };
        let mask = Tensor::from_iter((0..CONTEXT * CONTEXT).map(masked), device)?;
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 0.02,
        };
        Ok(Self {
            characters: embedding(CHARACTERS, WIDTH, builder.pp("characters"))?,
            places: builder.get_with_hints((CONTEXT, WIDTH), "places", normal)?,
            layers: (0..LAYERS)
                .map(|i| Layer::new(builder.pp(format!("layer.{i}"))))
                .collect::<candle_core::Result<_>>()?,
            norm: builder.get_with_hints(WIDTH, "norm", Init::Const(1.0))?,
            head: linear_no_bias(WIDTH, CHARACTERS, builder.pp("head"))?,
            mask: mask.reshape((CONTEXT, CONTEXT))?,
        })
    }

    /// Mean loss of a character, in nats, over rows of CONTEXT + 1 characters.
    fn loss(&self, rows: &Tensor) -> candle_core::Result<Tensor> {
        let inputs = rows.narrow(1, 0, CONTEXT)?.contiguous()?;
        let targets = rows.narrow(1, 1, CONTEXT)?.contiguous()?;
        let mut x = self
            .characters
            .forward(&inputs)?
            .broadcast_add(&self.places)?;
        for layer in &self.layers {
            x = layer.forward(&x, &self.mask)?;
        }
        let logits = self.head.forward(&normed(&x, &self.norm)?)?;
        cross_entropy(&logits.flatten_to(1)?, &targets.flatten_all()?)
    }
}

/// Rows that begin anywhere in the text; the same number gives the same rows.
fn rows(text: &[u8], number: usize) -> candle_core::Result<Tensor> {
    let mut mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut values = Vec::with_capacity(ROWS * (CONTEXT + 1));
    for _ in 0..ROWS {
        mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let start = (mixed >> 20) as usize % (text.len() - CONTEXT);
        let row = &text[start..=start + CONTEXT];
        values.extend(row.iter().map(|&byte| u32::from(byte) % CHARACTERS as u32));
    }
    Tensor::from_vec(values, (ROWS, CONTEXT + 1), &Device::Cpu)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let path = arguments.get(1).expect("plays TEXT_FILE [STEPS]");
    let steps: usize = arguments
        .get(2)
        .map_or(300, |text| text.parse().expect("STEPS is a number"));
    let text = std::fs::read(path).expect("the text can be read");
    let (training, held_out) = text.split_at(text.len() / 10 * 9);

    let comm = Comm::from_env(&Context::new()?)?;
    let (rank, world) = (comm.rank() as usize, comm.size() as usize);
    let varmap = VarMap::new();
    let model = Gpt::new(VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu))?;
    let mut engine = Engine::new(&comm, CONFIG, &varmap)?;

    for micro in 0..2 * steps {
        // Each rank has rows of its own.
        let loss = model.loss(&rows(training, micro * world + rank)?)?;
        engine.backward(&loss)?;
        let report = engine.step()?;
        if rank == 0 && report.is_applied() && report.applied_steps % 50 == 0 {
            println!(
                "step {:4}: loss {:.3}",
                report.applied_steps,
                loss.to_scalar::<f32>()?
            );
        }
    }

    let mut sum = [0.0];
    for number in 0..8 {
        let loss = model.loss(&rows(held_out, number * world + rank)?)?;
        sum[0] += f64::from(loss.to_scalar::<f32>()?);
    }
    comm.all_reduce_sum(&mut sum)?;
    if rank == 0 {
        println!(
            "held-out loss {:.3} after {steps} steps on {world} ranks",
            sum[0] / (8 * world) as f64
        );
    }
    engine.finalize()
}
