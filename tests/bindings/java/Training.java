// SPDX-License-Identifier: Apache-2.0
import io.outrigger.Acquired;
import io.outrigger.Boundary;
import io.outrigger.DType;
import io.outrigger.Engine;
import io.outrigger.Outcome;
import io.outrigger.Pass;
import io.outrigger.Status;
import io.outrigger.Tensor;
import io.outrigger.Value;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.ShortBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** What the package computes, what it keeps, and what it gives back. */
public final class Training {
    private static Path folder;

    /** The argument is a folder for checkpoints. */
    public static void main(String[] arguments) throws Exception {
        folder = Path.of(arguments[0]);
        Checks.run(Training.class);
    }

    static void testDirectBuffers() {
        FloatBuffer values = ByteBuffer.allocateDirect(16).order(ByteOrder.nativeOrder()).asFloatBuffer().put(new float[] {9, 1, 2, 9});
        values.position(1).limit(3);
        ShortBuffer halves = ByteBuffer.allocateDirect(4).order(ByteOrder.nativeOrder()).asShortBuffer();
        halves.put(0, (short) 0x4000).put(1, (short) 0xbf80); // bfloat16: 2 and -1
        try (Checks.One one = new Checks.One(Checks.SGD, 0, 0)) {
            one.engine.write(one.w, Value.MASTER, Tensor.over(values, 2));
            one.engine.backward(Tensor.scalar(1), pass -> pass.addGrad(one.w, Tensor.over(halves, DType.BFLOAT16, 2)));
            one.engine.step();
            Tensor out = Tensor.over(values, 2);
            one.engine.read(one.w, Value.MASTER, out);
            Checks.same(out.floats(), 0, 2.5f);
            values.clear();
            Checks.same(Tensor.zeros(DType.FLOAT32, 4).put(values).floats(), 9, 0, 2.5f, 9);
            values.clear();
            Checks.fails(IllegalArgumentException.class, () -> Tensor.over(halves, DType.BFLOAT16, 2).get(values), "FLOAT32");
            Checks.fails(IllegalArgumentException.class, () -> Tensor.scalar(1).put(values), "4 values for 1");
            Checks.that(values.get(0) == 9 && values.get(3) == 9 && values.get(2) == 2.5f, "only the part between position and limit");
        }
    }

    static void testElements() {
        for (DType dtype : List.of(DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.INT8, DType.INT64)) {
            Tensor tensor = Tensor.zeros(dtype, 2, 2).put(1, -2, 3, 100);
            Checks.same(tensor.floats(), 1, -2, 3, 100);
            tensor.fill(-5);
            Checks.that(tensor.get(3) == -5, dtype + " is " + tensor.get(3));
        }
        float[] numbers = {65504, 65519.99f, 65520, 1e-8f, 5.9604645e-8f, 2.9802322e-8f, 2.9802326e-8f, 1.0009766f, 1.00048828125f, 1.0014648f, -0f};
        long[] halves = {0x7bff, 0x7bff, 0x7c00, 0, 1, 0, 1, 0x3c01, 0x3c00, 0x3c02, 0x8000};
        Tensor half = Tensor.zeros(DType.FLOAT16, numbers.length).put(numbers);
        for (int i = 0; i < halves.length; i++) {
            Checks.that(half.getBits(i) == halves[i], numbers[i] + " is " + Long.toHexString(half.getBits(i)));
        }
        Tensor rounded = Tensor.zeros(DType.BFLOAT16, 4).put(1.00390625f, 1.01171875f, 3.4028235e38f, Float.NaN);
        Checks.that(rounded.getBits(0) == 0x3f80 && rounded.getBits(1) == 0x3f82, "to nearest even");
        Checks.that(rounded.getBits(2) == 0x7f80 && Double.isNaN(rounded.get(3)), "Inf and NaN");
    }

    static void testTexts() {
        try (Checks.One one = new Checks.One(Checks.SGD, 1);
                Engine engine = new Engine(one.comm, null)) {
            String name = "gewicht.\u00e4\ud83d\ude80"; // two bytes, and four
            long id = engine.addParameter(name, Tensor.scalar(1));
            Checks.same(engine.parameterName(id), name);
            Checks.same(engine.parameterId(name), id);
            Checks.refused(Status.NOT_FOUND, () -> engine.parameterId("\ud83d\ude80"), "\ud83d\ude80");
            Checks.that(engine.config().startsWith("{"), "JSON");
        }
    }

    static void testWindows() {
        try (Checks.One one = new Checks.One(Checks.SGD, 1, 1)) {
            Acquired weights = one.engine.acquire(one.w);
            one.engine.setBoundary(Boundary.NO);
            one.add(2, 0);
            Checks.same(one.engine.step().outcome(), Outcome.ACCUMULATED);
            Checks.same(weights.floats(0), 1, 1); // until the window ends
            one.engine.setBoundary(Boundary.YES);
            one.add(0, 2);
            Checks.same(one.engine.reduce().outcome(), Outcome.REDUCED);
            Checks.same(one.engine.read(one.w, Value.GRAD).floats(), 2, 2);
            one.engine.write(one.w, Value.GRAD, Tensor.of(new float[] {4, 2}, 2));
            Checks.same(one.engine.step().gradNorm(), Math.sqrt(20));
            Checks.same(one.engine.read(one.w, Value.MASTER).floats(), -1, 0);
            one.add(8, 8);
            one.engine.discard();
            Checks.that(Arrays.equals(one.engine.localRange(one.w), new long[] {0, 2}), "localRange");
            one.engine.localWrite(one.w, Value.MASTER, Tensor.of(new float[] {5, 6}, 2));
            Checks.same(one.engine.read(one.w, Value.MASTER).floats(), 5, 6);
            one.engine.setTrainable(one.w, false);
            Checks.refused(Status.STATE, () -> one.add(1, 1), "frozen");
        }
    }

