# SPDX-License-Identifier: Apache-2.0
"""The parts of scripts/scale's model, by value, against numbers that were computed by hand."""
import dataclasses
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/scale"))
import anchors  # noqa: E402
import collectives  # noqa: E402
import fits  # noqa: E402
import linear  # noqa: E402
import offload  # noqa: E402
import same_host  # noqa: E402
import step  # noqa: E402
import transformers  # noqa: E402
from machines import H100, Cluster  # noqa: E402

HOST = dataclasses.replace(H100, peak=1e15, memory_bandwidth=1e12, nvlink=400e9, network=400e9, pcie=50e9, dram=400e9)


def cluster(world, **more):
    return Cluster(HOST, world, **{"reached": 0.5, "interference": 1.0, **more})


def job(world, stage, **more):
    return step.Job(**{"model": transformers.LLAMA_7B, "cluster": cluster(world), "stage": stage, "tokens": 4096, "sequence": 4096, "efficiency": 0.5, **more})


class Collectives(unittest.TestCase):
    def test_a_ring_on_one_host(self):
        # Simple: 8.4 + 7 · 3.4 µs and 7/8 of 64 MiB at 400 GB/s; LL128 would take 186.9 µs, LL 304.4 µs.
        self.assertAlmostEqual(collectives.ring(cluster(8), 64 << 20) * 1e6, 32.2 + 146.80064, 9)
        # LL: 6.6 + 7 · 0.6 µs and 896 bytes at 200 GB/s.
        self.assertAlmostEqual(collectives.ring(cluster(8), 1024) * 1e6, 10.8 + 0.00448, 9)
        # LL128: 14 + 7 · 1.9 µs and 7 MiB at 368 GB/s.
        self.assertAlmostEqual(collectives.ring(cluster(8), 8 << 20) * 1e6, 27.3 + 7 * 1048576 / 0.368e6, 9)
        self.assertEqual(collectives.ring(cluster(1), 1 << 30), 0)

    def test_a_ring_over_hosts(self):
        # 1,024 GPUs: 896 hops over NVLink and 127 of the network; half of 400 GB/s.
        self.assertAlmostEqual(collectives.ring(cluster(1024), 1 << 40), 8.4e-6 + 896 * 3.4e-6 + 127 * 14e-6 + (1 << 40) * 1023 / 1024 / 200e9, 12)
        self.assertAlmostEqual(collectives.ring(cluster(1024), 8), 6.6e-6 + 896 * 0.6e-6 + 127 * 2.7e-6 + 8 * 1023 / 1024 / 100e9, 15)

    def test_two_levels(self):
        # 16 hosts: 4 doublings of 14 µs, 15/16 of a gigabyte at 200 GB/s; then a host's ring.
        within = 32.2e-6 + 1e9 * 7 / 8 / 400e9
        self.assertAlmostEqual(collectives.two_levels(cluster(128), 1e9), 64e-6 + 1e9 * 15 / 16 / 200e9 + within, 12)
        self.assertAlmostEqual(collectives.two_levels(cluster(128), 1e9, 0.5), 64e-6 + 0.5e9 * 15 / 16 / 200e9 + within, 12)
        self.assertEqual(collectives.two_levels(cluster(8), 1e9), collectives.ring(cluster(8), 1e9))

    def test_between_replicas(self):
        # 16 groups that are hosts: there and back, a gigabyte of each host.
        self.assertAlmostEqual(collectives.between_replicas(cluster(128), 1e9, 8), 2 * (64e-6 + 1e9 * 15 / 16 / 200e9), 12)
        # 4 groups of 32: a host has a quarter of a group's sums.
        self.assertAlmostEqual(collectives.between_replicas(cluster(128), 1e9, 32), 2 * (36e-6 + 0.25e9 * 3 / 4 / 200e9), 12)
        self.assertEqual(collectives.between_replicas(cluster(128), 1e9, 128), 0)

    def test_a_part_of_a_host_beside_others_is_refused(self):
        with self.assertRaisesRegex(ValueError, "12 GPUs on hosts of 8"):
            cluster(12)


class Transformers(unittest.TestCase):
    def test_parameters(self):
        """As the models' own cards have them."""
        for model, count in ((transformers.LLAMA_7B, 6738415616), (transformers.LLAMA_8B, 8030261248), (transformers.LLAMA_70B, 70553706496), (transformers.LLAMA_405B, 405853388800)):
            self.assertEqual(model.parameters, count, model.name)

    def test_operations(self):
        """DeepSpeed's formula for GPT with recomputed activations."""
        m, batch, s = transformers.GPT_175B, 32, 512
        formula = 96 * batch * s * m.layers * m.width**2 * (1 + s / (6 * m.width) + m.vocabulary / (16 * m.layers * m.width))
        self.assertAlmostEqual(m.operations(batch * s, s, True) / formula, 1, 3)
        self.assertAlmostEqual(m.operations(batch * s, s, False) / formula, 0.75, 2)


