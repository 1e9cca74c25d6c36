// SPDX-License-Identifier: Apache-2.0
using System;
using System.Collections.Generic;
using System.Linq;
using Outrigger.Lowlevel;

namespace Outrigger
{
    /// <summary>A line of the library's log.</summary>
    public sealed class LogLine
    {
        /// <summary>One of Native.LOG_….</summary>
        public int Level { get; }

        public string Text { get; }

        internal LogLine(int level, string text)
        {
            Level = level;
            Text = text;
        }
    }

    /// <summary>What groups and engines are made of. Any thread; its children go on after Dispose.</summary>
    public sealed class Context : Handle<Lowlevel.Context>
    {
        /// <summary>workers: threads for each engine's updates; 0: this process's share of the cores. logLevel: lines up to it wait for TakeLog,
        /// Native.LOG_INFO for example; 0: none.</summary>
        public Context(int workers = 0, int logLevel = 0) : base(Create(workers, logLevel))
        {
        }

        /// <summary>The first line that waits, of any context; null: there is none. Any thread.</summary>
        public static LogLine TakeLog()
        {
            using (Lowlevel.LogLine line = Native.log_take())
            {
                return line == null ? null : new LogLine(line.level(), line.text());
            }
        }

        static Lowlevel.Context Create(int workers, int logLevel)
        {
            if (Native.abi_version() != Native.ABI_VERSION)
            {
                throw new DllNotFoundException("liboutrigger has the ABI " + Native.abi_version() + ", and this package was built for " + Native.ABI_VERSION);
            }
            using (var options = new ContextOptions { workers = workers })
            {
                if (logLevel != 0)
                {
                    options.keep_log(logLevel);
                }
                return Native.context_create(options);
            }
        }
    }

    /// <summary>A group of ranks. One thread at a time uses it. Collective calls throw OutriggerException.</summary>
    public sealed class Comm : Handle<Lowlevel.Comm>
    {
        Comm(Lowlevel.Comm made) : base(made)
        {
        }

        /// <summary>A group of one. Local.</summary>
        public static Comm AloneIn(Context context) => new Comm(context.Any(Native.comm_create_self));

        /// <summary>The processes of the launcher; without one, a group of one. Collective.</summary>
        public static Comm FromEnv(Context context) => new Comm(context.Any(made => Native.comm_from_env(made, null)));

        /// <summary>Groups of this process, each for a thread of its own. Local.</summary>
        public static Comm[] Threads(Context context, int size)
        {
            using (Comms made = context.Any(from => Native.comm_create_threads(from, size, null)))
            {
                return Enumerable.Range(0, size).Select(rank => new Comm(made.take(rank))).ToArray();
            }
        }

        public int Rank => Any(Native.comm_rank);

        public int Size => Any(Native.comm_size);

        /// <summary>Returns when every rank has called it. Collective.</summary>
        public void Barrier() => Alone(Native.comm_barrier);

        /// <summary>Copies rank root's elements to all. Collective.</summary>
        public void Broadcast(Tensor tensor, int root) => Alone(comm => Native.comm_broadcast(comm, tensor.Made, root));

        /// <summary>all receives every rank's elements in rank order. Collective. E_SHAPE.</summary>
        public void AllGather(Tensor mine, Tensor all) => Alone(comm => Native.comm_all_gather(comm, mine.Made, all.Made));

        /// <summary>Replaces each value by its sum over the ranks, added in rank order. Collective.</summary>
        public void AllReduceSum(double[] values)
        {
            var copy = new Tensor("float64", values.Length);
            for (int i = 0; i < values.Length; i++)
            {
                copy[i] = values[i];
            }
            Alone(comm => Native.comm_all_reduce_sum(comm, copy.Made));
            for (int i = 0; i < values.Length; i++)
            {
                values[i] = copy[i];
            }
        }
    }

