// SPDX-License-Identifier: Apache-2.0
import io.outrigger.Acquired;
import io.outrigger.Comm;
import io.outrigger.Context;
import io.outrigger.DType;
import io.outrigger.Engine;
import io.outrigger.MemoryEntry;
import io.outrigger.Optimizer;
import io.outrigger.OutriggerException;
import io.outrigger.ParameterOptions;
import io.outrigger.Pass;
import io.outrigger.Shard;
import io.outrigger.Skip;
import io.outrigger.Status;
import io.outrigger.StepReport;
import io.outrigger.Tag;
import io.outrigger.Tensor;
import io.outrigger.Value;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.function.IntToDoubleFunction;

/** The scenario (tests/bindings/scenario/README.md) in Java: {@code Scenario CONFIG.json OUTPUT} writes OUTPUT.<rank>. */
public final class Scenario {
    private static final int EMBED = 0;
    private static final int BIAS = 1;
    private static final int EMPTY = 2;
    private static final int FROZEN = 3;
    private static final int HEAD = 4;
    private static final int SCALE = 5;
    private static final int WIDE = 6;
    private static final String[] NAMES = {
        "embed.weight", "linear.bias", "norm.empty", "frozen.table", "head.weight", "scale", "wide.weight", "unused.gain"
    };
    private static final long[][] SHAPES = {{5, 3}, {7}, {0, 4}, {2, 3}, {5, 3}, {}, {3, 101}, {4}};
    private static final List<Value> VALUES = List.of(Value.MASTER, Value.PUBLISHED, Value.EXP_AVG, Value.EXP_AVG_SQ);

    private final Context context;
    private final Comm comm;
    private final int rank;
    private final int world;
    private final PrintStream out;
    private final Path directory; // of checkpoints

    private Scenario(Context context, Comm comm, PrintStream out, Path directory) {
        this.context = context;
        this.comm = comm;
        this.out = out;
        this.directory = directory;
        rank = comm.rank();
        world = comm.size();
    }

    public static void main(String[] arguments) throws IOException {
        try (Context context = new Context();
                Comm comm = Comm.fromEnv(context);
                PrintStream out = new PrintStream(arguments[1] + "." + comm.rank(), StandardCharsets.UTF_8)) {
            new Scenario(context, comm, out, Path.of(arguments[1] + ".saved")).run(Files.readString(Path.of(arguments[0])));
        }
    }

    // ---- Numbers as their exact bit patterns ----

    private void line(Object... words) {
        StringBuilder text = new StringBuilder();
        for (Object word : words) {
            text.append(text.length() == 0 ? "" : " ").append(word);
        }
        out.print(text.append('\n'));
    }

    private static String bits(double value) {
        return String.format("%016x", Double.doubleToRawLongBits(value));
    }

    private static String shape(long[] extents) {
        return Arrays.toString(extents).replace(" ", "");
    }

    private void tensor(String words, Tensor tensor) {
        StringBuilder text = new StringBuilder(words).append(' ').append(shape(tensor.shape()));
        for (long i = 0; i < tensor.elements(); i++) {
            text.append(String.format(tensor.dtype().bytes() == 2 ? " %04x" : " %08x", tensor.getBits(i)));
        }
        line(text);
    }

    private void report(String words, StepReport r) {
        line(words, "outcome", r.outcome().number(), "reason", r.reason().number(), "nonfinite_rank", r.nonfiniteRank(), "nonfinite_param",
                r.nonfiniteParam(), "nonfinite_count", r.nonfiniteCount(), "micro_steps", r.microSteps(), "applied_steps", r.appliedSteps(),
                "skipped_steps", r.skippedSteps(), "grad_norm", bits(r.gradNorm()), "clip_coefficient", bits(r.clipCoefficient()), "loss_scale",
                bits(r.lossScale()), "lr", bits(r.lr()), "updates", r.updates(), "vanished", r.vanished());
    }

    // ---- The run ----

