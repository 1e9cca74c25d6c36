// SPDX-License-Identifier: Apache-2.0
// A linear regression that no framework computes: a host with its own forward and backward, under ZeRO stage 2 with bfloat16 moments.
//   mono Regression.exe
//   outrigger run -n 2 -- mono Regression.exe
using System;
using Outrigger;
using Outrigger.Lowlevel;
using Comm = Outrigger.Comm;
using Context = Outrigger.Context;
using Engine = Outrigger.Engine;
using Tensor = Outrigger.Tensor;

static class Regression
{
    const string Config = @"{
        ""optimizer"": {""type"": ""AdamW"", ""params"": {""lr"": 0.05, ""weight_decay"": 0}},
        ""gradient_clipping"": 10.0,
        ""zero_optimization"": {""stage"": 2, ""offload_optimizer"": {""device"": ""cpu""}},
        ""outrigger"": {""states"": {""exp_avg"": {""format"": ""bfloat16""}, ""exp_avg_sq"": {""format"": ""bfloat16""}}}
    }";
    const int Inputs = 8, Rows = 32, Steps = 200;

    /// <summary>Numbers between -1 and 1 that every machine makes alike.</summary>
    static float Noise(ulong seed)
    {
        ulong mixed = (seed + 1) * 0x9e3779b97f4a7c15;
        mixed = (mixed ^ mixed >> 31) * 0xbf58476d1ce4e5b9;
        return (float)(mixed >> 40) / (1 << 23) - 1;
    }

    static void Main()
    {
        using (var context = new Context())
        using (Comm comm = Comm.FromEnv(context))
        using (var engine = new Engine(comm, Config))
        {
            long weight = engine.AddParameter("weight", new Tensor("float32", Inputs));
            long bias = engine.AddParameter("bias", Tensor.Scalar(0));
            engine.Commit();
            Train(comm, engine, weight, bias);
            engine.FinalizeRanks();
        }
    }

    static void Train(Comm comm, Engine engine, long weight, long bias)
    {
        int rank = comm.Rank, world = comm.Size;
        double loss = 0;
        for (int step = 0; step < Steps; step++)
        {
            // Each rank has rows of its own.
            int first = (step * world + rank) * Rows * Inputs;
            float[] x = new float[Rows * Inputs], outputGrads = new float[Rows];
            loss = 0;
            using (Acquired weights = engine.Acquire(false, weight, bias))
            {
                float[] w = weights[0].Floats();
                float b = (float)weights[1][0];
                for (int row = 0; row < Rows; row++)
                {
                    float error = b - 0.5f;
                    for (int i = 0; i < Inputs; i++)
                    {
                        x[row * Inputs + i] = Noise((ulong)(first + row * Inputs + i));
                        error += x[row * Inputs + i] * (w[i] - (i / 4f - 1));
                    }
                    loss += error * error / Rows;
                    outputGrads[row] = 2 * error / Rows;
                }
            }
            // The gradient of the outputs, one for each row: the library scales it, the host goes on from there.
            engine.Backward(new[] { Tensor.Of(outputGrads, Rows) }, pass =>
            {
                float[] yGrad = pass.OutputGrad().Floats(), weightGrad = new float[Inputs];
                float biasGrad = 0;
                for (int row = 0; row < Rows; row++)
                {
                    for (int i = 0; i < Inputs; i++)
                    {
                        weightGrad[i] += yGrad[row] * x[row * Inputs + i];
                    }
                    biasGrad += yGrad[row];
                }
                pass.AddGrad(weight, pass.Slot(weight).Put(weightGrad));
                pass.AddGrad(bias, Tensor.Scalar(biasGrad));
            });
            if (engine.Step().outcome != Native.STEP_APPLIED)
            {
                throw new InvalidOperationException("a step was skipped");
            }
        }
        double[] mean = { loss / world };
        comm.AllReduceSum(mean);
        if (rank == 0)
        {
            Console.WriteLine("loss {0:E3} after {1} steps on {2} ranks", mean[0], Steps, world);
        }
        if (mean[0] > 1e-3)
        {
            throw new InvalidOperationException("it has not learned");
        }
    }
}
