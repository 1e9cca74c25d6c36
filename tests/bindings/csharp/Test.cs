// SPDX-License-Identifier: Apache-2.0
// Wrong use is an exception with a text and harms nothing; what nobody holds is given back.   mono Test.exe, with ROUNDS set
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Threading;
using Outrigger;
using Outrigger.Lowlevel;
using Comm = Outrigger.Comm;
using Context = Outrigger.Context;
using Engine = Outrigger.Engine;
using LogLine = Outrigger.LogLine;
using Message = Outrigger.Message;
using Optimizer = Outrigger.Optimizer;
using Pass = Outrigger.Pass;
using Shard = Outrigger.Shard;
using Tensor = Outrigger.Tensor;

static class Test
{
    const string Sgd = "{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5}}}";
    static readonly Context context = new Context(1);
    static readonly Comm comm = Comm.AloneIn(context);

    static Engine One(out long id, params float[] values)
    {
        var engine = new Engine(comm, Sgd);
        id = engine.AddParameter("w", Tensor.Of(values, values.Length));
        engine.Commit();
        return engine;
    }

    static void Add(Engine engine, long id, params float[] gradient) =>
        engine.Backward(new[] { Tensor.Scalar(1) }, pass => pass.AddGrad(id, Tensor.Of(gradient, gradient.Length)));

    static void That(bool holds, string text)
    {
        if (!holds)
        {
            throw new Exception(text);
        }
    }

    static X Fails<X>(string part, Action call) where X : Exception
    {
        try
        {
            call();
        }
        catch (X failure)
        {
            That(failure.Message.Contains(part), "\"" + part + "\" is not in: " + failure.Message);
            return failure;
        }
        throw new Exception("it was accepted: " + part);
    }

    static void Refused(string part, Action call) => Fails<OutriggerException>(part, call);

    static void TestClosed()
    {
        Engine engine = One(out long id, 1, 2);
        Acquired weights = engine.Acquire(false, id);
        Pass pass = engine.BeginPass(Tensor.Scalar(1));
        engine.Dispose();
        engine.Dispose();
        Fails<ObjectDisposedException>("Engine", () => engine.Step());
        Refused("closed", () => weights[0].Floats());
        weights.Dispose();
        pass.AddGrad(id, new Tensor("float32", 2)); // a child keeps what it needs
        pass.Dispose();
        Fails<ObjectDisposedException>("Pass", pass.End);
        var closed = new Tensor("float32", 2);
        closed.Dispose();
        closed.Dispose();
        Refused("closed", () => closed[0] = 1);
        Refused("engine is NULL", () => Native.engine_step(null));
        var list = new Tensors();
        list.Dispose();
        Refused("given back", () => list.size());
    }

    static void TestLent()
    {
        using (Engine engine = One(out long id, 1, 2))
        {
            Acquired weights = engine.Acquire(false, id);
            Refused("read-only", () => weights[0].Put(5, 5));
            Tensor slot = null, seed = null;
            engine.Backward(new[] { Tensor.Scalar(1) }, pass =>
            {
                seed = pass.OutputGrad();
                slot = pass.Slot(id);
                Refused("slot", () => pass.Slot(id));
                pass.AddGrad(id, slot.Put(2, 4));
                Refused("closed", () => slot[0] = 9);
            });
            Refused("closed", () => seed[0].ToString());
            That(engine.Step().outcome == Native.STEP_APPLIED, "applied");
            Refused("closed", () => weights[0].Floats());
            That(engine.Read(id, Native.VALUE_MASTER).Floats().SequenceEqual(new float[] { 0, 0 }), "0 and 0");
        }
    }

    static void TestArguments()
    {
        using (Engine engine = One(out long id, 1, 2))
        {
            Refused("OTR_E_STATE", () => engine.Step());
            using (Pass pass = engine.BeginPass(Tensor.Scalar(1)))
            {
                Refused("OTR_E_DTYPE", () => pass.AddGrad(id, new Tensor("int32", 2)));
                Refused("OTR_E_SHAPE", () => pass.AddGrad(id, new Tensor("float32", 3)));
                Refused("OTR_E_NOT_FOUND", () => pass.AddGrad(7, new Tensor("float32", 2)));
                Fails<NullReferenceException>("", () => pass.AddGrad(id, null));
            }
            Refused("OTR_E_DTYPE", () => new Tensor("float31", 2));
            Refused("OTR_E_ARGUMENT", () => new Tensor("float32", -1));
            Refused("OTR_E_SHAPE", () => new Tensor("float32", long.MaxValue, 2));
            Refused("index 2", () => new Tensor("float32", 2)[2].ToString());
            Fails<ArgumentException>("1 values for 2", () => new Tensor("float32", 2).Put(1));
            OutriggerException failure = Fails<OutriggerException>("\u00e4", () => engine.ParameterId("\u00e4"));
            That(failure.Code == Native.E_NOT_FOUND && failure.Status == "OTR_E_NOT_FOUND", failure.Status);
            Refused("OTR_E_CONFIG", () => new Engine(comm, "{"));
        }
    }

