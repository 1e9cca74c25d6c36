// SPDX-License-Identifier: Apache-2.0
// The scenario (tests/bindings/scenario/README.md) in C#:   mono Scenario.exe CONFIG.json OUTPUT      writes OUTPUT.<rank>
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using Outrigger;
using Outrigger.Lowlevel;
using Comm = Outrigger.Comm;
using Context = Outrigger.Context;
using Engine = Outrigger.Engine;
using Optimizer = Outrigger.Optimizer;
using Pass = Outrigger.Pass;
using Shard = Outrigger.Shard;
using Tensor = Outrigger.Tensor;

static class Scenario
{
    const int Embed = 0, Bias = 1, Empty = 2, Frozen = 3, Head = 4, Scale = 5, Wide = 6;

    static readonly (string Name, long[] Shape)[] Parameters =
    {
        ("embed.weight", new long[] { 5, 3 }), ("linear.bias", new long[] { 7 }), ("norm.empty", new long[] { 0, 4 }),
        ("frozen.table", new long[] { 2, 3 }), ("head.weight", new long[] { 5, 3 }), ("scale", new long[0]), ("wide.weight", new long[] { 3, 101 }),
        ("unused.gain", new long[] { 4 }),
    };

    static StreamWriter output;
    static int rank, world;

    // ---- Numbers as their exact bit patterns ----

    static void Line(params object[] words) => output.Write(string.Join(" ", words) + "\n");

    static string Bits(double value) => BitConverter.DoubleToInt64Bits(value).ToString("x16");

    static string Shape(long[] extents) => "[" + string.Join(",", extents) + "]";

    static void Show(string words, Tensor tensor)
    {
        string form = tensor.DType.EndsWith("float16") ? "x4" : "x8";
        Line(new object[] { words, Shape(tensor.Shape) }.Concat(Enumerable.Range(0, (int)tensor.Elements).Select(i => tensor.Bits(i).ToString(form))).ToArray());
    }

    static void Show(string words, StepReport r) =>
        Line(words, "outcome", r.outcome, "reason", r.reason, "nonfinite_rank", r.nonfinite_rank, "nonfinite_param", r.nonfinite_param, "nonfinite_count",
            r.nonfinite_count, "micro_steps", r.micro_steps, "applied_steps", r.applied_steps, "skipped_steps", r.skipped_steps, "grad_norm",
            Bits(r.grad_norm), "clip_coefficient", Bits(r.clip_coefficient), "loss_scale", Bits(r.loss_scale), "lr", Bits(r.lr), "updates", r.updates,
            "vanished", r.vanished);

    static Tensor Made(string dtype, long[] shape, Func<int, double> values)
    {
        var tensor = new Tensor(dtype, shape);
        for (int i = 0; i < tensor.Elements; i++)
        {
            tensor[i] = values(i);
        }
        return tensor;
    }

    static Tensor Made(long[] shape, Func<int, double> values) => Made("float32", shape, values);

    static void Collectives(Comm comm)
    {
        double[] sums = { rank + 0.5, 2 };
        comm.AllReduceSum(sums);
        Line("all_reduce", Bits(sums[0]), Bits(sums[1]));
        var all = new Tensor("uint8", world);
        comm.AllGather(new Tensor("uint8", 1).Fill(10 + rank), all);
        Line("all_gather", string.Join(" ", Enumerable.Range(0, world).Select(r => all.Bits(r))));
        Tensor token = Tensor.Scalar(rank == world - 1 ? 1 : 0);
        comm.Broadcast(token, world - 1);
        comm.Barrier();
        Line("broadcast", token.Bits(0).ToString("x8"));
    }

    static void AddParameters(Engine engine)
    {
        for (int d = 0; d < Parameters.Length; d++)
        {
            int number = d;
            Tensor initial = Made(Parameters[d].Shape, i => ((7 * i + 3 * number) % 33 - 16) / 16.0 + rank);
            var options = new ParamOptions();
            options.contributions = d == Bias ? 2 : 1;
            options.trainable = d == Frozen ? 0 : 1;
            options.alias_of = d == Head ? Embed : -1;
            long id = engine.AddParameter(Parameters[d].Name, d == Head ? null : initial, options);
            Line("parameter", id, Parameters[d].Name, Shape(engine.ParameterShape(id)));
        }
    }

    static void PrintAcquired(Engine engine, bool isFloat32)
    {
        engine.Prefetch(isFloat32, Embed, Wide);
        using (Acquired weights = engine.Acquire(isFloat32, Embed, Wide))
        {
            Show("acquired " + Embed, weights[0]);
            Show("acquired " + Wide, weights[1]);
        }
    }

    static void AddBySlot(Pass pass, int id, float[] gradient) => pass.AddGrad(id, pass.Slot(id).Put(gradient));

    static void AddByTensor(Pass pass, int id, float[] gradient) => pass.AddGrad(id, Tensor.Of(gradient, Parameters[id].Shape));

