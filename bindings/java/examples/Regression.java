// SPDX-License-Identifier: Apache-2.0
import io.outrigger.Acquired;
import io.outrigger.Comm;
import io.outrigger.Context;
import io.outrigger.Engine;
import io.outrigger.StepReport;
import io.outrigger.Tensor;

/**
 * A linear regression that no framework computes: a host with its own forward and backward, under ZeRO stage 2 with bfloat16 moments.
 * Start it with {@code java ... Regression}, or on several ranks with {@code outrigger run -n 2 -- java ... Regression}.
 */
public final class Regression {
    private static final String CONFIG = """
            {
                "optimizer": {"type": "AdamW", "params": {"lr": 0.05, "weight_decay": 0}},
                "gradient_clipping": 10.0,
                "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
                "outrigger": {"states": {"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}}
            }""";
    private static final int INPUTS = 8;
    private static final int ROWS = 32;
    private static final int STEPS = 200;

    /** Numbers between -1 and 1 that every machine makes alike. */
    private static float noise(long seed) {
        long mixed = (seed + 1) * 0x9e3779b97f4a7c15L;
        mixed = (mixed ^ mixed >>> 31) * 0xbf58476d1ce4e5b9L;
        return (float) (mixed >>> 40) / (1 << 23) - 1;
    }

    public static void main(String[] arguments) {
        try (Context context = new Context();
                Comm comm = Comm.fromEnv(context);
                Engine engine = new Engine(comm, CONFIG)) {
            long weight = engine.addParameter("weight", Tensor.of(new float[INPUTS], INPUTS));
            long bias = engine.addParameter("bias", Tensor.scalar(0));
            engine.commit();
            train(comm, engine, weight, bias);
            engine.finalizeRanks();
        }
    }

    private static void train(Comm comm, Engine engine, long weight, long bias) {
        int rank = comm.rank();
        int world = comm.size();
        double loss = 0;
        for (int step = 0; step < STEPS; step++) {
            // Each rank has rows of its own.
            long first = ((long) step * world + rank) * ROWS * INPUTS;
            float[] x = new float[ROWS * INPUTS];
            float[] outputGrads = new float[ROWS];
            loss = 0;
            try (Acquired weights = engine.acquire(weight, bias)) {
                float[] w = weights.floats(0);
                float b = weights.floats(1)[0];
                for (int row = 0; row < ROWS; row++) {
                    float error = b - 0.5f;
                    for (int i = 0; i < INPUTS; i++) {
                        x[row * INPUTS + i] = noise(first + row * INPUTS + i);
                        error += x[row * INPUTS + i] * (w[i] - (i / 4f - 1));
                    }
                    loss += error * error / ROWS;
                    outputGrads[row] = 2 * error / ROWS;
                }
            }
            // The gradient of the outputs, one for each row: the library scales it, the host goes on from there.
            engine.backward(Tensor.of(outputGrads, ROWS), pass -> {
                float[] yGrad = pass.outputGrad(0).floats();
                float[] weightGrad = new float[INPUTS];
                float biasGrad = 0;
                for (int row = 0; row < ROWS; row++) {
                    for (int i = 0; i < INPUTS; i++) {
                        weightGrad[i] += yGrad[row] * x[row * INPUTS + i];
                    }
                    biasGrad += yGrad[row];
                }
                Tensor slot = pass.slot(weight);
                pass.addGrad(weight, slot.put(weightGrad));
                pass.addGrad(bias, Tensor.scalar(biasGrad));
            });
            StepReport report = engine.step();
            if (!report.isApplied()) {
                throw new IllegalStateException(report.toString());
            }
        }
        double[] mean = {loss / world};
        comm.allReduceSum(mean);
        if (rank == 0) {
            System.out.printf("loss %.3e after %d steps on %d ranks%n", mean[0], STEPS, world);
        }
        if (mean[0] > 1e-3) {
            throw new IllegalStateException("it has not learned");
        }
    }
}
