// SPDX-License-Identifier: Apache-2.0 OR MIT
// Generated from configuration.schema.json by bindings/gen; not to be edited.
use super::{Json, Object};
use core::fmt;

/// A configuration: DeepSpeed's keys, and the library's own under `outrigger`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config(pub(super) Object);

impl Config {
    /// Samples of one optimizer step over all ranks (= train_micro_batch_size_per_gpu x gradient_accumulation_steps x world size).
    pub fn train_batch_size(self, value: i64) -> Self {
        Self(self.0.with("train_batch_size", value))
    }
    /// Samples of one pass on one rank (only its product with the others is checked).
    pub fn train_micro_batch_size_per_gpu(self, value: i64) -> Self {
        Self(self.0.with("train_micro_batch_size_per_gpu", value))
    }
    /// Passes in one optimizer step (derived from the batch sizes if absent, else 1).
    pub fn gradient_accumulation_steps(self, value: i64) -> Self {
        Self(self.0.with("gradient_accumulation_steps", value))
    }
    /// True: the engine finds the accumulation boundary; false, which is not built yet: the caller gives it (leave it true and call otr_engine_step after every pass, or end windows with otr_engine_set_boundary; outrigger.torch takes false, too); not built yet. Default true.
    pub fn managed_gradient_accumulation(self, value: bool) -> Self {
        Self(self.0.with("managed_gradient_accumulation", value))
    }
    /// Largest L2 norm of the mean gradient; 0: no clipping (without any configuration the default is 0). Default 1.0.
    pub fn gradient_clipping(self, value: f64) -> Self {
        Self(self.0.with("gradient_clipping", value))
    }
    /// Divide gradients before the sum (the mean is the same: the sum over ranks is float32 and divided once, after it; not beside reduce_scatter true and the mean at stages 2 and 3, as in DeepSpeed; a float16 accumulator holds the undivided sum: data_types.grad_accum_dtype fp32 gives it room). Default false.
    pub fn prescale_gradients(self, value: bool) -> Self {
        Self(self.0.with("prescale_gradients", value))
    }
    /// Divide gradients by this before the sum and by the rest after it (the mean is the same: the sum over ranks is float32 and divided once, after it; not beside reduce_scatter true and the mean at stages 2 and 3, as in DeepSpeed; a float16 accumulator holds the undivided sum: data_types.grad_accum_dtype fp32 gives it room). Default 1.0.
    pub fn gradient_predivide_factor(self, value: f64) -> Self {
        Self(self.0.with("gradient_predivide_factor", value))
    }
    /// How gradients of ranks combine (sum: not with stage 3). Default "mean".
    pub fn gradient_allreduce_op(self, value: GradientAllreduceOp) -> Self {
        Self(self.0.with("gradient_allreduce_op", value))
    }
    /// Dtype in which gradients are summed over ranks (gradients travel as they were given, in the compute dtype, and are summed in float32, which is at least as exact as any choice: all give the same bits); without effect here.
    pub fn communication_data_type(self, value: Dtype) -> Self {
        Self(self.0.with("communication_data_type", value))
    }
    /// Dtype of the host's sequence-parallel collectives; left to the host framework. Default "fp32".
    pub fn seq_parallel_communication_data_type(self, value: Dtype) -> Self {
        Self(self.0.with("seq_parallel_communication_data_type", value))
    }
    /// Sparse embedding gradients (hand dense gradients over); not built yet. Default false.
    pub fn sparse_gradients(self, value: bool) -> Self {
        Self(self.0.with("sparse_gradients", value))
    }
    /// Collective for publishing parameters (parameters are published in shared memory or by the communicator's all-gather); without effect here. Default false.
    pub fn disable_allgather(self, value: bool) -> Self {
        Self(self.0.with("disable_allgather", value))
    }
    /// Capture of device graphs; left to the host framework. Default false.
    pub fn graph_harvesting(self, value: bool) -> Self {
        Self(self.0.with("graph_harvesting", value))
    }
    /// `data_types`: sets keys in it.
    pub fn data_types(self, keys: impl FnOnce(DataTypes) -> DataTypes) -> Self {
        Self(self.0.nested("data_types", |object| keys(DataTypes(object)).0))
    }
    /// `optimizer`: sets keys in it.
    pub fn optimizer(self, keys: impl FnOnce(Optimizer) -> Optimizer) -> Self {
        Self(self.0.nested("optimizer", |object| keys(Optimizer(object)).0))
    }
    /// Allow optimizers of the host (outrigger.torch asks for it at stages 1 to 3); without effect here. Default false.
    pub fn zero_allow_untested_optimizer(self, value: bool) -> Self {
        Self(self.0.with("zero_allow_untested_optimizer", value))
    }
    /// Require the CPU kernel with offload (the engine's own kernel always runs); without effect here. Default true.
    pub fn zero_force_ds_cpu_optimizer(self, value: bool) -> Self {
        Self(self.0.with("zero_force_ds_cpu_optimizer", value))
    }
    /// `scheduler`: sets keys in it.
    pub fn scheduler(self, keys: impl FnOnce(Scheduler) -> Scheduler) -> Self {
        Self(self.0.nested("scheduler", |object| keys(Scheduler(object)).0))
    }
    /// `bf16`: sets keys in it.
    pub fn bf16(self, keys: impl FnOnce(Bf16) -> Bf16) -> Self {
        Self(self.0.nested("bf16", |object| keys(Bf16(object)).0))
    }
    /// `fp16`: sets keys in it.
    pub fn fp16(self, keys: impl FnOnce(Fp16) -> Fp16) -> Self {
        Self(self.0.nested("fp16", |object| keys(Fp16(object)).0))
    }
    /// `torch_autocast`: sets keys in it.
    pub fn torch_autocast(self, keys: impl FnOnce(TorchAutocast) -> TorchAutocast) -> Self {
        Self(self.0.nested("torch_autocast", |object| keys(TorchAutocast(object)).0))
    }
    /// `zero_optimization`: sets keys in it.
    pub fn zero_optimization(self, keys: impl FnOnce(ZeroOptimization) -> ZeroOptimization) -> Self {
        Self(self.0.nested("zero_optimization", |object| keys(ZeroOptimization(object)).0))
    }
    /// `outrigger`: sets keys in it.
    pub fn outrigger(self, keys: impl FnOnce(Outrigger) -> Outrigger) -> Self {
        Self(self.0.nested("outrigger", |object| keys(Outrigger(object)).0))
    }
    /// Steps between progress lines (the library never prints; print otr_step_report); left to the host framework.
    pub fn steps_per_print(self, value: i64) -> Self {
        Self(self.0.with("steps_per_print", value))
    }
    /// Print timings (the library never prints); left to the host framework. Default false.
    pub fn wall_clock_breakdown(self, value: bool) -> Self {
        Self(self.0.with("wall_clock_breakdown", value))
    }
    /// Print memory (otr_engine_memory tells it); left to the host framework. Default false.
    pub fn memory_breakdown(self, value: bool) -> Self {
        Self(self.0.with("memory_breakdown", value))
    }
    /// Print the state (otr_engine_config tells it); left to the host framework. Default false.
    pub fn dump_state(self, value: bool) -> Self {
        Self(self.0.with("dump_state", value))
    }
    /// Drop the last short batch; left to the host framework. Default false.
    pub fn dataloader_drop_last(self, value: bool) -> Self {
        Self(self.0.with("dataloader_drop_last", value))
    }
    /// Size of the vocabulary; left to the host framework.
    pub fn vocabulary_size(self, value: i64) -> Self {
        Self(self.0.with("vocabulary_size", value))
    }
    /// Order of process groups; left to the host framework. Default false.
    pub fn use_data_before_expert_parallelism(self, value: bool) -> Self {
        Self(self.0.with("use_data_before_expert_parallelism", value))
    }
    /// `activation_checkpointing`: sets keys in it.
    pub fn activation_checkpointing(self, keys: impl FnOnce(ActivationCheckpointing) -> ActivationCheckpointing) -> Self {
        Self(self.0.nested("activation_checkpointing", |object| keys(ActivationCheckpointing(object)).0))
    }
    /// `checkpoint`: sets keys in it.
    pub fn checkpoint(self, keys: impl FnOnce(Checkpoint) -> Checkpoint) -> Self {
        Self(self.0.nested("checkpoint", |object| keys(Checkpoint(object)).0))
    }
    /// `aio`: sets keys in it.
    pub fn aio(self, keys: impl FnOnce(Aio) -> Aio) -> Self {
        Self(self.0.nested("aio", |object| keys(Aio(object)).0))
    }
    /// `comms_logger`: sets keys in it.
    pub fn comms_logger(self, keys: impl FnOnce(CommsLogger) -> CommsLogger) -> Self {
        Self(self.0.nested("comms_logger", |object| keys(CommsLogger(object)).0))
    }
}