    /// <summary>One backward pass. Disposed before End, it is given up: the next step discards the window.</summary>
    public sealed class Pass : Handle<Lowlevel.Pass>
    {
        readonly Dictionary<long, Tensor> slots = new Dictionary<long, Tensor>();
        readonly List<Tensor> lent = new List<Tensor>();

        internal Pass(Lowlevel.Pass made) : base(made)
        {
        }

        /// <summary>The factor that output gradients carry.</summary>
        public double Scale => Any(Native.pass_get_scale);

        /// <summary>The scaled gradient of an output: float32, writable, until the pass is disposed.</summary>
        public Tensor OutputGrad(long index = 0)
        {
            lock (slots) // a Dispose of another thread comes before or after
            {
                var grad = new Tensor(Any(pass => Native.pass_get_output_grad(pass, index)), this);
                lent.Add(grad);
                return grad;
            }
        }

        /// <summary>What its gradients carry, for BeginPass of the engine that made their inputs.</summary>
        public CallInfo Tag()
        {
            var info = new CallInfo();
            Any(pass => Native.pass_get_tag(pass, info));
            return info;
        }

        /// <summary>result = grad without the factors that it carries. E_SHAPE, E_DTYPE.</summary>
        public void Unscale(Tensor grad, Tensor result) => Any(pass => Native.pass_unscale(pass, grad.Made, result.Made));

        /// <summary>Memory for a parameter's gradient: its shape, the compute dtype, uninitialised; AddGrad hands it back. E_STATE.</summary>
        public Tensor Slot(long id)
        {
            lock (slots)
            {
                var slot = new Tensor(Any(pass => Native.pass_get_slot(pass, id)), this);
                slots[id] = slot;
                return slot;
            }
        }

        /// <summary>Adds a gradient: its slot, or any tensor of the parameter's shape and a float dtype, which is copied. Any thread.</summary>
        public void AddGrad(long id, Tensor grad)
        {
            Any(pass => Native.pass_add_grad(pass, id, grad.Made, null));
            lock (slots)
            {
                if (slots.TryGetValue(id, out Tensor slot) && slot == grad)
                {
                    slots.Remove(id);
                    grad.Dispose();
                }
            }
        }

        /// <summary>Parameters without a gradient count as zero on this rank. Local.</summary>
        public void End()
        {
            lock (slots)
            {
                CloseSlots();
                Alone(Native.pass_end);
            }
        }

        void CloseSlots()
        {
            foreach (Tensor slot in slots.Values)
            {
                slot.Dispose();
            }
            slots.Clear();
        }

        public override void Dispose()
        {
            lock (slots)
            {
                CloseSlots();
                lent.ForEach(each => each.Dispose());
                lent.Clear();
                base.Dispose();
            }
        }
    }

    /// <summary>Weights that Engine.Acquire made readable; read-only, until Dispose or the step that ends the window.</summary>
    public sealed class Acquired : IDisposable
    {
        readonly Engine engine;
        readonly long[] ids;
        readonly CallInfo info;
        readonly Tensor[] tensors;

        internal Acquired(Engine engine, long[] ids, CallInfo info, Tensors made)
        {
            this.engine = engine;
            this.ids = ids;
            this.info = info;
            using (made)
            {
                tensors = ids.Select((id, i) => new Tensor(made.view(i), engine)).ToArray();
            }
        }

        public Tensor this[int index] => tensors[index];

        internal void CloseTensors()
        {
            foreach (Tensor tensor in tensors)
            {
                tensor.Dispose();
            }
        }

        /// <summary>Releases the weights. Local. Doing it again is a no-op.</summary>
        public void Dispose()
        {
            CloseTensors();
            engine.Release(this, ids, info);
        }
    }

    /// <summary>One model's training state on this rank: parameters, commit, then passes and steps. One thread at a time uses it. Every method may
    /// throw OutriggerException.</summary>
    public sealed class Engine : Handle<Lowlevel.Engine>
    {
        readonly HashSet<Acquired> acquired = new HashSet<Acquired>();