    private void run(String config) {
        line("rank", rank, "of", world);
        collectives();
        try (Engine engine = new Engine(comm, config)) {
            addParameters(engine);
            engine.commit();
            printAcquired(engine, false);
            for (int number = 0; number < 6; number++) { // three windows of two passes
                if (number == 4) {
                    engine.setGroupValue(null, "lr", 0.03125);
                }
                runPass(engine, number);
            }
            wrongCalls(engine);
            printValues(engine);
            printAcquired(engine, false);
            printAcquired(engine, true);
            for (MemoryEntry entry : engine.memory()) {
                line("memory", entry.residentBytes(), entry.purpose());
            }
            line("live_children", engine.liveChildren());
            engine.finalizeRanks();
        }
        chain();
        saveAndLoad();
        shardAlone();
        line("done");
    }

    private void collectives() {
        double[] sums = {rank + 0.5, 2};
        comm.allReduceSum(sums);
        line("all_reduce", bits(sums[0]), bits(sums[1]));
        Tensor all = Tensor.zeros(DType.UINT8, world);
        comm.allGather(Tensor.zeros(DType.UINT8, 1).fill(10 + rank), all);
        StringBuilder text = new StringBuilder("all_gather");
        for (int r = 0; r < world; r++) {
            text.append(' ').append(all.getBits(r));
        }
        line(text);
        Tensor token = Tensor.scalar(rank == world - 1 ? 1 : 0);
        comm.broadcast(token, world - 1);
        comm.barrier();
        line("broadcast", String.format("%08x", token.getBits(0)));
    }

    private static Tensor made(IntToDoubleFunction values, long... shape) {
        float[] all = new float[(int) Arrays.stream(shape).reduce(1, (a, b) -> a * b)];
        for (int i = 0; i < all.length; i++) {
            all[i] = (float) values.applyAsDouble(i);
        }
        return Tensor.of(all, shape);
    }

    private void addParameters(Engine engine) {
        for (int d = 0; d < NAMES.length; d++) {
            int number = d;
            Tensor initial = made(i -> ((7 * i + 3 * number) % 33 - 16) / 16.0 + rank, SHAPES[d]);
            ParameterOptions options = new ParameterOptions();
            switch (d) {
                case BIAS -> options.contributions(2);
                case FROZEN -> options.frozen();
                case HEAD -> options.aliasOf(EMBED);
                default -> { }
            }
            long id = engine.addParameter(NAMES[d], d == HEAD ? null : initial, options);
            line("parameter", id, NAMES[d], shape(engine.parameterShape(id)));
        }
    }

    private void printAcquired(Engine engine, boolean isFloat32) {
        engine.prefetch(isFloat32, EMBED, WIDE);
        try (Acquired weights = isFloat32 ? engine.acquireFloat32(EMBED, WIDE) : engine.acquire(EMBED, WIDE)) {
            tensor("acquired " + EMBED, weights.get(0));
            tensor("acquired " + WIDE, weights.get(1));
        }
    }

    private static void addBySlot(Pass pass, int id, float[] gradient) {
        pass.addGrad(id, pass.slot(id).put(gradient));
    }

    private static void addByTensor(Pass pass, int id, float[] gradient) {
        pass.addGrad(id, Tensor.of(gradient, SHAPES[id]));
    }