/// `data_types`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DataTypes(pub(super) Object);

impl DataTypes {
    /// Dtype of the gradient accumulator (null: the compute dtype; fp32 and bf16, at every stage).
    pub fn grad_accum_dtype(self, value: Dtype) -> Self {
        Self(self.0.with("grad_accum_dtype", value))
    }
    /// Dtype of the parameters (must equal the mode that bf16.enabled and fp16.enabled choose).
    pub fn param_dtype(self, value: Dtype) -> Self {
        Self(self.0.with("param_dtype", value))
    }
    /// Dtype of the model's buffers; left to the host framework.
    pub fn buffer_dtype(self, value: Dtype) -> Self {
        Self(self.0.with("buffer_dtype", value))
    }
}

/// `optimizer`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Optimizer(pub(super) Object);

impl Optimizer {
    /// Name of the rule (Adam means AdamW unless adam_w_mode is false; Host: the caller updates the weights, between otr_engine_reduce and otr_engine_step). Default "AdamW".
    pub fn r#type(self, value: UpdateRule) -> Self {
        Self(self.0.with("type", value))
    }
    /// Fusion of the optimizer's loops; without effect here. Default false.
    pub fn legacy_fusion(self, value: bool) -> Self {
        Self(self.0.with("legacy_fusion", value))
    }
    /// `params`: sets keys in it.
    pub fn params(self, keys: impl FnOnce(OptimizerParams) -> OptimizerParams) -> Self {
        Self(self.0.nested("params", |object| keys(OptimizerParams(object)).0))
    }
}

/// `optimizer.params`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptimizerParams(pub(super) Object);

impl OptimizerParams {
    /// Learning rate (otr_engine_set_group_value changes it between steps; default for Adagrad: 0.01, for Muon: 0.02). Default 0.001.
    pub fn lr(self, value: f64) -> Self {
        Self(self.0.with("lr", value))
    }
    /// Decay of the first and of the second moment (default for Lion, which uses the second for its moment: \[0.9, 0.99\]; for Muon, whose other parameters they are for: \[0.9, 0.95\]). Default \[0.9, 0.999\].
    pub fn betas(self, value: [f64; 2]) -> Self {
        Self(self.0.with("betas", value))
    }
    /// Added to the root of the second moment, after bias correction (default for Adagrad and Muon: 1e-10). Default 1e-08.
    pub fn eps(self, value: f64) -> Self {
        Self(self.0.with("eps", value))
    }
    /// Weight decay; decoupled (AdamW, Lion, Muon), L2 (Adam with adam_w_mode false, Adagrad, SGD), or in the direction (Lamb). Default 0.0.
    pub fn weight_decay(self, value: f64) -> Self {
        Self(self.0.with("weight_decay", value))
    }
    /// Divide the moments by 1 - beta^t. Default true.
    pub fn bias_correction(self, value: bool) -> Self {
        Self(self.0.with("bias_correction", value))
    }
    /// Type Adam, and Muon's other parameters: decoupled decay (true) or L2 (false). Default true.
    pub fn adam_w_mode(self, value: bool) -> Self {
        Self(self.0.with("adam_w_mode", value))
    }
    /// SGD, Muon: how much of the last direction is kept (SGD keeps a state, exp_avg, where it is above 0; default for Muon: 0.95). Default 0.0.
    pub fn momentum(self, value: f64) -> Self {
        Self(self.0.with("momentum", value))
    }
    /// SGD: the gradient's part in the momentum is 1 less this, after the first step. Default 0.0.
    pub fn dampening(self, value: f64) -> Self {
        Self(self.0.with("dampening", value))
    }
    /// SGD, Muon: Nesterov's momentum (default for Muon: true). Default false.
    pub fn nesterov(self, value: bool) -> Self {
        Self(self.0.with("nesterov", value))
    }
    /// Muon: learning rate of the matrices (default: lr).
    pub fn muon_lr(self, value: f64) -> Self {
        Self(self.0.with("muon_lr", value))
    }
    /// Muon: learning rate of the other parameters (default: lr, and 0.0003 where that is not given either).
    pub fn adam_lr(self, value: f64) -> Self {
        Self(self.0.with("adam_lr", value))
    }
    /// Muon: Newton-Schulz iterations. Default 5.
    pub fn ns_steps(self, value: i64) -> Self {
        Self(self.0.with("ns_steps", value))
    }
    /// Muon: what lr is multiplied by for a matrix of A rows and B columns (original: sqrt(max(1, A/B)); match_rms_adamw: 0.2 sqrt(max(A, B))). Default "original".
    pub fn adjust_lr_fn(self, value: ParamsAdjustLrFn) -> Self {
        Self(self.0.with("adjust_lr_fn", value))
    }
    /// Muon: order of the Newton-Schulz products (both name one polynomial; it is computed in float32); without effect here. Default "gram".
    pub fn ns_method(self, value: ParamsNsMethod) -> Self {
        Self(self.0.with("ns_method", value))
    }
    /// Muon: orthogonalise each attention head by itself (declare each head as a parameter of its own, or leave it false); not built yet. Default false.
    pub fn per_head_muon(self, value: bool) -> Self {
        Self(self.0.with("per_head_muon", value))
    }
    /// Lamb: the largest trust ratio of a layer. Default 10.0.
    pub fn max_coeff(self, value: f64) -> Self {
        Self(self.0.with("max_coeff", value))
    }
    /// Lamb: the smallest trust ratio of a layer. Default 0.01.
    pub fn min_coeff(self, value: f64) -> Self {
        Self(self.0.with("min_coeff", value))
    }
    /// Use PyTorch's Adam (the same formula; this engine's kernel runs it); without effect here. Default false.
    pub fn torch_adam(self, value: bool) -> Self {
        Self(self.0.with("torch_adam", value))
    }
    /// Moments in float32 (bf16.bf16_optimizer_states and outrigger.states decide; a contradiction is an error). Default true.
    pub fn fp32_optimizer_states(self, value: bool) -> Self {
        Self(self.0.with("fp32_optimizer_states", value))
    }
}

/// `scheduler`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheduler(pub(super) Object);

impl Scheduler {
    /// Name of the schedule; null: the rate stays as it is set (the first five are DeepSpeed's, Cosine and WSD are not).
    pub fn r#type(self, value: Schedule) -> Self {
        Self(self.0.with("type", value))
    }
    /// `params`: sets keys in it.
    pub fn params(self, keys: impl FnOnce(SchedulerParams) -> SchedulerParams) -> Self {
        Self(self.0.nested("params", |object| keys(SchedulerParams(object)).0))
    }
}

/// `scheduler.params`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerParams(pub(super) Object);

