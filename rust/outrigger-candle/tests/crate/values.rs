// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::*;
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use outrigger::{Load, Outcome, ParameterOptions, Save};
use outrigger_candle::Engine;

const STEPS: usize = 4;

/// Candle's own optimizer on the mean of all ranks' and micro-batches' losses.
fn plain(optimizer: &str, ranks: usize) -> Vec<f32> {
    let mut varmap = VarMap::new();
    let model = Mlp::new(&mut varmap, 1);
    let params = ParamsAdamW {
        lr: 0.05,
        weight_decay: 0.125,
        ..Default::default()
    };
    let mut adamw = AdamW::new(varmap.all_vars(), params).unwrap();
    let mut sgd = candle_nn::SGD::new(varmap.all_vars(), 0.5).unwrap();
    for step in 0..STEPS {
        let parts = (0..2).flat_map(|micro| (0..ranks).map(move |rank| (micro, rank)));
        let losses: Vec<_> = parts
            .map(|(micro, rank)| model.loss(step, micro, rank))
            .collect();
        let loss = Tensor::stack(&losses, 0).unwrap().mean_all().unwrap();
        match optimizer {
            SGD => sgd.backward_step(&loss).unwrap(),
            _ => adamw.backward_step(&loss).unwrap(),
        }
    }
    values(&varmap)
}

fn trained(comm: &Comm, config: &str) -> Vec<f32> {
    let mut varmap = VarMap::new();
    // Rank 0's values count.
    let model = Mlp::new(&mut varmap, 1 + comm.rank() as usize);
    let mut engine = Engine::new(comm, config, &varmap).unwrap();
    for step in 0..STEPS {
        for micro in 0..2 {
            let before = values(&varmap);
            engine
                .backward(&model.loss(step, micro, comm.rank() as usize))
                .unwrap();
            let report = engine.step().unwrap();
            let outcome = [Outcome::Accumulated, Outcome::Applied][micro];
            assert_eq!(report.outcome, outcome);
            assert_eq!(values(&varmap) != before, report.is_applied());
        }
    }
    engine.finalize().unwrap();
    values(&varmap)
}

#[test]
fn steps_are_candles_own() {
    for optimizer in [SGD, ADAMW] {
        near(
            &trained(&alone(), &config(0, optimizer, "")),
            &plain(optimizer, 1),
            2e-6,
        );
        for stage in 0..=3 {
            let ends = two_ranks(|comm| trained(&comm, &config(stage, optimizer, "")));
            near(&ends[0], &plain(optimizer, 2), 2e-6);
            assert_eq!(ends[0], ends[1]);
        }
    }
}

/// The scaled loss's gradients, and none of its scale in the weights.
#[test]
fn a_loss_scale_leaves_no_trace() {
    let scaled = r#", "fp16": {"enabled": true, "loss_scale": 64}"#;
    let end = trained(&alone(), &config(1, SGD, scaled));
    near(&end, &plain(SGD, 1), 4e-3);
    let mut varmap = VarMap::new();
    let model = Mlp::new(&mut varmap, 1);
    let engine = Engine::new(&alone(), &config(1, SGD, scaled), &varmap).unwrap();
    let loss = model.loss(0, 0, 0);
    let gradients = engine.backward(&loss).unwrap();
    assert_eq!(
        (gradients.tag.loss_scale, gradients.tag.accumulation),
        (64.0, 2)
    );
    let (_, var) = &named(&varmap)[0];
    let (plain, given) = (loss.backward().unwrap(), gradients.store.get(var).unwrap());
    let wanted: Vec<f32> = flat(plain.get(var).unwrap())
        .iter()
        .map(|g| g * 32.0)
        .collect();
    near(&flat(given), &wanted, 1e-4);
}

/// Two models under one loss: the first one's engine takes the gradient of its output, which is the second one's input, with its tag.
#[test]
fn engines_in_a_chain() {
    let made = |name: &str, seed| {
        let mut varmap = VarMap::new();
        let w = varmap
            .get((3, 3), name, candle_nn::Init::Const(0.0), DType::F32, CPU)
            .unwrap();
        varmap.set_one(name, noise(seed, &[3, 3])).unwrap();
        (varmap, w)
    };
    let (x, wanted) = (noise(5, &[4, 3]), noise(6, &[4, 3]));
    let scaled = r#", "fp16": {"enabled": true, "loss_scale": 8}"#;
    let (first_map, first) = made("first", 1);
    let (second_map, second) = made("second", 2);
    let unscaled = single(0, SGD, "");
    let mut first_engine = Engine::new(&alone(), &unscaled, &first_map).unwrap();
    let with_scale = single(0, SGD, scaled);
    let mut second_engine = Engine::new(&alone(), &with_scale, &second_map).unwrap();
    let plain = |first: &Tensor, second: &Tensor| {
        let y = x
            .matmul(first)
            .unwrap()
            .tanh()
            .unwrap()
            .matmul(second)
            .unwrap();
        let loss = candle_nn::loss::mse(&y, &wanted).unwrap();
        let grads = loss.backward().unwrap();
        let stepped = |w: &Tensor| (w - (grads.get(w).unwrap() * 0.5).unwrap()).unwrap();
        (flat(&stepped(first)), flat(&stepped(second)))
    };
    let ends = plain(&first, &second);

    let between = x.matmul(&first).unwrap().tanh().unwrap();
    let input = Var::from_tensor(&between.detach()).unwrap();
    let loss = candle_nn::loss::mse(&input.matmul(&second).unwrap(), &wanted).unwrap();
    let of_second = second_engine.backward(&loss).unwrap();
    let grad = of_second.store.get(&input).unwrap();
    first_engine
        .backward_from(&[(&between, grad)], Some(of_second.tag))
        .unwrap();
    first_engine.step().unwrap();
    second_engine.step().unwrap();
    near(&flat(&first), &ends.0, 1e-6);
    near(&flat(&second), &ends.1, 2e-3);
}