        /// <summary>config: DeepSpeed-compatible JSON; null: float32, stage 0, AdamW. E_CONFIG.</summary>
        public Engine(Comm comm, string config) : base(comm.Alone(made => Native.engine_create(made, config)))
        {
        }

        /// <summary>Declares a parameter and returns its id; initial: copied, null for an alias. The same ones on every rank. E_DUPLICATE.</summary>
        public long AddParameter(string name, Tensor initial, ParamOptions options = null) =>
            Alone(engine => Native.engine_add_parameter(engine, name, initial?.Made, options));

        /// <summary>A parameter that is 0 until SetInitial.</summary>
        public long DeclareParameter(string name, params long[] shape) => Alone(engine => Native.engine_declare_parameter(engine, name, shape, null));

        /// <summary>Compares, allocates, distributes rank 0's values. Collective.</summary>
        public void Commit() => Alone(Native.engine_commit);

        /// <summary>First values, between Commit and the first pass. Collective.</summary>
        public void SetInitial(long[] ids, params Tensor[] values)
        {
            using (Tensors list = Tensor.List(values))
            {
                Alone(engine => Native.engine_set_initial(engine, ids, list));
            }
            GC.KeepAlive(values);
        }

        /// <summary>Waits for all ranks and ends the engine's collectives. Collective.</summary>
        public void FinalizeRanks()
        {
            TakeBack();
            Alone(Native.engine_finalize);
        }

        /// <summary>Tells all ranks that this engine cannot go on. Local, any thread.</summary>
        public void Abort(string reason) => Any(engine => Native.engine_abort(engine, reason));

        /// <summary>Passes that are not given back. Any thread.</summary>
        public long LiveChildren => Any(Native.engine_live_children);

        public long ParameterId(string name) => Any(engine => Native.engine_parameter_id(engine, name));

        public string ParameterName(long id) => Any(engine => Native.engine_parameter_name(engine, id));

        public long[] ParameterShape(long id)
        {
            using (Lowlevel.Tensor shape = Any(engine => Native.engine_parameter_shape(engine, id)))
            {
                return Tensor.Extents(shape);
            }
        }

        static CallInfo Info(bool isFloat32) => isFloat32 ? new CallInfo { flags = (uint)Native.ACQUIRE_FLOAT32 } : null;

        /// <summary>Makes parameters readable in the compute dtype, or as float32 copies. Local where ranks share memory.</summary>
        public Acquired Acquire(bool isFloat32, params long[] ids)
        {
            CallInfo info = Info(isFloat32);
            lock (acquired) // a Dispose of another thread comes before or after
            {
                var shown = new Acquired(this, ids, info, Alone(engine => Native.engine_acquire(engine, ids, info)));
                acquired.Add(shown);
                return shown;
            }
        }

        public void Prefetch(bool isFloat32, params long[] ids) => Alone(engine => Native.engine_prefetch(engine, ids, Info(isFloat32)));

        internal void Release(Acquired shown, long[] ids, CallInfo info)
        {
            bool isMine;
            lock (acquired)
            {
                isMine = acquired.Remove(shown);
            }
            if (isMine)
            {
                Alone(engine => Native.engine_release(engine, ids, info));
            }
        }

        void TakeBack()
        {
            lock (acquired)
            {
                foreach (Acquired each in acquired)
                {
                    each.CloseTensors();
                }
                acquired.Clear();
            }
        }

        /// <summary>Copies a value (Native.VALUE_…) of the whole parameter into a new float32 tensor. Collective. E_NOT_FOUND.</summary>
        public Tensor Read(long id, int value)
        {
            var result = new Tensor("float32", ParameterShape(id));
            Read(id, value, result);
            return result;
        }

        /// <summary>The same into a tensor of its shape and any float dtype.</summary>
        public void Read(long id, int value, Tensor result) => Alone(engine => Native.engine_parameter_read(engine, id, value, result.Made));

