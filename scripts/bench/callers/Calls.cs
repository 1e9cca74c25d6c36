// SPDX-License-Identifier: Apache-2.0
using System;
using System.Diagnostics;
using Outrigger;

/// <summary>What a call costs in C#: a gradient of 16 elements added to an open pass (add_grad), or a pass without gradients and its step (step).
/// It answers the lines that scripts/bench/peers/worker.py describes.</summary>
static class Calls
{
    const int Values = 16;
    const string Config = "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.0}}, \"gradient_clipping\": 0}";

    static void Main(string[] arguments)
    {
        using (var context = new Context(1))
        using (Comm comm = Comm.AloneIn(context))
        using (var engine = new Engine(comm, Config))
        {
            var gradient = new Tensor("float32", Values);
            long id = engine.AddParameter("w", gradient);
            engine.Commit();
            Console.WriteLine("{\"ready\": {}}");
            for (string line = Console.ReadLine(); line != null && line != "quit"; line = Console.ReadLine())
            {
                if (line.StartsWith("check"))
                {
                    Console.WriteLine("{\"checked\": {}}");
                    continue;
                }
                int times = int.Parse(line.Substring("run ".Length));
                long ticks = arguments[0] == "add_grad" ? AddGrads(engine, id, gradient, times) : Steps(engine, times);
                Console.WriteLine("{{\"run\": [0, {0}, {{}}]}}", (long)(ticks * (1e9 / Stopwatch.Frequency)));
            }
        }
    }

    static long AddGrads(Engine engine, long id, Tensor gradient, int times)
    {
        var clock = new Stopwatch();
        engine.Backward(new Tensor[0], pass =>
        {
            clock.Start();
            for (int i = 0; i < times; i++)
            {
                pass.AddGrad(id, gradient);
            }
            clock.Stop();
        });
        engine.Step();
        return clock.ElapsedTicks;
    }

    static long Steps(Engine engine, int times)
    {
        var clock = Stopwatch.StartNew();
        for (int i = 0; i < times; i++)
        {
            engine.Backward(new Tensor[0], pass => { });
            engine.Step();
        }
        return clock.ElapsedTicks;
    }
}