impl SchedulerParams {
    /// Updates until the end of the decay (required by WarmupDecayLR, WarmupCosineLR, Cosine and WSD).
    pub fn total_num_steps(self, value: i64) -> Self {
        Self(self.0.with("total_num_steps", value))
    }
    /// Updates of the warm-up (default for Cosine and WSD: 0; DeepSpeed's types warm up over at least 2). Default 1000.
    pub fn warmup_num_steps(self, value: i64) -> Self {
        Self(self.0.with("warmup_num_steps", value))
    }
    /// DeepSpeed's types: how the warm-up rises (Cosine and WSD rise linearly). Default "log".
    pub fn warmup_type(self, value: ParamsWarmupType) -> Self {
        Self(self.0.with("warmup_type", value))
    }
    /// WarmupLR, WarmupDecayLR: learning rate at the start of the warm-up. Default 0.0.
    pub fn warmup_min_lr(self, value: f64) -> Self {
        Self(self.0.with("warmup_min_lr", value))
    }
    /// WarmupLR, WarmupDecayLR: learning rate at its end; null: the group's own (default for WarmupDecayLR: 0.001, as in DeepSpeed).
    pub fn warmup_max_lr(self, value: f64) -> Self {
        Self(self.0.with("warmup_max_lr", value))
    }
    /// WarmupCosineLR, Cosine, WSD: share of the group's rate at the start of the warm-up. Default 0.0.
    pub fn warmup_min_ratio(self, value: f64) -> Self {
        Self(self.0.with("warmup_min_ratio", value))
    }
    /// WarmupCosineLR: share of the group's rate at the end. Default 0.0001.
    pub fn cos_min_ratio(self, value: f64) -> Self {
        Self(self.0.with("cos_min_ratio", value))
    }
    /// Cosine, WSD: share of the group's rate at the end. Default 0.0.
    pub fn min_ratio(self, value: f64) -> Self {
        Self(self.0.with("min_ratio", value))
    }
    /// WSD: updates of the decay, which ends at total_num_steps (required by WSD).
    pub fn decay_num_steps(self, value: i64) -> Self {
        Self(self.0.with("decay_num_steps", value))
    }
    /// WSD: how the decay falls (with progress p from 0 to 1: 1 - p, (1 + cos(pi p)) / 2, or 1 - sqrt(p)). Default "linear".
    pub fn decay_type(self, value: ParamsDecayType) -> Self {
        Self(self.0.with("decay_type", value))
    }
    /// OneCycle: learning rate at both ends of the cycle (required by OneCycle).
    pub fn cycle_min_lr(self, value: f64) -> Self {
        Self(self.0.with("cycle_min_lr", value))
    }
    /// OneCycle: learning rate at its top (required by OneCycle).
    pub fn cycle_max_lr(self, value: f64) -> Self {
        Self(self.0.with("cycle_max_lr", value))
    }
    /// OneCycle: updates of the rise. Default 2000.
    pub fn cycle_first_step_size(self, value: i64) -> Self {
        Self(self.0.with("cycle_first_step_size", value))
    }
    /// OneCycle: updates of the fall; null: as many as of the rise.
    pub fn cycle_second_step_size(self, value: i64) -> Self {
        Self(self.0.with("cycle_second_step_size", value))
    }
    /// OneCycle: stairs of the rise; 0: a straight line. Default 0.
    pub fn cycle_first_stair_count(self, value: i64) -> Self {
        Self(self.0.with("cycle_first_stair_count", value))
    }
    /// OneCycle: stairs of the fall; null: as many as of the rise.
    pub fn cycle_second_stair_count(self, value: i64) -> Self {
        Self(self.0.with("cycle_second_stair_count", value))
    }
    /// OneCycle: updates in which the decay rates count once, after the cycle. Default 0.
    pub fn decay_step_size(self, value: i64) -> Self {
        Self(self.0.with("decay_step_size", value))
    }
    /// OneCycle: after the cycle cycle_min_lr is divided by 1 + this x (updates since) / decay_step_size. Default 0.0.
    pub fn decay_lr_rate(self, value: f64) -> Self {
        Self(self.0.with("decay_lr_rate", value))
    }
    /// OneCycle: beta1 runs from cycle_max_mom to cycle_min_mom and back; beta2 is 0.99 (for rules with betas; in the first update beta1 is cycle_min_mom, as in DeepSpeed). Default true.
    pub fn cycle_momentum(self, value: bool) -> Self {
        Self(self.0.with("cycle_momentum", value))
    }
    /// OneCycle: beta1 at the top of the cycle. Default 0.8.
    pub fn cycle_min_mom(self, value: f64) -> Self {
        Self(self.0.with("cycle_min_mom", value))
    }
    /// OneCycle: beta1 at its ends. Default 0.9.
    pub fn cycle_max_mom(self, value: f64) -> Self {
        Self(self.0.with("cycle_max_mom", value))
    }
    /// OneCycle: after the cycle cycle_max_mom is multiplied by 1 + this x (updates since) / decay_step_size (beta1 stops at 0.999, or at cycle_max_mom if that is more). Default 0.0.
    pub fn decay_mom_rate(self, value: f64) -> Self {
        Self(self.0.with("decay_mom_rate", value))
    }
    /// LRRangeTest: the first learning rate. Default 0.001.
    pub fn lr_range_test_min_lr(self, value: f64) -> Self {
        Self(self.0.with("lr_range_test_min_lr", value))
    }
    /// LRRangeTest: updates in which the rate grows once. Default 2000.
    pub fn lr_range_test_step_size(self, value: i64) -> Self {
        Self(self.0.with("lr_range_test_step_size", value))
    }
    /// LRRangeTest: by how much of the first rate it grows. Default 1.0.
    pub fn lr_range_test_step_rate(self, value: f64) -> Self {
        Self(self.0.with("lr_range_test_step_rate", value))
    }
    /// LRRangeTest: grow at once, not little by little. Default false.
    pub fn lr_range_test_staircase(self, value: bool) -> Self {
        Self(self.0.with("lr_range_test_staircase", value))
    }
    /// Where to begin (the schedule counts the updates itself; otr_shard_set_step tells a resumed shard how many it has had; leave the key out); refused. Default -1.
    pub fn last_batch_iteration(self, value: i64) -> Self {
        Self(self.0.with("last_batch_iteration", value))
    }
}

/// `bf16`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bf16(pub(super) Object);

impl Bf16 {
    /// Parameters and gradients in bfloat16. Default false.
    pub fn enabled(self, value: bool) -> Self {
        Self(self.0.with("enabled", value))
    }
    /// When gradients are accumulated (gradients are accumulated as they arrive); without effect here. Default false.
    pub fn immediate_grad_update(self, value: bool) -> Self {
        Self(self.0.with("immediate_grad_update", value))
    }
    /// Skip the step if a gradient is Inf or NaN (also honoured with float32 compute). Default true.
    pub fn check_grad_overflow(self, value: bool) -> Self {
        Self(self.0.with("check_grad_overflow", value))
    }
    /// The published bfloat16 weights are the master (rounding nearest; outrigger.states.master.rounding changes it). Default false.
    pub fn bf16_master_weights_and_grads(self, value: bool) -> Self {
        Self(self.0.with("bf16_master_weights_and_grads", value))
    }
    /// Both moments in bfloat16 (rounding nearest; outrigger.states.exp_avg.rounding and exp_avg_sq.rounding change it). Default false.
    pub fn bf16_optimizer_states(self, value: bool) -> Self {
        Self(self.0.with("bf16_optimizer_states", value))
    }
}

/// `fp16`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fp16(pub(super) Object);

impl Fp16 {
    /// Parameters and gradients in float16. Default false.
    pub fn enabled(self, value: bool) -> Self {
        Self(self.0.with("enabled", value))
    }
    /// Cast the model's inputs; left to the host framework. Default false.
    pub fn auto_cast(self, value: bool) -> Self {
        Self(self.0.with("auto_cast", value))
    }
    /// Fixed loss scale; 0: dynamic (matters where the loss is scaled: fp16.enabled, autocast in fp16). Default 0.0.
    pub fn loss_scale(self, value: f64) -> Self {
        Self(self.0.with("loss_scale", value))
    }
    /// First dynamic scale, as a power of two (matters where the loss is scaled: fp16.enabled, autocast in fp16). Default 16.
    pub fn initial_scale_power(self, value: i64) -> Self {
        Self(self.0.with("initial_scale_power", value))
    }
    /// Clean windows before the scale doubles (matters where the loss is scaled: fp16.enabled, autocast in fp16). Default 1000.
    pub fn loss_scale_window(self, value: i64) -> Self {
        Self(self.0.with("loss_scale_window", value))
    }
    /// Overflows before the scale halves (matters where the loss is scaled: fp16.enabled, autocast in fp16). Default 2.
    pub fn hysteresis(self, value: i64) -> Self {
        Self(self.0.with("hysteresis", value))
    }
    /// A clean step refills the hysteresis (matters where the loss is scaled: fp16.enabled, autocast in fp16). Default false.
    pub fn consecutive_hysteresis(self, value: bool) -> Self {
        Self(self.0.with("consecutive_hysteresis", value))
    }
    /// Smallest dynamic scale (matters where the loss is scaled: fp16.enabled, autocast in fp16). Default 1.
    pub fn min_loss_scale(self, value: f64) -> Self {
        Self(self.0.with("min_loss_scale", value))
    }
    /// The float16 weights are the master. Default false.
    pub fn fp16_master_weights_and_grads(self, value: bool) -> Self {
        Self(self.0.with("fp16_master_weights_and_grads", value))
    }
    /// Moments in float16; never legal. Default false.
    pub fn fp16_optimizer_states(self, value: bool) -> Self {
        Self(self.0.with("fp16_optimizer_states", value))
    }
}