    /** The toy model's backward: parameter gradients from the scaled gradients of the outputs. */
    private void backward(Pass pass, int number) {
        float[] dy0 = pass.outputGrad(0).floats();
        float[] dy1 = pass.outputGrad(1).floats();
        float dl = pass.outputGrad(2).floats()[0];
        float[] embed = new float[15];
        float[] head = new float[15];
        for (int k = 0; k < 5; k++) {
            for (int j = 0; j < 3; j++) {
                for (int i = 0; i < 4; i++) {
                    embed[3 * k + j] += ((i + 2 * k) % 5 - 2) / 2f * dy0[3 * i + j];
                }
                head[3 * k + j] = dl * dy0[3 * (k % 4) + j];
            }
        }
        addBySlot(pass, EMBED, embed);
        addByTensor(pass, HEAD, head);
        if (rank == 0 || number % 2 == 0) {
            addBySlot(pass, BIAS, Arrays.copyOfRange(dy1, 0, 7));
            addByTensor(pass, BIAS, Arrays.copyOfRange(dy1, 7, 14));
        }
        if (number % 2 == 0) {
            addByTensor(pass, EMPTY, new float[0]);
        }
        float scale = dl;
        for (float each : dy0) {
            scale += each;
        }
        addByTensor(pass, SCALE, new float[] {scale});
        float[] wide = new float[303];
        for (int i = 0; i < wide.length; i++) {
            wide[i] = dl * dy0[3 * (i % 101 % 4) + i / 101];
        }
        if (number == 3 && rank == world - 1) {
            wide[101 + 7] = Float.POSITIVE_INFINITY;
        }
        if (number % 2 == 0) {
            addBySlot(pass, WIDE, wide);
        } else {
            addByTensor(pass, WIDE, wide);
        }
    }

    private void runPass(Engine engine, int number) {
        double[] second = new double[14];
        Arrays.setAll(second, i -> ((3 * i + 2 * rank + number) % 8 - 4) / 4.0);
        Tensor[] outputGrads = {made(i -> ((i + rank + number) % 8 - 3) / 4.0, 4, 3), Tensor.of(second, 2, 7), Tensor.scalar(1)};
        engine.backward(outputGrads, pass -> {
            line("pass", number, "scale", bits(pass.scale()));
            for (int i = 0; i < outputGrads.length; i++) {
                tensor("pass " + number + " output " + i, pass.outputGrad(i));
            }
            backward(pass, number);
        });
        StepReport report;
        if (number % 2 == 0) {
            report = engine.step();
        } else {
            engine.beginStep();
            report = engine.report(-1);
        }
        report("step " + number, report);
        if (report.reason() == Skip.NONFINITE) {
            line("skipped for", engine.parameterName(report.nonfiniteParam()), "of rank", report.nonfiniteRank());
        }
    }

    private void attempt(Runnable call) {
        try {
            call.run();
            line("no error");
        } catch (OutriggerException failure) {
            line("error", failure.getMessage().replaceFirst(": ", " "));
        }
    }

    private void wrongCalls(Engine engine) {
        Tensor value = Tensor.zeros(DType.FLOAT32, 5, 3);
        attempt(() -> engine.parameterId("embed.wieght"));
        attempt(() -> engine.addParameter("late", value));
        attempt(() -> engine.setGroupValue(null, "lr", -1));
        try (Pass pass = engine.beginPass()) {
            attempt(() -> pass.addGrad(WIDE, value));
        } // nothing was added: no trace
    }

    private void printValues(Engine engine) {
        for (int d = 0; d < NAMES.length; d++) {
            for (Value value : VALUES) {
                String words = "value " + d + " " + value.name().toLowerCase(Locale.ROOT);
                try {
                    tensor(words, engine.read(d, value));
                } catch (OutriggerException failure) {
                    if (failure.status() != Status.NOT_FOUND) {
                        throw failure;
                    }
                    line(words, "none");
                }
            }
        }
    }

    // ---- Two engines in a chain: h = front(x), y = back(h) ----

    private static String chained(int lossScale, double lr, int stage) {
        return """
                {"torch_autocast": {"enabled": true, "dtype": "fp16"}, "fp16": {"loss_scale": %d}, "gradient_clipping": 1,
                 "optimizer": {"type": "AdamW", "params": {"lr": %s}}, "zero_optimization": {"stage": %d}}
                """.formatted(lossScale, lr, stage);
    }

    private Engine makeEngine(String name, String config) {
        Engine engine = new Engine(comm, config);
        long id = engine.declareParameter(name, new ParameterOptions(), 2, 2);
        engine.commit();
        engine.setInitial(new long[] {id}, Tensor.of(new float[] {0.5f, -1, 1, 0.25f}, 2, 2));
        return engine;
    }