        /// <summary>Sets a value of the whole parameter from rank 0's tensor. Collective.</summary>
        public void Write(long id, int value, Tensor source) => Alone(engine => Native.engine_parameter_write(engine, id, value, source.Made));

        /// <summary>Sets "lr" and its like of a group (null: of all). Local.</summary>
        public void SetGroupValue(string group, string name, double value) => Alone(engine => Native.engine_set_group_value(engine, group, name, value));

        /// <summary>The ledger: resident bytes by purpose. Local.</summary>
        public List<KeyValuePair<string, long>> Memory()
        {
            using (MemoryEntries made = Alone(Native.engine_memory))
            {
                var all = new List<KeyValuePair<string, long>>();
                for (long i = 0; i < made.size(); i++)
                {
                    all.Add(new KeyValuePair<string, long>(made.purpose(i), made.resident_bytes(i)));
                }
                return all;
            }
        }

        /// <summary>A pass over gradients of the outputs, of any shapes, which are copied and scaled. Local.</summary>
        public Pass BeginPass(params Tensor[] outputGrads) => BeginPass(null, outputGrads);

        /// <summary>The same with another pass's tag.</summary>
        public Pass BeginPass(CallInfo tag, Tensor[] outputGrads)
        {
            using (Tensors list = Tensor.List(outputGrads))
            {
                var begun = new Pass(Alone(engine => Native.pass_begin(engine, list, tag)));
                GC.KeepAlive(outputGrads);
                return begun;
            }
        }

        /// <summary>One whole pass; what backward throws gives the pass up, and reaches the caller.</summary>
        public void Backward(Tensor[] outputGrads, Action<Pass> backward, CallInfo tag = null)
        {
            using (Pass pass = BeginPass(tag, outputGrads))
            {
                backward(pass);
                pass.End();
            }
        }

        /// <summary>Ends a micro-batch; the last one of a window updates. Its outcome is one of Native.STEP_…. Collective.</summary>
        public StepReport Step() => Told(Alone(Native.engine_step));

        /// <summary>Begins the step on a thread of the library. Local.</summary>
        public void BeginStep() => Alone(Native.engine_step_begin);

        /// <summary>The report of the step that was begun last. Negative: waits for the end.</summary>
        public StepReport Report(double timeoutSeconds) => Told(Alone(engine => Native.engine_report(engine, timeoutSeconds)));

        StepReport Told(StepReport report)
        {
            if (report.outcome == Native.STEP_APPLIED || report.outcome == Native.STEP_SKIPPED)
            {
                TakeBack();
            }
            return report;
        }

        /// <summary>One step of several engines, all or none. Collective over all of them.</summary>
        public static StepReport[] StepMany(params Engine[] engines)
        {
            using (var list = new Engines())
            {
                return StepFrom(engines, list, 0);
            }
        }

        /// <summary>Inside of a call on each engine from index on.</summary>
        static StepReport[] StepFrom(Engine[] engines, Engines list, int index)
        {
            if (index < engines.Length)
            {
                return engines[index].Alone(made =>
                {
                    list.add(made);
                    return StepFrom(engines, list, index + 1);
                });
            }
            using (StepReports made = Native.step_many(list, null))
            {
                return engines.Select((engine, i) => engine.Told(made.copy(i))).ToArray();
            }
        }

        /// <summary>Saves the training as directory/tag. Between two windows. Collective.</summary>
        public void Save(string directory, string tag) => Alone(engine => Native.engine_save(engine, directory, tag, null));

        /// <summary>Goes on from a checkpoint; tag null: the last one. Collective.</summary>
        public void Load(string directory, string tag) => Alone(engine => Native.engine_load(engine, directory, tag, null));

        public override void Dispose()
        {
            lock (acquired)
            {
                TakeBack();
                base.Dispose();
            }
        }
    }
}