/// `torch_autocast`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TorchAutocast(pub(super) Object);

impl TorchAutocast {
    /// The host casts operation by operation; left to the host framework. Default false.
    pub fn enabled(self, value: bool) -> Self {
        Self(self.0.with("enabled", value))
    }
    /// Dtype that autocast computes in (fp16: the loss is scaled by the keys of the fp16 section).
    pub fn dtype(self, value: Dtype) -> Self {
        Self(self.0.with("dtype", value))
    }
    /// Modules whose weights autocast may keep in the low precision; left to the host framework.
    pub fn lower_precision_safe_modules(self, value: &[&str]) -> Self {
        Self(self.0.with("lower_precision_safe_modules", value))
    }
}

/// `zero_optimization`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZeroOptimization(pub(super) Object);

impl ZeroOptimization {
    /// 0: nothing, 1: master and states, 2: and gradients, 3: and parameters. Default 0.
    pub fn stage(self, value: i64) -> Self {
        Self(self.0.with("stage", value))
    }
    /// Gradients side by side (gradients always lie in buckets); without effect here. Default true.
    pub fn contiguous_gradients(self, value: bool) -> Self {
        Self(self.0.with("contiguous_gradients", value))
    }
    /// Reduce-scatter instead of all-reduce (every stage uses reduce-scatter; the sum is the same); without effect here. Default true.
    pub fn reduce_scatter(self, value: bool) -> Self {
        Self(self.0.with("reduce_scatter", value))
    }
    /// Elements of a gradient bucket (rounded up to a multiple of 256, at least 256; not set, it grows from 257 ranks on, so that what a rank sends each other one keeps 32768 elements, up to a sixteenth of the model; DeepSpeed's default is 5e8). Default 8388608.
    pub fn reduce_bucket_size(self, value: i64) -> Self {
        Self(self.0.with("reduce_bucket_size", value))
    }
    /// Elements of an all-gather bucket; without effect here. Default 500000000.
    pub fn allgather_bucket_size(self, value: i64) -> Self {
        Self(self.0.with("allgather_bucket_size", value))
    }
    /// All-gather or broadcasts; without effect here. Default true.
    pub fn allgather_partitions(self, value: bool) -> Self {
        Self(self.0.with("allgather_partitions", value))
    }
    /// How buckets of several ranks are joined; without effect here. Default true.
    pub fn use_multi_rank_bucket_allreduce(self, value: bool) -> Self {
        Self(self.0.with("use_multi_rank_bucket_allreduce", value))
    }
    /// Reduce during backward (buckets always go out in the background; the bits do not depend on it); without effect here.
    pub fn overlap_comm(self, value: bool) -> Self {
        Self(self.0.with("overlap_comm", value))
    }
    /// Order of parameters in partitions (the bits do not depend on it); without effect here. Default false.
    pub fn round_robin_gradients(self, value: bool) -> Self {
        Self(self.0.with("round_robin_gradients", value))
    }
    /// Tolerate parameters without a gradient (see outrigger.unused_parameters); without effect here. Default true.
    pub fn ignore_unused_parameters(self, value: bool) -> Self {
        Self(self.0.with("ignore_unused_parameters", value))
    }
    /// Elements updated at a time; without effect here. Default 1000000000.
    pub fn sub_group_size(self, value: i64) -> Self {
        Self(self.0.with("sub_group_size", value))
    }
    /// Elements fetched ahead (outrigger.torch does so where ranks have parameters in slices, and with offload_param on a device); without effect here. Default 50000000.
    pub fn stage3_prefetch_bucket_size(self, value: i64) -> Self {
        Self(self.0.with("stage3_prefetch_bucket_size", value))
    }
    /// Parameters this small stay whole until the step (outrigger.torch does so where ranks have parameters in slices, and with offload_param on a device); without effect here. Default 100000.
    pub fn stage3_param_persistence_threshold(self, value: i64) -> Self {
        Self(self.0.with("stage3_param_persistence_threshold", value))
    }
    /// Elements that may stay whole (acquiring a parameter on one host is a pointer, nothing is copied); without effect here. Default 9223372036854775807.
    pub fn stage3_model_persistence_threshold(self, value: i64) -> Self {
        Self(self.0.with("stage3_model_persistence_threshold", value))
    }
    /// Elements of offloaded parameters that are on the device at a time (acquired ones count, and may be more; what was released stays there as long as there is room; without offload_param acquire and release decide alone). Default 1000000000.
    pub fn stage3_max_live_parameters(self, value: i64) -> Self {
        Self(self.0.with("stage3_max_live_parameters", value))
    }
    /// Keep parameters that are used again this soon (see stage3_max_live_parameters); without effect here. Default 1000000000.
    pub fn stage3_max_reuse_distance(self, value: i64) -> Self {
        Self(self.0.with("stage3_max_reuse_distance", value))
    }
    /// Collect the model when saving (otr_engine_parameter_read gives whole parameters); left to the host framework. Default false.
    pub fn stage3_gather_16bit_weights_on_model_save(self, value: bool) -> Self {
        Self(self.0.with("stage3_gather_16bit_weights_on_model_save", value))
    }
    /// Treat small modules as one (acquire and release need no module trace); without effect here. Default 0.
    pub fn stage3_module_granularity_threshold(self, value: i64) -> Self {
        Self(self.0.with("stage3_module_granularity_threshold", value))
    }
    /// Collective for fetching (acquiring a parameter on one host is a pointer, nothing is copied); without effect here. Default false.
    pub fn stage3_use_all_reduce_for_fetch_params(self, value: bool) -> Self {
        Self(self.0.with("stage3_use_all_reduce_for_fetch_params", value))
    }
    /// Fetch parameters one by one (acquiring a parameter on one host is a pointer, nothing is copied); without effect here. Default false.
    pub fn stage3_allgather_sequential(self, value: bool) -> Self {
        Self(self.0.with("stage3_allgather_sequential", value))
    }
    /// Partition large parameters in pieces (declare parameters without values and write them after commit); without effect here. Default 0.
    pub fn stage3_partition_stream_chunk_size(self, value: i64) -> Self {
        Self(self.0.with("stage3_partition_stream_chunk_size", value))
    }
    /// Start the master from float32 weights (leave it true); not built yet. Default true.
    pub fn load_from_fp32_weights(self, value: bool) -> Self {
        Self(self.0.with("load_from_fp32_weights", value))
    }
    /// Old form of elastic checkpoints (leave it false); not built yet. Default false.
    pub fn elastic_checkpoint(self, value: bool) -> Self {
        Self(self.0.with("elastic_checkpoint", value))
    }
    /// Linear layers of the host; left to the host framework. Default true.
    pub fn memory_efficient_linear(self, value: bool) -> Self {
        Self(self.0.with("memory_efficient_linear", value))
    }
    /// Modules of the host; left to the host framework. Default true.
    pub fn override_module_apply(self, value: bool) -> Self {
        Self(self.0.with("override_module_apply", value))
    }
    /// Load checkpoints in a pipeline; left to the host framework. Default false.
    pub fn pipeline_loading_checkpoint(self, value: bool) -> Self {
        Self(self.0.with("pipeline_loading_checkpoint", value))
    }
    /// Log trace changes (acquire and release need no module trace); without effect here. Default false.
    pub fn log_trace_cache_warnings(self, value: bool) -> Self {
        Self(self.0.with("log_trace_cache_warnings", value))
    }
    /// Compare ranks (order and shape of collectives are always compared); without effect here. Default false.
    pub fn enable_sanity_checks(self, value: bool) -> Self {
        Self(self.0.with("enable_sanity_checks", value))
    }
    /// Muon's momentum with nvme; without effect here. Default false.
    pub fn save_muon_momentum_buffer_in_memory(self, value: bool) -> Self {
        Self(self.0.with("save_muon_momentum_buffer_in_memory", value))
    }
    /// `offload_optimizer`: sets keys in it.
    pub fn offload_optimizer(self, keys: impl FnOnce(ZeroOptimizationOffloadOptimizer) -> ZeroOptimizationOffloadOptimizer) -> Self {
        Self(self.0.nested("offload_optimizer", |object| keys(ZeroOptimizationOffloadOptimizer(object)).0))
    }
    /// `offload_param`: sets keys in it.
    pub fn offload_param(self, keys: impl FnOnce(ZeroOptimizationOffloadParam) -> ZeroOptimizationOffloadParam) -> Self {
        Self(self.0.nested("offload_param", |object| keys(ZeroOptimizationOffloadParam(object)).0))
    }
    /// Ranks over which parameters are cut at stage 3, of which states are cut over all (hpZ); 1: all (DeepSpeed's name of outrigger.mesh.shard with outrigger.mesh.states "all"). Default 1.
    pub fn zero_hpz_partition_size(self, value: i64) -> Self {
        Self(self.0.with("zero_hpz_partition_size", value))
    }
    /// Acquires gather trainable parameters as 8-bit integers, with a scale for 256 of them (qwZ) (at stage 3; below it has no effect). Default false.
    pub fn zero_quantized_weights(self, value: bool) -> Self {
        Self(self.0.with("zero_quantized_weights", value))
    }
    /// Quantised frozen weights (leave it false); not built yet. Default false.
    pub fn zero_quantized_nontrainable_weights(self, value: bool) -> Self {
        Self(self.0.with("zero_quantized_nontrainable_weights", value))
    }
    /// Gradients move between ranks as blocks of 8 bits, with two levels the hosts' sums do (where sums are made in host memory; at every stage). Default false.
    pub fn zero_quantized_gradients(self, value: bool) -> Self {
        Self(self.0.with("zero_quantized_gradients", value))
    }
    /// Ranks of a shard group (MiCS); -1: all (DeepSpeed's name of outrigger.mesh.shard, here at every stage). Default -1.
    pub fn mics_shard_size(self, value: i64) -> Self {
        Self(self.0.with("mics_shard_size", value))
    }
    /// All-gather in two levels; without effect here. Default false.
    pub fn mics_hierarchical_params_gather(self, value: bool) -> Self {
        Self(self.0.with("mics_hierarchical_params_gather", value))
    }
    /// `leaf_module`: sets keys in it.
    pub fn leaf_module(self, keys: impl FnOnce(ZeroOptimizationLeafModule) -> ZeroOptimizationLeafModule) -> Self {
        Self(self.0.nested("leaf_module", |object| keys(ZeroOptimizationLeafModule(object)).0))
    }
    /// Older form of offload_optimizer.device cpu (not beside offload_optimizer).
    pub fn cpu_offload(self, value: bool) -> Self {
        Self(self.0.with("cpu_offload", value))
    }
    /// Older form of offload_param.device cpu (not beside offload_param).
    pub fn cpu_offload_param(self, value: bool) -> Self {
        Self(self.0.with("cpu_offload_param", value))
    }
    /// Older form of pin_memory; without effect here.
    pub fn cpu_offload_use_pin_memory(self, value: bool) -> Self {
        Self(self.0.with("cpu_offload_use_pin_memory", value))
    }
}

