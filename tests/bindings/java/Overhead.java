// SPDX-License-Identifier: Apache-2.0
import io.outrigger.Pass;
import io.outrigger.Tensor;

/** What a call costs: a gradient of four elements added to an open pass, and a step of an empty pass; the least of ten rounds. */
public final class Overhead {
    public static void main(String[] arguments) {
        try (Checks.One one = new Checks.One(Checks.SGD, new float[4])) {
            Tensor gradient = Tensor.of(new float[4], 4);
            System.out.printf("Java: add_grad of 4 elements %.0f ns, an empty pass and its step %.0f ns%n", nanoseconds(20_000, count -> {
                try (Pass pass = one.engine.beginPass()) {
                    for (int i = 0; i < count; i++) {
                        pass.addGrad(one.w, gradient);
                    }
                    pass.end();
                }
                one.engine.step();
            }), nanoseconds(2000, count -> {
                for (int i = 0; i < count; i++) {
                    try (Pass pass = one.engine.beginPass()) {
                        pass.end();
                    }
                    one.engine.step();
                }
            }));
        }
    }

    private static double nanoseconds(int count, java.util.function.IntConsumer calls) {
        double least = Double.POSITIVE_INFINITY;
        for (int round = 0; round < 10; round++) {
            long start = System.nanoTime();
            calls.accept(count);
            least = Math.min(least, (double) (System.nanoTime() - start) / count);
        }
        return least;
    }
}