class Steps(unittest.TestCase):
    def test_timeline(self):
        # Gathers at 0–1 and 1–2; compute at 1–2 and 2–3; the reduce at 3–4.
        self.assertEqual(step.timeline([1, 1], [1, 1], [0, 1], 1), 4)
        # Without prefetch the second gather waits for the first unit: 2–3, compute 3–4, reduce 4–5.
        self.assertEqual(step.timeline([1, 1], [1, 1], [0, 1], 0), 5)
        # A reduce that is ready before a gather may begin goes first, and is not interrupted: 1–4, gather 4–6, compute 6–8.
        self.assertEqual(step.timeline([1, 1, 2], [0, 0, 2], [3, 0, 0], 0), 8)
        # The gather at 0–2 holds nothing up; the reduce at 2–5.
        self.assertEqual(step.timeline([1, 1, 2], [0, 0, 2], [3, 0, 0], 2), 5)
        # Two reduces, in the order in which they get ready: 1–3 and 3–5.
        self.assertEqual(step.timeline([1, 1], [0, 0], [2, 2], 0), 5)

    def test_alone(self):
        """One GPU: operations at half of the peak, and 28 bytes a parameter at 0.83 of the memory's bandwidth."""
        found = step.run(job(1, 3))
        compute = transformers.LLAMA_7B.operations(4096, 4096, False) / 0.5e15
        self.assertAlmostEqual(found.compute, compute, 12)
        self.assertAlmostEqual(found.seconds, compute + 28 * 6738415616 / 0.83e12, 9)
        self.assertAlmostEqual(step.run(job(1, 3, recompute=True)).compute, transformers.LLAMA_7B.operations(4096, 4096, True) / 0.5e15, 12)

    def test_what_moves(self):
        """Stage 3 gathers twice and reduces once; stages 1 and 2 reduce, and return the parameters behind the update; stage 0 sums there and back."""
        zero, one, two, three = (step.run(job(64, stage)) for stage in range(4))
        self.assertAlmostEqual(three.communication, 3 * one.communication, 12)
        self.assertEqual(one, two)
        self.assertAlmostEqual(zero.communication, 2 * one.communication, 12)
        self.assertAlmostEqual(one.tail - three.tail, collectives.ring(cluster(64), 2 * 6738415616), 12)
        with self.assertRaisesRegex(ValueError, "stage 4"):
            step.run(job(64, 4))

    def test_a_mesh_gathers_inside_its_group(self):
        mesh, divided = job(64, 3, shard=8), job(64, 3, shard=8, states_over_all=True)
        for each in (mesh, divided):
            self.assertEqual(step.gather(each, 1e9), collectives.ring(cluster(8), 2e9))
        self.assertAlmostEqual(step.reduce(mesh, 1e9), collectives.ring(cluster(8), 2e9) + collectives.between_replicas(cluster(64), 2e9, 8), 12)
        self.assertEqual(step.reduce(divided, 1e9), collectives.ring(cluster(64), 2e9))
        # States over all: an eighth of them to update, and what the other hosts have updated comes over the network.
        back = collectives.between_replicas(cluster(64), 2 * 6738415616, 8) / 2
        norm = 2 * collectives.two_levels(cluster(64), 8)
        self.assertAlmostEqual(step.run(divided).tail, norm + 28 * 6738415616 / 64 / 0.83e12 + back, 9)
        self.assertAlmostEqual(step.run(mesh).tail, norm + 28 * 6738415616 / 8 / 0.83e12, 9)

    def test_levels_and_eight_bits(self):
        many = job(1024, 3, levels=True)
        self.assertEqual(step.gather(many, 1e8), min(collectives.ring(cluster(1024), 2e8), collectives.two_levels(cluster(1024), 2e8)))
        self.assertLess(step.gather(many, 1e8), step.gather(job(1024, 3), 1e8))
        self.assertEqual(step.gather(job(1024, 3, eight_bit=True), 1e8), collectives.two_levels(cluster(1024), 2e8, 260 / 512))

    def test_interference_and_straggling(self):
        """A second that both share costs a twentieth more; then a rank of 64 is the slowest."""
        still, hindered = step.run(job(64, 3)), step.run(job(64, 3, cluster=cluster(64, interference=1.05)))
        alone = still.compute + still.communication - (still.seconds - still.tail)
        self.assertAlmostEqual(hindered.seconds - still.seconds, 0.05 * alone, 9)
        late = step.run(job(64, 3, cluster=cluster(64, straggling=0.01)))
        self.assertAlmostEqual(late.seconds, (still.seconds - still.tail) * (1 + 0.01 * step.slowest(64)) + still.tail, 9)
        self.assertEqual(step.slowest(1), 0)
        for ranks, expected in ((2, 0.5642), (10, 1.5388), (100, 2.5076), (1000, 3.2414)):  # of tables of normal order statistics
            self.assertAlmostEqual(step.slowest(ranks), expected, delta=0.03)

    def test_offload(self):
        self.assertEqual(offload.whole(60, 50, 17, 51), 111)  # the copies up hold it up, those down do not
        self.assertEqual(offload.whole(40, 50, 70, 51), 120)
        # 8 GPUs with a billion each share 400 GB/s: 28 bytes and 2 of the copies up.
        self.assertAlmostEqual(offload.after_norm(cluster(8), 1e9, 28), 30 * 8e9 / 400e9, 12)
        # A fast host waits for the link: 2 bytes at 50 GB/s.
        fast = Cluster(dataclasses.replace(HOST, dram=1e15), 8)
        self.assertAlmostEqual(offload.after_norm(fast, 1e9, 28), 2e9 / 50e9, 12)
        # Nothing beside anything: 4 and 2 bytes over the link, 44 in DRAM for two GPUs.
        self.assertAlmostEqual(offload.one_after_the_other(25e9, 100e9, 1e9, 2, 44, 4, 2), 0.16 + 0.88 + 0.08, 12)
        on_host = step.run(job(8, 3, offloaded=28.0))
        self.assertAlmostEqual(on_host.tail - 2 * collectives.ring(cluster(8), 8), 30 * 6738415616 / 400e9, 9)