/// `zero_optimization.offload_optimizer`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZeroOptimizationOffloadOptimizer(pub(super) Object);

impl ZeroOptimizationOffloadOptimizer {
    /// Memory of master and states (on a CPU engine none and cpu are the same memory). Default "none".
    pub fn device(self, value: OffloadDevice) -> Self {
        Self(self.0.with("device", value))
    }
    /// Page-locked memory (see outrigger.host_memory.pin; a CPU engine copies to no device). Default true.
    pub fn pin_memory(self, value: bool) -> Self {
        Self(self.0.with("pin_memory", value))
    }
    /// Part of the states' elements that is offloaded (in whole parameters: those declared first stay on the device; DeepSpeed has it at stage 3 only; no effect on a CPU engine). Default 1.0.
    pub fn ratio(self, value: f64) -> Self {
        Self(self.0.with("ratio", value))
    }
    /// Directory for device nvme (matters with device nvme only, which is not built yet).
    pub fn nvme_path(self, value: &str) -> Self {
        Self(self.0.with("nvme_path", value))
    }
    /// Buffers for device nvme (matters with device nvme only, which is not built yet); without effect here. Default 4.
    pub fn buffer_count(self, value: i64) -> Self {
        Self(self.0.with("buffer_count", value))
    }
    /// Overlap reads (matters with device nvme only, which is not built yet); without effect here. Default false.
    pub fn pipeline_read(self, value: bool) -> Self {
        Self(self.0.with("pipeline_read", value))
    }
    /// Overlap writes (matters with device nvme only, which is not built yet); without effect here. Default false.
    pub fn pipeline_write(self, value: bool) -> Self {
        Self(self.0.with("pipeline_write", value))
    }
    /// Overlap reads and writes (matters with device nvme only, which is not built yet); without effect here. Default false.
    pub fn pipeline(self, value: bool) -> Self {
        Self(self.0.with("pipeline", value))
    }
    /// Faster start (matters with device nvme only, which is not built yet); without effect here. Default false.
    pub fn fast_init(self, value: bool) -> Self {
        Self(self.0.with("fast_init", value))
    }
    /// Overlap for hosts with a fast link (leave it false); not built yet. Default false.
    pub fn super_offload(self, value: bool) -> Self {
        Self(self.0.with("super_offload", value))
    }
    /// Where gradients are widened (the fused update widens them in registers); without effect here. Default true.
    pub fn convert_grad_on_cpu(self, value: bool) -> Self {
        Self(self.0.with("convert_grad_on_cpu", value))
    }
    /// Share of the cores for the update (outrigger.workers sets the number of threads); without effect here. Default 0.8.
    pub fn cpuadam_cores_perc(self, value: f64) -> Self {
        Self(self.0.with("cpuadam_cores_perc", value))
    }
}

/// `zero_optimization.offload_param`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZeroOptimizationOffloadParam(pub(super) Object);

impl ZeroOptimizationOffloadParam {
    /// Memory of the parameters (with stage 3 only, on a device beside offload_optimizer; on a CPU engine none and cpu are the same memory). Default "none".
    pub fn device(self, value: OffloadDevice) -> Self {
        Self(self.0.with("device", value))
    }
    /// Page-locked memory (see outrigger.host_memory.pin; a CPU engine copies to no device). Default true.
    pub fn pin_memory(self, value: bool) -> Self {
        Self(self.0.with("pin_memory", value))
    }
    /// Directory for device nvme (matters with device nvme only, which is not built yet).
    pub fn nvme_path(self, value: &str) -> Self {
        Self(self.0.with("nvme_path", value))
    }
    /// Buffers for device nvme (matters with device nvme only, which is not built yet); without effect here. Default 5.
    pub fn buffer_count(self, value: i64) -> Self {
        Self(self.0.with("buffer_count", value))
    }
    /// Elements of a buffer for device nvme (matters with device nvme only, which is not built yet); without effect here. Default 100000000.
    pub fn buffer_size(self, value: i64) -> Self {
        Self(self.0.with("buffer_size", value))
    }
    /// Elements kept in memory with device nvme (matters with device nvme only, which is not built yet); without effect here. Default 1000000000.
    pub fn max_in_cpu(self, value: i64) -> Self {
        Self(self.0.with("max_in_cpu", value))
    }
}

/// `zero_optimization.leaf_module`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZeroOptimizationLeafModule(pub(super) Object);

impl ZeroOptimizationLeafModule {
    /// By class (acquire and release need no module trace); left to the host framework. Default \[\].
    pub fn classes(self, value: &[&str]) -> Self {
        Self(self.0.with("classes", value))
    }
    /// By name (acquire and release need no module trace); left to the host framework. Default \[\].
    pub fn names(self, value: &[&str]) -> Self {
        Self(self.0.with("names", value))
    }
    /// By the name's end (acquire and release need no module trace); left to the host framework. Default \[\].
    pub fn name_suffixes(self, value: &[&str]) -> Self {
        Self(self.0.with("name_suffixes", value))
    }
}

/// `outrigger`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outrigger(pub(super) Object);