/// Outputs of several shapes, one of them without dimensions, and a gradient with strides of candle's own.
#[test]
fn several_outputs_and_a_strided_gradient() {
    let varmap = VarMap::new();
    let get = |name: &str, shape: (usize, usize)| {
        varmap
            .get(shape, name, candle_nn::Init::Const(1.0), DType::F32, CPU)
            .unwrap()
    };
    let (a, b) = (get("a", (2, 3)), get("b", (3, 2)));
    let config = single(0, SGD, "");
    let mut engine = Engine::new(&alone(), &config, &varmap).unwrap();
    let turned = a.t().unwrap();
    let total = b.sum_all().unwrap();
    // Begins inside its memory, column by column.
    let seed = noise(3, &[2, 4]).t().unwrap().narrow(0, 1, 3).unwrap();
    let two = Tensor::new(2.0_f32, CPU).unwrap();
    let given = engine
        .backward_from(&[(&turned, &seed), (&total, &two)], None)
        .unwrap();
    assert_eq!(flat(given.store.get(&a).unwrap()), flat(&seed.t().unwrap()));
    engine.step().unwrap();
    let wanted = (1.0 - (seed.t().unwrap() * 0.5).unwrap()).unwrap();
    near(&flat(&a), &flat(&wanted), 0.0);
    assert_eq!(flat(&b), [0.0; 6]);
}

#[test]
fn shared_and_frozen_vars() {
    let varmap = VarMap::new();
    for (name, value) in [("base", 3.0), ("free", 1.0)] {
        let init = candle_nn::Init::Const(value);
        varmap.get(2, name, init, DType::F32, CPU).unwrap();
    }
    let free = named(&varmap)[1].1.clone();
    varmap
        .data()
        .lock()
        .unwrap()
        .insert("second_name".into(), free.clone());
    let base = named(&varmap)[0].1.clone();
    let frozen = |name: &str| ParameterOptions {
        frozen: name == "base",
        ..Default::default()
    };
    let config = single(2, SGD, "");
    let mut engine = Engine::with(&alone(), &config, &varmap, frozen).unwrap();
    let loss = || {
        (base.as_tensor() * free.as_tensor())
            .unwrap()
            .sum_all()
            .unwrap()
    };
    engine.backward(&loss()).unwrap();
    engine.step().unwrap();
    assert_eq!(
        (flat(&base), flat(&free)),
        (vec![3.0; 2], vec![1.0 - 1.5; 2])
    );
    engine.set_trainable("free", false).unwrap();
    engine.set_trainable("second_name", true).unwrap(); // is the same one
    engine.backward(&loss()).unwrap();
    engine.step().unwrap();
    assert_eq!((flat(&base), flat(&free)), (vec![3.0; 2], vec![-2.0; 2]));
    engine.set_trainable("free", false).unwrap();
    let error = engine.backward(&loss()).unwrap_err(); // trains nothing
    assert!(error.to_string().contains("trainable Var"), "{error}");
}

/// Vars in the compute dtype, in float32 beside a narrower one, and wider than all.
#[test]
fn dtypes_of_vars() {
    let third = 1.0_f64 / 3.0;
    let narrow = half::bf16::from_f64(third).to_f64();
    let bf16 = r#", "bf16": {"enabled": true}"#;
    for (dtype, more, start) in [
        (DType::BF16, bf16, narrow),
        (DType::F32, bf16, narrow),
        (DType::F64, "", f64::from(third as f32)),
        (DType::F16, "", half::f16::from_f64(third).to_f64()),
    ] {
        let varmap = VarMap::new();
        let var = varmap
            .get(3, "w", candle_nn::Init::Const(third), dtype, CPU)
            .unwrap();
        let config = single(1, SGD, more);
        let mut engine = Engine::new(&alone(), &config, &varmap).unwrap();
        let read = || var.to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap();
        assert_eq!(read(), [start; 3], "{dtype:?}");
        engine
            .backward(&(&var * 0.5).unwrap().sum_all().unwrap())
            .unwrap();
        engine.step().unwrap();
        assert!(
            (read()[0] - (start - 0.25)).abs() < 2e-3,
            "{dtype:?}: {:?}",
            read()
        );
    }
}

#[test]
fn a_checkpoint_comes_back_into_the_vars() {
    let folder = std::env::temp_dir().join(format!("outrigger-candle-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut varmap = VarMap::new();
    let model = Mlp::new(&mut varmap, 1);
    let config = single(2, ADAMW, "");
    let mut engine = Engine::new(&alone(), &config, &varmap).unwrap();
    let step = |engine: &mut Engine, step| {
        engine.backward(&model.loss(step, 0, 0)).unwrap();
        engine.step().unwrap();
        values(&varmap)
    };
    let first = step(&mut engine, 0);
    engine.save(&folder, "first", &Save::default()).unwrap();
    let second = step(&mut engine, 1);
    engine
        .load(&folder, Some("first"), &Load::default())
        .unwrap();
    assert_eq!(values(&varmap), first);
    assert_eq!(step(&mut engine, 1), second);
    // What else changes weights is copied when asked for.
    let (zeros, id) = (
        [0.0_f32; 2],
        engine.engine().parameter_id("down.bias").unwrap(),
    );
    let zeros = outrigger::Tensor::new(&zeros, &[2]).unwrap();
    engine
        .engine_mut()
        .write(id, outrigger::Value::Master, &zeros)
        .unwrap();
    engine.publish().unwrap();
    assert_eq!(values(&varmap)[..2], [0.0; 2]);
    std::fs::remove_dir_all(folder).unwrap();
}