    static void TestExceptionInBackward()
    {
        using (Engine engine = One(out long id, 1, 2))
        {
            var thrown = new IOException("the data is gone");
            IOException caught = Fails<IOException>("gone", () => engine.Backward(new[] { Tensor.Scalar(1) }, pass =>
            {
                pass.AddGrad(id, Tensor.Of(new float[] { 1, 1 }, 2));
                throw thrown;
            }));
            That(caught == thrown, "the same exception arrives");
            That(engine.Step().reason == Native.SKIP_ABANDONED, "the window is discarded");
            Add(engine, id, float.NaN, 1);
            That(engine.Step().nonfinite_param == id, "the parameter is named");
        }
    }

    static void TestOtherThreads()
    {
        Comm[] ranks = Comm.Threads(context, 2);
        var waiting = new Thread(() =>
        {
            for (bool isOver = false; !isOver;)
            {
                try
                {
                    ranks[0].Barrier();
                    isOver = true;
                }
                catch (InvalidOperationException busy) when (!(busy is ObjectDisposedException))
                {
                    Thread.Sleep(1); // the other thread looks just now
                }
            }
        });
        waiting.Start();
        bool isInCall = false;
        while (!isInCall)
        {
            try
            {
                ranks[0].Broadcast(null, 0);
            }
            catch (NullReferenceException)
            {
                Thread.Sleep(5); // nobody is in a call on it yet
            }
            catch (InvalidOperationException busy)
            {
                That(busy.Message.Contains("another thread"), busy.Message);
                isInCall = true;
            }
        }
        ranks[0].Dispose(); // its call goes on, and gives it back in the end
        ranks[1].Barrier();
        waiting.Join();
        Fails<ObjectDisposedException>("Comm", ranks[0].Barrier);
    }

    static void TestMessages()
    {
        var ids = new Tensor("int64", 3).Put(5, 6, 7);
        var tag = new CallInfo { loss_scale = 8, accumulation = 2, ranks = 1 };
        var tensors = new Dictionary<string, Tensor> { ["ids"] = ids, ["grad"] = new Tensor("bfloat16", 2, 2).Put(1, 2, 3, 4) };
        byte[] bytes = Message.Pack(tensors, 41, tag, new Dictionary<string, string> { ["sender"] = "vision", ["place"] = "" });
        var message = new Message(bytes);
        That(message.Names.SequenceEqual(new[] { "ids", "grad" }), "names: " + string.Join(" ", message.Names));
        That(message.MicroBatch == 41 && message.Attributes["sender"] == "vision" && message.Attributes["place"] == "", "what rides along");
        CallInfo read = message.Tag();
        That(read.loss_scale == 8 && read.accumulation == 2 && read.ranks == 1, "the tag");
        Tensor grad = message["grad"];
        That(grad.DType == "bfloat16" && grad.Shape.SequenceEqual(new long[] { 2, 2 }), "dtype and shape");
        That(grad.Floats().SequenceEqual(new float[] { 1, 2, 3, 4 }) && message["ids"].Bits(2) == 7, "values");
        Refused("OTR_E_NOT_FOUND", () => message["grads"].Floats());
        message.Dispose();
        message.Dispose();
        Refused("closed", () => grad.Floats());
        Fails<ObjectDisposedException>("Message", () => message.Tag());
        That(new Message(Message.Pack(new Dictionary<string, Tensor>())).Tag() == null, "nothing was said");
        for (int at = 0; at < bytes.Length; at += 7) // nothing that is damaged is read
        {
            bytes[at] ^= 1;
            Refused("OTR_E_", () => new Message(bytes));
            bytes[at] ^= 1;
        }
        Refused("OTR_E_CORRUPT", () => new Message(bytes.Take(bytes.Length - 1).ToArray()));
        Refused("OTR_E_CORRUPT", () => new Message(new byte[0]));
        ids.Dispose();
        Refused("ids is closed", () => Message.Pack(tensors));
        Refused("the tensor \"x\" is nothing", () => Message.Pack(new Dictionary<string, Tensor> { ["x"] = null }));

        Route[] routes = Message.Routes(new long[] { 3, 1 }, new long[] { 2, 2 });
        That(string.Join(" ", routes.Select(each => each.Source + "" + each.Target + each.SourceRow + each.TargetRow + each.Rows)) == "00002 01201 11011", "routes");
        Refused("OTR_E_ARGUMENT", () => Message.Routes(new long[] { 3 }, new long[] { 2 }));
    }