impl Outrigger {
    /// Seed of stochastic rounding. Default 0.
    pub fn seed(self, value: i64) -> Self {
        Self(self.0.with("seed", value))
    }
    /// `states`: sets keys in it.
    pub fn states(self, keys: impl FnOnce(OutriggerStates) -> OutriggerStates) -> Self {
        Self(self.0.nested("states", |object| keys(OutriggerStates(object)).0))
    }
    /// Reduce gradients over ranks after every pass, or once in a step (default: boundary at stages 0 and 1, micro_step at stages 2 and 3; either is bitwise the same at every stage).
    pub fn reduction_order(self, value: OutriggerReductionOrder) -> Self {
        Self(self.0.with("reduction_order", value))
    }
    /// Largest magnitude of an element of the mean gradient; 0: any (in place of gradient_clipping, which must then be absent or 0). Default 0.0.
    pub fn gradient_clipping_value(self, value: f64) -> Self {
        Self(self.0.with("gradient_clipping_value", value))
    }
    /// `skip_outlier_norms`: sets keys in it.
    pub fn skip_outlier_norms(self, keys: impl FnOnce(OutriggerSkipOutlierNorms) -> OutriggerSkipOutlierNorms) -> Self {
        Self(self.0.nested("skip_outlier_norms", |object| keys(OutriggerSkipOutlierNorms(object)).0))
    }
    /// `mesh`: sets keys in it.
    pub fn mesh(self, keys: impl FnOnce(OutriggerMesh) -> OutriggerMesh) -> Self {
        Self(self.0.nested("mesh", |object| keys(OutriggerMesh(object)).0))
    }
    /// `checkpoint`: sets keys in it.
    pub fn checkpoint(self, keys: impl FnOnce(OutriggerCheckpoint) -> OutriggerCheckpoint) -> Self {
        Self(self.0.nested("checkpoint", |object| keys(OutriggerCheckpoint(object)).0))
    }
    /// `host_memory`: sets keys in it.
    pub fn host_memory(self, keys: impl FnOnce(OutriggerHostMemory) -> OutriggerHostMemory) -> Self {
        Self(self.0.nested("host_memory", |object| keys(OutriggerHostMemory(object)).0))
    }
    /// `exchange`: sets keys in it.
    pub fn exchange(self, keys: impl FnOnce(OutriggerExchange) -> OutriggerExchange) -> Self {
        Self(self.0.nested("exchange", |object| keys(OutriggerExchange(object)).0))
    }
    /// `muon`: sets keys in it.
    pub fn muon(self, keys: impl FnOnce(OutriggerMuon) -> OutriggerMuon) -> Self {
        Self(self.0.nested("muon", |object| keys(OutriggerMuon(object)).0))
    }
    /// Gradient buckets that may be on their way at a time. Default 4.
    pub fn bucket_buffers(self, value: i64) -> Self {
        Self(self.0.with("bucket_buffers", value))
    }
    /// Threads for updates and reductions; 0: the context's number. Default 0.
    pub fn workers(self, value: i64) -> Self {
        Self(self.0.with("workers", value))
    }
    /// What divides a window's gradients, and when: gradient_accumulation_steps, as the outputs' gradients are scaled or at the step, or at the step the number of steps that the window had (with configured_at_step gradients on their way carry the loss scale alone; counted is for windows that the caller ends (otr_engine_set_boundary)). Default "configured".
    pub fn accumulation_divisor(self, value: OutriggerAccumulationDivisor) -> Self {
        Self(self.0.with("accumulation_divisor", value))
    }
    /// A parameter without a gradient on any rank: left alone, or updated with zero (skip is PyTorch's meaning, zero is DeepSpeed's: the moments decay). Default "skip".
    pub fn unused_parameters(self, value: OutriggerUnusedParameters) -> Self {
        Self(self.0.with("unused_parameters", value))
    }
    /// Rank 0's initial values win, and must equal everyone's (verify), or are sent only where a rank gave others (compare) (with compare every rank keeps a copy of the values given at declaration until commit, 4 bytes an element). Default "rank0".
    pub fn initial_values(self, value: OutriggerInitialValues) -> Self {
        Self(self.0.with("initial_values", value))
    }
    /// Initial values are rounded to the compute dtype before the master weights take them (false: a float32 or split master begins with the float32 values given; true is DeepSpeed's way, whose masters begin with those of a 16-bit module). Default false.
    pub fn round_initial_values(self, value: bool) -> Self {
        Self(self.0.with("round_initial_values", value))
    }
    /// Largest dynamic loss scale (default: 2^126; matters where the loss is scaled).
    pub fn max_loss_scale(self, value: f64) -> Self {
        Self(self.0.with("max_loss_scale", value))
    }
    /// Keys left to the host framework that it acts on, by their paths (the warning of what nobody acts on leaves them out). Default \[\].
    pub fn host_keys(self, value: &[&str]) -> Self {
        Self(self.0.with("host_keys", value))
    }
    /// Ranks that share memory have one copy of the published parameters; false: each its own (false is for hosts that write into parameters in place; at stage 3 acquire is then collective). Default true.
    pub fn share_parameters(self, value: bool) -> Self {
        Self(self.0.with("share_parameters", value))
    }
}

/// `outrigger.states`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutriggerStates(pub(super) Object);

impl OutriggerStates {
    /// `master`: sets keys in it.
    pub fn master(self, keys: impl FnOnce(OutriggerStatesMaster) -> OutriggerStatesMaster) -> Self {
        Self(self.0.nested("master", |object| keys(OutriggerStatesMaster(object)).0))
    }
    /// `exp_avg`: sets keys in it.
    pub fn exp_avg(self, keys: impl FnOnce(OutriggerStatesExpAvg) -> OutriggerStatesExpAvg) -> Self {
        Self(self.0.nested("exp_avg", |object| keys(OutriggerStatesExpAvg(object)).0))
    }
    /// `exp_avg_sq`: sets keys in it.
    pub fn exp_avg_sq(self, keys: impl FnOnce(OutriggerStatesExpAvgSq) -> OutriggerStatesExpAvgSq) -> Self {
        Self(self.0.nested("exp_avg_sq", |object| keys(OutriggerStatesExpAvgSq(object)).0))
    }
}

/// `outrigger.states.master`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutriggerStatesMaster(pub(super) Object);

impl OutriggerStatesMaster {
    /// Storage format; split: 16 bits beside the published bfloat16, together a float32 (default: what the bf16 or fp16 section asks for, else float32; a contradiction with it is an error).
    pub fn format(self, value: MasterFormat) -> Self {
        Self(self.0.with("format", value))
    }
    /// Rounding of bfloat16 stores (default: nearest where a DeepSpeed key asks for bfloat16, stochastic where this section does; float16 is rounded to nearest only, split and float32 lose nothing).
    pub fn rounding(self, value: Rounding) -> Self {
        Self(self.0.with("rounding", value))
    }
}

/// `outrigger.states.exp_avg`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutriggerStatesExpAvg(pub(super) Object);

impl OutriggerStatesExpAvg {
    /// Storage format; block8: 256 elements of 8 bits with a scale of their own; float16 is never legal (default: what the bf16 or fp16 section asks for, else float32; a contradiction with it is an error).
    pub fn format(self, value: MomentFormat) -> Self {
        Self(self.0.with("format", value))
    }
    /// Rounding of bfloat16 and block8 stores (default: nearest where a DeepSpeed key asks for bfloat16, stochastic where this section does; float16 is rounded to nearest only, split and float32 lose nothing).
    pub fn rounding(self, value: Rounding) -> Self {
        Self(self.0.with("rounding", value))
    }
}

/// `outrigger.states.exp_avg_sq`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutriggerStatesExpAvgSq(pub(super) Object);

impl OutriggerStatesExpAvgSq {
    /// Storage format; block8: 256 elements of 8 bits with a scale of their own; float16 is never legal (default: what the bf16 or fp16 section asks for, else float32; a contradiction with it is an error).
    pub fn format(self, value: MomentFormat) -> Self {
        Self(self.0.with("format", value))
    }
    /// Rounding of bfloat16 and block8 stores (default: nearest where a DeepSpeed key asks for bfloat16, stochastic where this section does; float16 is rounded to nearest only, split and float32 lose nothing).
    pub fn rounding(self, value: Rounding) -> Self {
        Self(self.0.with("rounding", value))
    }
}

