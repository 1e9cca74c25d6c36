// SPDX-License-Identifier: Apache-2.0
import io.outrigger.Comm;
import io.outrigger.Context;
import io.outrigger.Engine;
import io.outrigger.Pass;
import io.outrigger.Tensor;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;

/**
 * What a call costs in Java: a gradient of 16 elements added to an open pass (add_grad), or a pass without gradients and its step (step). It
 * answers the lines that scripts/bench/peers/worker.py describes.
 */
public final class Calls {
    private static final int VALUES = 16;
    private static final String CONFIG = "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.0}}, \"gradient_clipping\": 0}";

    public static void main(String[] arguments) throws IOException {
        boolean adds = arguments[0].equals("add_grad");
        try (Context context = new Context(1); Comm comm = Comm.alone(context); Engine engine = new Engine(comm, CONFIG)) {
            Tensor gradient = Tensor.of(new float[VALUES], VALUES);
            long w = engine.addParameter("w", gradient);
            engine.commit();
            System.out.println("{\"ready\": {}}");
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null && !line.equals("quit"); line = lines.readLine()) {
                if (line.startsWith("check")) {
                    System.out.println("{\"checked\": {}}");
                } else {
                    int times = Integer.parseInt(line.substring("run ".length()));
                    long taken = adds ? addGrads(engine, w, gradient, times) : steps(engine, times);
                    System.out.println("{\"run\": [0, " + taken + ", {}]}");
                }
            }
        }
    }

    private static long addGrads(Engine engine, long w, Tensor gradient, int times) {
        long taken;
        try (Pass pass = engine.beginPass()) {
            long start = System.nanoTime();
            for (int i = 0; i < times; i++) {
                pass.addGrad(w, gradient);
            }
            taken = System.nanoTime() - start;
            pass.end();
        }
        engine.step();
        return taken;
    }

    private static long steps(Engine engine, int times) {
        long start = System.nanoTime();
        for (int i = 0; i < times; i++) {
            try (Pass pass = engine.beginPass()) {
                pass.end();
            }
            engine.step();
        }
        return System.nanoTime() - start;
    }
}
