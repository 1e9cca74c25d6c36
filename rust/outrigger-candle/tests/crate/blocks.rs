// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::*;
use candle_nn::{embedding, Embedding};
use outrigger::Error;
use outrigger_candle::{Block, Blocks, Engine};

const WIDTH: usize = 16;
const LAYERS: usize = 4;

fn embed(builder: VarBuilder, x: &Tensor) -> candle_core::Result<Tensor> {
    let table: Embedding = embedding(7, WIDTH, builder.pp("table"))?;
    table.forward(x)
}

fn layer(builder: VarBuilder, x: &Tensor) -> candle_core::Result<Tensor> {
    x + linear(WIDTH, WIDTH, builder.pp("up"))?.forward(x)?.tanh()?
}

fn parts() -> Vec<Block<'static>> {
    let layers = (0..LAYERS).map(|i| Block::new(format!("layer.{i}"), layer));
    std::iter::once(Block::new("embed", embed))
        .chain(layers)
        .collect()
}

/// The whole model from one builder, with weights that depend on the seed alone.
fn whole(builder: &VarBuilder, x: &Tensor) -> Tensor {
    let x = embed(builder.pp("embed"), x).unwrap();
    let layers = 0..LAYERS;
    layers.fold(x, |x, i| {
        layer(builder.pp(format!("layer.{i}")), &x).unwrap()
    })
}

fn start() -> VarMap {
    let mut varmap = VarMap::new();
    whole(
        &VarBuilder::from_varmap(&varmap, DType::F32, CPU),
        &tokens(0),
    );
    for (place, (name, var)) in named(&varmap).into_iter().enumerate() {
        varmap
            .set_one(name, (noise(place, var.dims()) * 0.25).unwrap())
            .unwrap();
    }
    varmap
}

fn tokens(seed: usize) -> Tensor {
    let tokens: Vec<u32> = (0..6).map(|i| ((seed * 3 + i * i) % 7) as u32).collect();
    Tensor::new(tokens, CPU).unwrap()
}

fn loss(y: &Tensor, seed: usize) -> Tensor {
    candle_nn::loss::mse(y, &noise(seed, y.dims())).unwrap()
}

fn seeds(rank: usize) -> impl Iterator<Item = usize> {
    (0..6).map(move |micro| micro * 2 + rank)
}

fn by_blocks(comm: &Comm) -> (Vec<f32>, i64) {
    let mut model = Blocks::new(comm, &config(3, ADAMW, ""), start(), parts()).unwrap();
    for seed in seeds(comm.rank() as usize) {
        let trace = model.forward(&tokens(seed)).unwrap();
        let y = Var::from_tensor(trace.output()).unwrap();
        let grads = loss(&y, seed).backward().unwrap();
        trace.backward(grads.get(&y).unwrap(), None).unwrap();
        model.step().unwrap();
    }
    let engine = model.engine();
    let ids = named(&start())
        .into_iter()
        .map(|(name, _)| engine.parameter_id(&name).unwrap());
    let values = ids
        .flat_map(|id| engine.read::<f32>(id, outrigger::Value::Master).unwrap())
        .collect();
    let memory = engine.memory().unwrap();
    let gathered = memory
        .iter()
        .find(|entry| entry.purpose == "acquired copies");
    (values, gathered.unwrap().peak_bytes)
}

#[test]
fn blocks_have_the_weights_of_the_whole() {
    let wholes = two_ranks(|comm| {
        let varmap = start();
        let builder = VarBuilder::from_varmap(&varmap, DType::F32, CPU);
        let mut engine = Engine::new(&comm, &config(1, ADAMW, ""), &varmap).unwrap();
        for seed in seeds(comm.rank() as usize) {
            let y = whole(&builder, &tokens(seed));
            engine.backward(&loss(&y, seed)).unwrap();
            engine.step().unwrap();
        }
        values(&varmap)
    });
    let ends = two_ranks(|comm| by_blocks(&comm));
    for (whole, (blocks, gathered)) in wholes.iter().zip(&ends) {
        assert_ne!(*whole, values(&start()));
        near(whole, blocks, 2e-6);
        // The weights of one block and of the next one, and not of four.
        let block = ((WIDTH + 1) * WIDTH * 4) as i64;
        assert!(
            *gathered < 3 * block,
            "{gathered} bytes, of blocks of {block}"
        );
    }
}

/// Of a float input there is a gradient, with the pass's factors.
#[test]
fn the_first_inputs_gradient() {
    let varmap = VarMap::new();
    let builder = VarBuilder::from_varmap(&varmap, DType::F32, CPU);
    let layers = |i: usize| builder.pp(format!("layer.{i}"));
    let x = Var::from_tensor(&noise(1, &[2, WIDTH])).unwrap();
    let y = (0..2).fold(x.as_tensor().clone(), |x, i| layer(layers(i), &x).unwrap());
    let seed = noise(2, &[2, WIDTH]);
    let plain = (y.clone() * &seed)
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    let blocks = (0..2).map(|i| Block::new(format!("layer.{i}"), layer));
    let model = Blocks::new(&alone(), &config(3, SGD, ""), varmap.clone(), blocks).unwrap();
    let trace = model.forward(&x).unwrap();
    near(&flat(trace.output()), &flat(&y), 1e-6);
    let given = trace.backward(&seed, None).unwrap();
    let wanted: Vec<f32> = flat(plain.get(&x).unwrap())
        .iter()
        .map(|g| g / 2.0)
        .collect();
    near(&flat(given.store.get(&x).unwrap()), &wanted, 1e-6);
    assert_eq!(given.tag.accumulation, 2);
}

fn refused(varmap: VarMap, blocks: Vec<Block>) -> String {
    match Blocks::new(&alone(), &config(3, SGD, ""), varmap, blocks) {
        Err(outrigger_candle::Error::Outrigger(Error::Argument(text))) => text,
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[test]
fn parameters_are_in_one_block_each() {
    let mut blocks = parts();
    blocks.remove(2);
    assert!(refused(start(), blocks).contains("layer.1.up.bias is in 0 blocks"));
    let mut blocks = parts();
    blocks.push(Block::new("layer", layer));
    assert!(refused(start(), blocks).contains("layer.0.up.bias is in 2 blocks"));
    let shared = start();
    let var = named(&shared)[1].1.clone();
    shared
        .data()
        .lock()
        .unwrap()
        .insert("layer.3.again".into(), var);
    assert!(refused(shared, parts()).contains("has a second name"));
}

#[test]
fn a_block_that_does_not_go_on_is_named() {
    let constant = |_: VarBuilder, x: &Tensor| x.ones_like();
    let mut blocks = parts();
    blocks.insert(3, Block::new("deaf", constant));
    let mut model = Blocks::new(&alone(), &single(3, SGD, ""), start(), blocks).unwrap();
    let trace = model.forward(&tokens(0)).unwrap();
    let seed = trace.output().ones_like().unwrap();
    let error = trace.backward(&seed, None).unwrap_err();
    assert!(matches!(
        error,
        outrigger_candle::Error::Outrigger(Error::State(_))
    ));
    assert!(
        error.to_string().contains("deaf does not depend"),
        "{error}"
    );
    assert!(model.step().unwrap().is_skipped());
}