/// `outrigger.skip_outlier_norms`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutriggerSkipOutlierNorms(pub(super) Object);

impl OutriggerSkipOutlierNorms {
    /// How many of the last norms to compare with; 0: no step is left out (compared once half as many were seen; norms of steps left out are among them). Default 0.
    pub fn window(self, value: i64) -> Self {
        Self(self.0.with("window", value))
    }
    /// A norm is left out beyond the mean and so many standard deviations. Default 6.0.
    pub fn deviations(self, value: f64) -> Self {
        Self(self.0.with("deviations", value))
    }
}

/// `outrigger.mesh`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutriggerMesh(pub(super) Object);

impl OutriggerMesh {
    /// Consecutive ranks over which a group cuts what the stage cuts; 0: all ranks (a divisor of the number of ranks; a group's ranks hold more, and gather from each other only; sums go over all groups). Default 0.
    pub fn shard(self, value: i64) -> Self {
        Self(self.0.with("shard", value))
    }
    /// Over which ranks the stage cuts gradients and states: those of a group, or all ("all": only parameters are cut over a group; a step gathers them across groups). Default "group".
    pub fn states(self, value: MeshStates) -> Self {
        Self(self.0.with("states", value))
    }
}

/// `outrigger.checkpoint`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutriggerCheckpoint(pub(super) Object);

impl OutriggerCheckpoint {
    /// Reserve memory for the copies that asynchronous saves write (as much as a rank's masters and moments; then it is part of the estimate and of commit's check; else the first asynchronous save takes it). Default false.
    pub fn asynchronous(self, value: bool) -> Self {
        Self(self.0.with("asynchronous", value))
    }
}

/// `outrigger.host_memory`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutriggerHostMemory(pub(super) Object);

impl OutriggerHostMemory {
    /// Page-locks it, so that copies run beside the host; prefer: go on where that is refused (default: prefer, but off where zero_optimization.offload_optimizer.pin_memory is false; a CPU engine has no such memory).
    pub fn pin(self, value: HostMemoryPin) -> Self {
        Self(self.0.with("pin", value))
    }
}

/// `outrigger.exchange`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutriggerExchange(pub(super) Object);

impl OutriggerExchange {
    /// By way of the host and its communicator, or device to device by NCCL (nccl: sums of gradients on devices, and published parameters at stages 1 and 2; CUDA devices, one a rank, and a communicator of one level). Default "host".
    pub fn backend(self, value: ExchangeBackend) -> Self {
        Self(self.0.with("backend", value))
    }
    /// Sums in rank order, with the bits of every other communicator, or by NCCL in its own order and the gradients' precision (nccl needs the backend nccl; docs/contract.md says what it promises). Default "ranked".
    pub fn reduction(self, value: ExchangeReduction) -> Self {
        Self(self.0.with("reduction", value))
    }
}

/// `outrigger.muon`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutriggerMuon(pub(super) Object);

impl OutriggerMuon {
    /// A parameter whose name contains one of these, in any case, is no matrix (AdamW updates it, as it does those of fewer than two dimensions; dimensions after the first count as one; the default is DeepSpeed's). Default \["embed", "lm_head"\].
    pub fn adam_parameters(self, value: &[&str]) -> Self {
        Self(self.0.with("adam_parameters", value))
    }
}

/// `activation_checkpointing`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActivationCheckpointing(pub(super) Object);

impl ActivationCheckpointing {
    /// Split activations over ranks; left to the host framework. Default false.
    pub fn partition_activations(self, value: bool) -> Self {
        Self(self.0.with("partition_activations", value))
    }
    /// Keep activations in host memory; left to the host framework. Default false.
    pub fn cpu_checkpointing(self, value: bool) -> Self {
        Self(self.0.with("cpu_checkpointing", value))
    }
    /// Activations side by side; left to the host framework. Default false.
    pub fn contiguous_memory_optimization(self, value: bool) -> Self {
        Self(self.0.with("contiguous_memory_optimization", value))
    }
    /// Synchronise at boundaries; left to the host framework. Default false.
    pub fn synchronize_checkpoint_boundary(self, value: bool) -> Self {
        Self(self.0.with("synchronize_checkpoint_boundary", value))
    }
    /// Time recomputation; left to the host framework. Default false.
    pub fn profile(self, value: bool) -> Self {
        Self(self.0.with("profile", value))
    }
    /// Number of checkpoints; left to the host framework.
    pub fn number_checkpoints(self, value: i64) -> Self {
        Self(self.0.with("number_checkpoints", value))
    }
}

/// `checkpoint`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint(pub(super) Object);

impl Checkpoint {
    /// Compare tags over ranks; left to the host framework. Default "Warn".
    pub fn tag_validation(self, value: CheckpointTagValidation) -> Self {
        Self(self.0.with("tag_validation", value))
    }
    /// Load universal checkpoints (leave it false); not built yet. Default false.
    pub fn load_universal(self, value: bool) -> Self {
        Self(self.0.with("load_universal", value))
    }
    /// Files on each node; left to the host framework. Default false.
    pub fn use_node_local_storage(self, value: bool) -> Self {
        Self(self.0.with("use_node_local_storage", value))
    }
    /// `parallel_write`: sets keys in it.
    pub fn parallel_write(self, keys: impl FnOnce(CheckpointParallelWrite) -> CheckpointParallelWrite) -> Self {
        Self(self.0.nested("parallel_write", |object| keys(CheckpointParallelWrite(object)).0))
    }
}

/// `checkpoint.parallel_write`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointParallelWrite(pub(super) Object);

impl CheckpointParallelWrite {
    /// Pipeline stages write side by side; left to the host framework. Default false.
    pub fn pipeline_stage(self, value: bool) -> Self {
        Self(self.0.with("pipeline_stage", value))
    }
}

/// `aio`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aio(pub(super) Object);

impl Aio {
    /// Bytes of a request; without effect here. Default 1048576.
    pub fn block_size(self, value: i64) -> Self {
        Self(self.0.with("block_size", value))
    }
    /// Requests under way; without effect here. Default 8.
    pub fn queue_depth(self, value: i64) -> Self {
        Self(self.0.with("queue_depth", value))
    }
    /// Threads of a request; without effect here. Default 1.
    pub fn intra_op_parallelism(self, value: i64) -> Self {
        Self(self.0.with("intra_op_parallelism", value))
    }
    /// Older form of intra_op_parallelism; without effect here. Default 1.
    pub fn thread_count(self, value: i64) -> Self {
        Self(self.0.with("thread_count", value))
    }
    /// Submit one by one; without effect here. Default false.
    pub fn single_submit(self, value: bool) -> Self {
        Self(self.0.with("single_submit", value))
    }
    /// Overlap submission and completion; without effect here. Default true.
    pub fn overlap_events(self, value: bool) -> Self {
        Self(self.0.with("overlap_events", value))
    }
    /// Direct access from a device (leave it false); not built yet. Default false.
    pub fn use_gds(self, value: bool) -> Self {
        Self(self.0.with("use_gds", value))
    }
}

/// `comms_logger`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommsLogger(pub(super) Object);