    private void chain() {
        try (Engine front = makeEngine("front", chained(4, 0.25, 0));
                Engine back = makeEngine("back", chained(64, 0.5, 2))) {
            for (int window = 0; window < 2; window++) {
                float[] dy = {1, -0.5f, 0.25f, 2};
                if (window == 1 && rank == world - 1) {
                    dy[2] = Float.POSITIVE_INFINITY;
                }
                back.backward(Tensor.of(dy, 2, 2), pass -> {
                    tensor("chain back scaled", pass.outputGrad(0));
                    float[] at = pass.outputGrad(0).floats();
                    Tensor dh = Tensor.of(new float[] {2 * at[2], 2 * at[3], 2 * at[0], 2 * at[1]}, 2, 2); // the gradient of the input
                    Tensor plain = Tensor.zeros(DType.FLOAT32, 2, 2);
                    pass.unscale(dh, plain);
                    tensor("chain input gradient", plain);
                    Tag tag = pass.tag();
                    line("chain tag", bits(tag.lossScale()), tag.accumulation(), tag.ranks());
                    try (Pass behind = front.beginPass(tag, dh)) {
                        tensor("chain front scaled", behind.outputGrad(0));
                        behind.addGrad(0, behind.outputGrad(0));
                        behind.end();
                    }
                    pass.addGrad(0, pass.outputGrad(0));
                });
                List<StepReport> reports = Engine.stepMany(List.of(front, back), null);
                report("chain front step", reports.get(0));
                report("chain back step", reports.get(1));
            }
            for (Engine engine : List.of(front, back)) {
                finish(engine, "chain " + engine.parameterName(0));
            }
        }
    }

    private void finish(Engine engine, String name) {
        for (Value value : VALUES) {
            tensor(name + " value " + value.number(), engine.read(0, value));
        }
        engine.finalizeRanks();
    }

    // ---- A training that is saved, and goes on at another stage and without offload ----

    private static String kept(String zero) {
        return """
                {"zero_optimization": %s, "gradient_clipping": 0, "optimizer": {"type": "AdamW", "params": {"lr": 0.125}}}
                """.formatted(zero);
    }

    /** With a gradient that differs between windows and ranks. */
    private void stepAlone(Engine engine, int window, String name) {
        float factor = (window + 1) * (2 * rank + 1);
        try (Pass pass = engine.beginPass()) {
            pass.addGrad(0, Tensor.of(new float[] {factor, -0.5f * factor, 0.25f * factor, 2 * factor}, 2, 2));
            pass.end();
        }
        report(name + " step " + window, engine.step());
    }

    private void saveAndLoad() {
        try (Engine saved = makeEngine("w", kept("{\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}"))) {
            stepAlone(saved, 0, "saved");
            stepAlone(saved, 1, "saved");
            saved.save(directory, "two");
            stepAlone(saved, 2, "saved");
            finish(saved, "saved");
        }
        try (Engine loaded = makeEngine("w", kept("{\"stage\": 3}"))) {
            loaded.load(directory, "two");
            stepAlone(loaded, 2, "loaded");
            finish(loaded, "loaded");
        }
    }

    private void shardAlone() {
        Tensor weights = made(i -> (i - 2) / 4.0, 5);
        Tensor published = Tensor.zeros(DType.BFLOAT16, 5);
        try (Shard shard = new Shard(context, weights, made(i -> (3 - i) / 8.0, 5), published);
                Optimizer optimizer = new Optimizer(context, "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}")) {
            optimizer.setValue("lr", 0.25);
            report("shard step", optimizer.step(shard));
            tensor("shard weights", weights);
            tensor("shard published", published);
            for (Value value : List.of(Value.EXP_AVG, Value.EXP_AVG_SQ)) {
                tensor("shard state " + value.number(), shard.state(value));
            }
            line("shard state_bytes", shard.stateBytes());
        }
    }
}