class Fits(unittest.TestCase):
    def test_bisect(self):
        self.assertAlmostEqual(fits.bisect(lambda x: x * x, 2, 0, 4), 2**0.5, 8)
        self.assertAlmostEqual(fits.bisect(lambda x: -x, -3, 0, 4), 3, 8)
        with self.assertRaisesRegex(ValueError, "5 is not between 0 and 4"):
            fits.bisect(lambda x: x, 5, 0, 4)

    def test_least_squares(self):
        numbers = linear.fit([[1, 0, 2], [0, 3, 1], [1, 1, 0], [2, 1, 5]], [7, 9, 3, 19])  # of 1, 2, 3
        for found, expected in zip(numbers, (1, 2, 3)):
            self.assertAlmostEqual(found, expected, 9)
        self.assertEqual(linear.fit([[1, 1], [1, 2], [1, 3]], [3, 2, 1])[1], 0)  # falls: no rate is negative
        self.assertAlmostEqual(linear.fit([[1, 1], [1, 2], [1, 3]], [3, 2, 1])[0], 2, 9)
        with self.assertRaisesRegex(ValueError, "do not tell"):
            linear.fit([[1, 2], [2, 4]], [1, 2])

    def test_shared_memory(self):
        """From times of known rates the fit finds these, whatever 4 and 8 processes took."""
        known = (3e-10, 2e-10, 5e-6, 2e-5)
        points = [{"ranks": r, "bytes": b, "seconds": same_host.predicted(known, r, b, 2)} for r in same_host.RANKS for b in same_host.SIZES]
        self.assertAlmostEqual(points[4 * 4]["seconds"], 9 * 2e-10 * 49152 + 7 * 5e-6 + 6 * 2e-5, 15)
        self.assertAlmostEqual(points[0]["seconds"], 2 * 3e-10 * 49152, 15)
        points[-1]["seconds"] *= 2
        numbers, rows = same_host.residuals({"cores": 2, "points": points})
        for found, expected in zip(numbers, known):
            self.assertAlmostEqual(found / expected, 1, 6)
        self.assertAlmostEqual(rows[-1][2], -0.5, 6)
        self.assertAlmostEqual(rows[-2][2], 0, 6)

    def test_published_runs(self):
        fitted, residuals = fits.fit()
        for each in residuals:
            if each.row.fits:
                self.assertLess(abs(each.error), 1e-6, each.row)
        self.assertEqual({each.row.set for each in residuals}, set(anchors.SETS))
        by_row = {(each.row.set, each.row.what): each for each in residuals}
        # NVLink's rate is fitted on 128 MiB: 117.4 MB in 385.3 − 32.2 µs; LL's 2 MiB follow.
        nvlink = 7 / 8 * (128 << 20) / (385.3e-6 - 32.2e-6)
        self.assertAlmostEqual(fitted["nccl"]["nvlink"] / nvlink, 1, 6)
        self.assertAlmostEqual(by_row["nccl", "all-gather, 2 MiB"].predicted, 10.8 + 1e6 * 7 / 8 * (2 << 20) / (nvlink / 2), 3)
        # A rate that is too high is a time that is too short.
        azure = by_row["azure", "2 T, 8 sequences of 1,024"]
        self.assertGreater(azure.predicted, azure.row.published)
        self.assertAlmostEqual(azure.error, azure.row.published / azure.predicted - 1, 12)
        for bound, limit in fits.LIMITS.items():
            self.assertLessEqual(fits.median_error(fits.held_out(residuals, bound)), limit, "docs/scaling.md says that it is reached")

    def test_ranking(self):
        def residual(published, predicted, used=""):
            return fits.Residual(anchors.Row("azure", "", published, "ms", None, used), predicted, 0)

        self.assertEqual(fits.ranking([residual(1, 5), residual(2, 6), residual(3, 4)]), (1, 3))
        self.assertEqual(fits.ranking([residual(1, 5, "efficiency"), residual(2, 6, "straggling"), residual(2.01, 7)]), (1, 1))


if __name__ == "__main__":
    unittest.main()