impl CommsLogger {
    /// Write it; left to the host framework. Default false.
    pub fn enabled(self, value: bool) -> Self {
        Self(self.0.with("enabled", value))
    }
    /// Write it at once; left to the host framework. Default false.
    pub fn verbose(self, value: bool) -> Self {
        Self(self.0.with("verbose", value))
    }
    /// All collectives; left to the host framework. Default true.
    pub fn prof_all(self, value: bool) -> Self {
        Self(self.0.with("prof_all", value))
    }
    /// Name the caller; left to the host framework. Default false.
    pub fn debug(self, value: bool) -> Self {
        Self(self.0.with("debug", value))
    }
    /// These collectives only; left to the host framework. Default \[\].
    pub fn prof_ops(self, value: &[&str]) -> Self {
        Self(self.0.with("prof_ops", value))
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GradientAllreduceOp {
    /// `mean`
    Mean,
    /// `sum`
    Sum,
}

impl Json for GradientAllreduceOp {
    fn write(&self, out: &mut String) {
        match self {
            Self::Mean => "mean".write(out),
            Self::Sum => "sum".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// `float32`
    Float32,
    /// `bfloat16`
    Bfloat16,
    /// `float16`
    Float16,
}

impl Json for Dtype {
    fn write(&self, out: &mut String) {
        match self {
            Self::Float32 => "float32".write(out),
            Self::Bfloat16 => "bfloat16".write(out),
            Self::Float16 => "float16".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UpdateRule {
    /// `Adam`
    Adam,
    /// `AdamW`
    AdamW,
    /// `Adagrad`
    Adagrad,
    /// `Lion`
    Lion,
    /// `SGD`
    SGD,
    /// `Lamb`
    Lamb,
    /// `Muon`
    Muon,
    /// `Host`
    Host,
    /// `OneBitAdam`
    OneBitAdam,
    /// `OneBitLamb`
    OneBitLamb,
    /// `ZeroOneAdam`
    ZeroOneAdam,
    /// `MuAdam`
    MuAdam,
    /// `MuAdamW`
    MuAdamW,
    /// `MuSGD`
    MuSGD,
}

impl Json for UpdateRule {
    fn write(&self, out: &mut String) {
        match self {
            Self::Adam => "Adam".write(out),
            Self::AdamW => "AdamW".write(out),
            Self::Adagrad => "Adagrad".write(out),
            Self::Lion => "Lion".write(out),
            Self::SGD => "SGD".write(out),
            Self::Lamb => "Lamb".write(out),
            Self::Muon => "Muon".write(out),
            Self::Host => "Host".write(out),
            Self::OneBitAdam => "OneBitAdam".write(out),
            Self::OneBitLamb => "OneBitLamb".write(out),
            Self::ZeroOneAdam => "ZeroOneAdam".write(out),
            Self::MuAdam => "MuAdam".write(out),
            Self::MuAdamW => "MuAdamW".write(out),
            Self::MuSGD => "MuSGD".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParamsAdjustLrFn {
    /// `original`
    Original,
    /// `match_rms_adamw`
    MatchRmsAdamw,
}

impl Json for ParamsAdjustLrFn {
    fn write(&self, out: &mut String) {
        match self {
            Self::Original => "original".write(out),
            Self::MatchRmsAdamw => "match_rms_adamw".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParamsNsMethod {
    /// `standard`
    Standard,
    /// `gram`
    Gram,
}

impl Json for ParamsNsMethod {
    fn write(&self, out: &mut String) {
        match self {
            Self::Standard => "standard".write(out),
            Self::Gram => "gram".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Schedule {
    /// `WarmupLR`
    WarmupLR,
    /// `WarmupDecayLR`
    WarmupDecayLR,
    /// `WarmupCosineLR`
    WarmupCosineLR,
    /// `OneCycle`
    OneCycle,
    /// `LRRangeTest`
    LRRangeTest,
    /// `Cosine`
    Cosine,
    /// `WSD`
    WSD,
}

impl Json for Schedule {
    fn write(&self, out: &mut String) {
        match self {
            Self::WarmupLR => "WarmupLR".write(out),
            Self::WarmupDecayLR => "WarmupDecayLR".write(out),
            Self::WarmupCosineLR => "WarmupCosineLR".write(out),
            Self::OneCycle => "OneCycle".write(out),
            Self::LRRangeTest => "LRRangeTest".write(out),
            Self::Cosine => "Cosine".write(out),
            Self::WSD => "WSD".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParamsWarmupType {
    /// `log`
    Log,
    /// `linear`
    Linear,
}

impl Json for ParamsWarmupType {
    fn write(&self, out: &mut String) {
        match self {
            Self::Log => "log".write(out),
            Self::Linear => "linear".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParamsDecayType {
    /// `linear`
    Linear,
    /// `cosine`
    Cosine,
    /// `sqrt`
    Sqrt,
}

impl Json for ParamsDecayType {
    fn write(&self, out: &mut String) {
        match self {
            Self::Linear => "linear".write(out),
            Self::Cosine => "cosine".write(out),
            Self::Sqrt => "sqrt".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OffloadDevice {
    /// `none`
    None,
    /// `cpu`
    Cpu,
    /// `nvme`
    Nvme,
}

impl Json for OffloadDevice {
    fn write(&self, out: &mut String) {
        match self {
            Self::None => "none".write(out),
            Self::Cpu => "cpu".write(out),
            Self::Nvme => "nvme".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MasterFormat {
    /// `float32`
    Float32,
    /// `bfloat16`
    Bfloat16,
    /// `float16`
    Float16,
    /// `split`
    Split,
}

impl Json for MasterFormat {
    fn write(&self, out: &mut String) {
        match self {
            Self::Float32 => "float32".write(out),
            Self::Bfloat16 => "bfloat16".write(out),
            Self::Float16 => "float16".write(out),
            Self::Split => "split".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rounding {
    /// `nearest`
    Nearest,
    /// `stochastic`
    Stochastic,
}

impl Json for Rounding {
    fn write(&self, out: &mut String) {
        match self {
            Self::Nearest => "nearest".write(out),
            Self::Stochastic => "stochastic".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MomentFormat {
    /// `float32`
    Float32,
    /// `bfloat16`
    Bfloat16,
    /// `float16`
    Float16,
    /// `block8`
    Block8,
}

impl Json for MomentFormat {
    fn write(&self, out: &mut String) {
        match self {
            Self::Float32 => "float32".write(out),
            Self::Bfloat16 => "bfloat16".write(out),
            Self::Float16 => "float16".write(out),
            Self::Block8 => "block8".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutriggerReductionOrder {
    /// `micro_step`
    MicroStep,
    /// `boundary`
    Boundary,
}

impl Json for OutriggerReductionOrder {
    fn write(&self, out: &mut String) {
        match self {
            Self::MicroStep => "micro_step".write(out),
            Self::Boundary => "boundary".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MeshStates {
    /// `group`
    Group,
    /// `all`
    All,
}

impl Json for MeshStates {
    fn write(&self, out: &mut String) {
        match self {
            Self::Group => "group".write(out),
            Self::All => "all".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostMemoryPin {
    /// `require`
    Require,
    /// `prefer`
    Prefer,
    /// `off`
    Off,
}

impl Json for HostMemoryPin {
    fn write(&self, out: &mut String) {
        match self {
            Self::Require => "require".write(out),
            Self::Prefer => "prefer".write(out),
            Self::Off => "off".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExchangeBackend {
    /// `host`
    Host,
    /// `nccl`
    Nccl,
}

impl Json for ExchangeBackend {
    fn write(&self, out: &mut String) {
        match self {
            Self::Host => "host".write(out),
            Self::Nccl => "nccl".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExchangeReduction {
    /// `ranked`
    Ranked,
    /// `nccl`
    Nccl,
}

impl Json for ExchangeReduction {
    fn write(&self, out: &mut String) {
        match self {
            Self::Ranked => "ranked".write(out),
            Self::Nccl => "nccl".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutriggerAccumulationDivisor {
    /// `configured`
    Configured,
    /// `configured_at_step`
    ConfiguredAtStep,
    /// `counted`
    Counted,
}

impl Json for OutriggerAccumulationDivisor {
    fn write(&self, out: &mut String) {
        match self {
            Self::Configured => "configured".write(out),
            Self::ConfiguredAtStep => "configured_at_step".write(out),
            Self::Counted => "counted".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutriggerUnusedParameters {
    /// `skip`
    Skip,
    /// `zero`
    Zero,
}

impl Json for OutriggerUnusedParameters {
    fn write(&self, out: &mut String) {
        match self {
            Self::Skip => "skip".write(out),
            Self::Zero => "zero".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutriggerInitialValues {
    /// `rank0`
    Rank0,
    /// `verify`
    Verify,
    /// `compare`
    Compare,
}

impl Json for OutriggerInitialValues {
    fn write(&self, out: &mut String) {
        match self {
            Self::Rank0 => "rank0".write(out),
            Self::Verify => "verify".write(out),
            Self::Compare => "compare".write(out),
        }
    }
}

/// What a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CheckpointTagValidation {
    /// `Ignore`
    Ignore,
    /// `Warn`
    Warn,
    /// `Fail`
    Fail,
}

impl Json for CheckpointTagValidation {
    fn write(&self, out: &mut String) {
        match self {
            Self::Ignore => "Ignore".write(out),
            Self::Warn => "Warn".write(out),
            Self::Fail => "Fail".write(out),
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.0.write(&mut text);
        f.write_str(&text)
    }
}