    /// <summary>The toy model's backward: parameter gradients from the scaled gradients of the outputs.</summary>
    static void Backward(Pass pass, int number)
    {
        float[] dy0 = pass.OutputGrad(0).Floats(), dy1 = pass.OutputGrad(1).Floats();
        float dl = pass.OutputGrad(2).Floats()[0], scale = dl;
        float[] embed = new float[15], head = new float[15], wide = new float[303];
        for (int k = 0; k < 15; k++)
        {
            for (int i = 0; i < 4; i++)
            {
                embed[k] += ((i + 2 * (k / 3)) % 5 - 2) / 2f * dy0[3 * i + k % 3];
            }
            head[k] = dl * dy0[3 * (k / 3 % 4) + k % 3];
        }
        AddBySlot(pass, Embed, embed);
        AddByTensor(pass, Head, head);
        if (rank == 0 || number % 2 == 0)
        {
            AddBySlot(pass, Bias, dy1.Take(7).ToArray());
            AddByTensor(pass, Bias, dy1.Skip(7).ToArray());
        }
        if (number % 2 == 0)
        {
            AddByTensor(pass, Empty, new float[0]);
        }
        foreach (float each in dy0)
        {
            scale += each;
        }
        AddByTensor(pass, Scale, new[] { scale });
        for (int i = 0; i < wide.Length; i++)
        {
            wide[i] = dl * dy0[3 * (i % 101 % 4) + i / 101];
        }
        if (number == 3 && rank == world - 1)
        {
            wide[101 + 7] = float.PositiveInfinity;
        }
        if (number % 2 == 0)
        {
            AddBySlot(pass, Wide, wide);
        }
        else
        {
            AddByTensor(pass, Wide, wide);
        }
    }

    static void RunPass(Engine engine, int number)
    {
        Tensor[] outputs =
        {
            Made(new long[] { 4, 3 }, i => ((i + rank + number) % 8 - 3) / 4.0),
            Made("float64", new long[] { 2, 7 }, i => ((3 * i + 2 * rank + number) % 8 - 4) / 4.0), Tensor.Scalar(1),
        };
        engine.Backward(outputs, pass =>
        {
            Line("pass", number, "scale", Bits(pass.Scale));
            for (int i = 0; i < 3; i++)
            {
                Show("pass " + number + " output " + i, pass.OutputGrad(i));
            }
            Backward(pass, number);
        });
        StepReport report;
        if (number % 2 == 0)
        {
            report = engine.Step();
        }
        else
        {
            engine.BeginStep();
            report = engine.Report(-1);
        }
        Show("step " + number, report);
        if (report.reason == Native.SKIP_NONFINITE)
        {
            Line("skipped for", engine.ParameterName(report.nonfinite_param), "of rank", report.nonfinite_rank);
        }
    }

    static void Attempt(Action call)
    {
        try
        {
            call();
            Line("no error");
        }
        catch (OutriggerException failure)
        {
            Line("error", failure.Status, failure.Text);
        }
    }

    static void WrongCalls(Engine engine)
    {
        var value = new Tensor("float32", 5, 3);
        Attempt(() => engine.ParameterId("embed.wieght"));
        Attempt(() => engine.AddParameter("late", value));
        Attempt(() => engine.SetGroupValue(null, "lr", -1));
        using (Pass pass = engine.BeginPass()) // nothing is added: no trace
        {
            Attempt(() => pass.AddGrad(Wide, value));
        }
    }

    static void PrintValues(Engine engine)
    {
        string[] names = { "master", "published", "exp_avg", "exp_avg_sq" };
        for (int d = 0; d < Parameters.Length; d++)
        {
            for (int value = 0; value < names.Length; value++)
            {
                string words = "value " + d + " " + names[value];
                try
                {
                    Show(words, engine.Read(d, value));
                }
                catch (OutriggerException failure) when (failure.Code == Native.E_NOT_FOUND)
                {
                    Line(words, "none");
                }
            }
        }
    }

    // ---- Two engines in a chain: h = front(x), y = back(h) ----