    static void TestLog()
    {
        while (Context.TakeLog() != null)
        {
        }
        using (var logged = new Context(1, Native.LOG_INFO))
        using (Comm alone = Comm.AloneIn(logged))
        using (var engine = new Engine(alone, Sgd))
        {
            engine.AddParameter("w", Tensor.Scalar(1));
            engine.Commit();
            One(out long id, 1).Dispose(); // its context keeps no lines
            LogLine line = Context.TakeLog();
            That(line.Level == Native.LOG_INFO && line.Text.Contains("parameter"), line.Text);
            That(Context.TakeLog() == null, "each once");
        }
        Refused("OTR_E_ARGUMENT", () => new Context(1, 99));
    }

    static void TestInterrupt()
    {
        Comm[] ranks = Comm.Threads(context, 2);
        Exception failure = null;
        var waiting = new Thread(() =>
        {
            try
            {
                ranks[0].Barrier();
            }
            catch (Exception thrown)
            {
                failure = thrown;
            }
        });
        waiting.Start();
        Thread.Sleep(100);
        waiting.Interrupt();
        That(waiting.Join(10000), "it waits on");
        That(failure is OutriggerException interrupted && interrupted.Status == "OTR_E_INTERRUPTED", "" + failure);
        var other = new Thread(ranks[1].Barrier);
        other.Start();
        ranks[0].Barrier(); // made again
        That(other.Join(10000), "the other one waits");
    }

    static void TestCollected()
    {
        using (Engine engine = One(out long id, 0))
        {
            new Thread(() => // whose stack is gone afterwards
            {
                for (int i = 0; i < 20; i++)
                {
                    engine.BeginPass(Tensor.Scalar(1)).OutputGrad();
                }
            }).RunToTheEnd();
            for (int i = 0; i < 100 && engine.LiveChildren > 1; i++)
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
            }
            That(engine.LiveChildren <= 1, engine.LiveChildren + " passes are left"); // the collector is conservative
        }
        Tensor weights = new Tensor("float32", 1000);
        using (var shard = new Shard(context, weights, new Tensor("float32", 1000).Fill(1)))
        using (var optimizer = new Optimizer(context, "{\"type\": \"SGD\", \"params\": {\"lr\": 1}}"))
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
            That(optimizer.Step(shard).outcome == Native.STEP_APPLIED && weights[999] == -1, "the gradients were there");
        }
    }

    static void RunToTheEnd(this Thread thread)
    {
        thread.Start();
        thread.Join();
    }

    static void TestLeaks()
    {
        int rounds = int.Parse(Environment.GetEnvironmentVariable("ROUNDS"));
        long before = 0;
        var initial = new Tensor("float32", 1 << 15);
        for (int round = 0; round < rounds; round++)
        {
            if (round == rounds / 3)
            {
                before = ResidentBytes();
            }
            using (var engine = new Engine(comm, Sgd))
            {
                long id = engine.AddParameter("w", initial);
                engine.Commit();
                using (Acquired weights = engine.Acquire(true, id))
                {
                    engine.Backward(new[] { weights[0] }, pass => pass.AddGrad(id, pass.Slot(id).Fill(pass.OutputGrad()[7])));
                }
                Refused("none", () => engine.ParameterId("none"));
                engine.Read(id, Native.VALUE_MASTER).Dispose();
                engine.Step();
                engine.Memory();
                That(engine.LiveChildren == 0, "live children");
            }
        }
        long grown = ResidentBytes() - before;
        That(grown < rounds * 2L / 3 * 65536, "the process grew by " + grown + " bytes"); // half of what a leak of one value of w would be
    }

    static long ResidentBytes()
    {
        GC.Collect();
        GC.WaitForPendingFinalizers();
        return 4096 * long.Parse(File.ReadAllText("/proc/self/statm").Split(' ')[1]);
    }

    static int Main()
    {
        int failed = 0;
        MethodInfo[] tests = typeof(Test).GetMethods(BindingFlags.Static | BindingFlags.NonPublic).Where(each => each.Name.StartsWith("Test")).ToArray();
        foreach (MethodInfo test in tests)
        {
            try
            {
                test.Invoke(null, null);
                Console.WriteLine("ok      " + test.Name);
            }
            catch (TargetInvocationException failure)
            {
                failed++;
                Console.WriteLine("FAILED  " + test.Name + "\n" + failure.InnerException);
            }
        }
        return failed == 0 && tests.Length > 0 ? 0 : 1;
    }
}