    static void testCheckpoints() throws IOException {
        String config = "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.1}}}";
        Path directory = Files.createTempDirectory(folder, "checkpoints");
        float[] continuous;
        String progress;
        try (Checks.One one = new Checks.One(config, 1, -2, 3)) {
            one.add(1, 2, 3);
            one.engine.step();
            one.engine.save(directory, "first");
            Checks.refused(Status.DUPLICATE, () -> one.engine.save(directory, "first"), "first");
            progress = one.engine.progress();
            one.add(-3, 0.5f, 1);
            one.engine.step();
            continuous = one.engine.read(one.w, Value.MASTER).floats();
        }
        try (Checks.One one = new Checks.One(config, 0, 0, 0)) {
            Checks.refused(Status.NOT_FOUND, () -> one.engine.load(directory, "second"), "second");
            one.engine.load(directory, null);
            Checks.same(one.engine.progress(), progress);
            one.engine.setProgress(progress);
            one.add(-3, 0.5f, 1);
            one.engine.step();
            Checks.same(one.engine.read(one.w, Value.MASTER).floats(), continuous);
        }
    }

    static void testThreadsAddGradients() throws InterruptedException {
        try (Checks.One one = new Checks.One(Checks.SGD, new float[8])) {
            Pass pass = one.engine.beginPass(Tensor.scalar(1));
            List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < 4; t++) {
                threads.add(new Thread(() -> {
                    for (int i = 0; i < 50; i++) {
                        pass.addGrad(one.w, Tensor.zeros(DType.FLOAT32, 8).fill(1));
                    }
                }));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            pass.end();
            pass.close();
            one.engine.step();
            Checks.that(one.engine.read(one.w, Value.MASTER).get(7) == -100, "200 gradients of 1 at the rate 0.5");
        }
    }

    static void testCollectorInTheMiddle() {
        try (Checks.One one = new Checks.One(Checks.SGD, new float[4096])) {
            for (int step = 0; step < 30; step++) {
                try (Acquired weights = one.engine.acquire(one.w)) {
                    FloatBuffer copy = FloatBuffer.allocate(4096);
                    weights.get(0).get(copy);
                    one.engine.backward(Tensor.zeros(DType.FLOAT32, 16).fill(1), pass -> {
                        System.gc();
                        FloatBuffer seed = pass.outputGrad(0).buffer().asFloatBuffer();
                        System.gc();
                        pass.addGrad(one.w, pass.slot(one.w).fill(seed.get(15) + copy.get(9)));
                    });
                }
                Checks.that(one.engine.step().isApplied(), "applied");
            }
            Checks.that(one.engine.read(one.w, Value.MASTER).get(4095) == Math.scalb(1f, -30) - 1, "w += -(w + 1) / 2 thirty times");
        }
    }

    static void testForgottenHandles() throws InterruptedException {
        try (Checks.One one = new Checks.One(Checks.SGD, 1)) {
            for (int i = 0; i < 20; i++) {
                one.engine.beginPass(Tensor.scalar(1)).outputGrad(0).buffer();
            }
            Checks.eventually(() -> one.engine.liveChildren() == 0, "the collector gives passes back");
            Tensor weights = weightsOfForgottenEngine(one);
            for (int i = 0; i < 10; i++) {
                System.gc();
                Thread.sleep(10);
            }
            Checks.that(weights.get((1 << 18) - 1) == 7, "weights keep their engine");
        }
    }

    private static Tensor weightsOfForgottenEngine(Checks.One one) {
        Engine engine = new Engine(one.comm, Checks.SGD);
        long id = engine.addParameter("w", Tensor.zeros(DType.FLOAT32, 1 << 18).fill(7));
        engine.commit();
        return engine.acquire(id).get(0);
    }

    /** What rounds beyond the first third add to the process's memory; the heap is bounded by the command line. */
    static void testLeaks() throws Exception {
        long before = 0;
        int rounds = Integer.getInteger("rounds");
        for (int i = 0; i < rounds; i++) {
            if (i == rounds / 3) {
                System.gc();
                Thread.sleep(100);
                before = residentBytes();
            }
            try (Checks.One one = new Checks.One(Checks.SGD, new float[1 << 15]);
                    Acquired weights = one.engine.acquireFloat32(one.w)) {
                one.engine.backward(weights.get(0), pass -> pass.addGrad(one.w, pass.slot(one.w).put(pass.outputGrad(0).floats())));
                Checks.fails(io.outrigger.OutriggerException.class, () -> one.engine.parameterId("none"));
                one.engine.step();
                one.engine.memory();
                Checks.same(one.engine.liveChildren(), 0L);
            }
        }
        System.gc();
        Thread.sleep(100);
        long grown = residentBytes() - before;
        // Half of what a leak of one value of w would be.
        Checks.that(grown < rounds * 2L / 3 * (1 << 16), "the process grew by " + grown + " bytes");
    }

    private static long residentBytes() throws IOException {
        return 4096 * Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[1]);
    }
}