    static string Chained(int lossScale, string lr, int stage)
    {
        return "{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"fp16\"}, \"fp16\": {\"loss_scale\": " + lossScale
            + "}, \"gradient_clipping\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": " + lr + "}}, \"zero_optimization\": {\"stage\": "
            + stage + "}}";
    }

    static Engine MakeEngine(Comm comm, string name, string config)
    {
        var engine = new Engine(comm, config);
        long id = engine.DeclareParameter(name, 2, 2);
        engine.Commit();
        engine.SetInitial(new[] { id }, Tensor.Of(new[] { 0.5f, -1, 1, 0.25f }, 2, 2));
        return engine;
    }

    static void Chain(Comm comm)
    {
        using (Engine front = MakeEngine(comm, "front", Chained(4, "0.25", 0)), back = MakeEngine(comm, "back", Chained(64, "0.5", 2)))
        {
            for (int window = 0; window < 2; window++)
            {
                float[] dy = { 1, -0.5f, 0.25f, 2 };
                if (window == 1 && rank == world - 1)
                {
                    dy[2] = float.PositiveInfinity;
                }
                back.Backward(new[] { Tensor.Of(dy, 2, 2) }, pass =>
                {
                    Tensor atBack = pass.OutputGrad();
                    Show("chain back scaled", atBack);
                    Tensor dh = Made(new long[] { 2, 2 }, i => 2 * atBack[(i + 2) % 4]), plain = new Tensor("float32", 2, 2); // of the input
                    pass.Unscale(dh, plain);
                    Show("chain input gradient", plain);
                    CallInfo tag = pass.Tag();
                    Line("chain tag", Bits(tag.loss_scale), tag.accumulation, tag.ranks);
                    front.Backward(new[] { dh }, behind =>
                    {
                        Show("chain front scaled", behind.OutputGrad());
                        behind.AddGrad(0, behind.OutputGrad());
                    }, tag);
                    pass.AddGrad(0, atBack);
                });
                StepReport[] reports = Engine.StepMany(front, back);
                Show("chain front step", reports[0]);
                Show("chain back step", reports[1]);
            }
            foreach (Engine engine in new[] { front, back })
            {
                Finish(engine, "chain " + engine.ParameterName(0));
            }
        }
    }

    static void Finish(Engine engine, string name)
    {
        for (int value = Native.VALUE_MASTER; value <= Native.VALUE_EXP_AVG_SQ; value++)
        {
            Show(name + " value " + value, engine.Read(0, value));
        }
        engine.FinalizeRanks();
    }

    // ---- A training that is saved, and goes on at another stage and without offload ----

    static string Kept(string zero)
    {
        return "{\"zero_optimization\": " + zero + ", \"gradient_clipping\": 0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.125}}}";
    }

    // With a gradient that differs between windows and ranks.
    static void StepAlone(Engine engine, int window, string name)
    {
        float factor = (window + 1) * (2 * rank + 1);
        engine.Backward(new Tensor[0], pass => pass.AddGrad(0, Tensor.Of(new[] { factor, -0.5f * factor, 0.25f * factor, 2 * factor }, 2, 2)));
        Show(name + " step " + window, engine.Step());
    }

    static void SaveAndLoad(Comm comm, string directory)
    {
        using (Engine saved = MakeEngine(comm, "w", Kept("{\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}")))
        {
            StepAlone(saved, 0, "saved");
            StepAlone(saved, 1, "saved");
            saved.Save(directory, "two");
            StepAlone(saved, 2, "saved");
            Finish(saved, "saved");
        }
        using (Engine loaded = MakeEngine(comm, "w", Kept("{\"stage\": 3}")))
        {
            loaded.Load(directory, "two");
            StepAlone(loaded, 2, "loaded");
            Finish(loaded, "loaded");
        }
    }

    static void ShardAlone(Context context)
    {
        Tensor weights = Made(new long[] { 5 }, i => (i - 2) / 4.0), published = new Tensor("bfloat16", 5);
        using (var shard = new Shard(context, weights, Made(new long[] { 5 }, i => (3 - i) / 8.0), published))
        using (var optimizer = new Optimizer(context, "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}"))
        {
            optimizer.SetValue("lr", 0.25);
            Show("shard step", optimizer.Step(shard));
            Show("shard weights", weights);
            Show("shard published", published);
            for (int value = Native.VALUE_EXP_AVG; value <= Native.VALUE_EXP_AVG_SQ; value++)
            {
                Show("shard state " + value, shard.State(value));
            }
            Line("shard state_bytes", shard.StateBytes);
        }
    }

    static void Main(string[] arguments)
    {
        using (var context = new Context())
        using (Comm comm = Comm.FromEnv(context))
        using (output = new StreamWriter(arguments[1] + "." + comm.Rank))
        {
            (rank, world) = (comm.Rank, comm.Size);
            Line("rank", rank, "of", world);
            Collectives(comm);
            using (var engine = new Engine(comm, File.ReadAllText(arguments[0])))
            {
                AddParameters(engine);
                engine.Commit();
                PrintAcquired(engine, false);
                for (int number = 0; number < 6; number++) // three windows of two passes
                {
                    if (number == 4)
                    {
                        engine.SetGroupValue(null, "lr", 0.03125);
                    }
                    RunPass(engine, number);
                }
                WrongCalls(engine);
                PrintValues(engine);
                PrintAcquired(engine, false);
                PrintAcquired(engine, true);
                foreach (KeyValuePair<string, long> entry in engine.Memory())
                {
                    Line("memory", entry.Value, entry.Key);
                }
                Line("live_children", engine.LiveChildren);
                engine.FinalizeRanks();
            }
            Chain(comm);
            SaveAndLoad(comm, arguments[1] + ".saved");
            ShardAlone(context);
            Line("done");
        }
    }
}
