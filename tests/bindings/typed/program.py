# SPDX-License-Identifier: Apache-2.0
"""A user's program for mypy --strict: types come out as promised, and each wrong line is an error. It also runs."""
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import outrigger
import outrigger.numpy
from outrigger import Comm, Context, Engine, OutriggerError, Pass, lowlevel


def main() -> None:
    with Context(workers=1) as context, Engine(Comm.self_group(context), {"gradient_clipping": 1.0}) as engine:
        assert_type(engine, Engine)
        w = engine.add_parameter("w", np.ones((2, 3), np.float32), trainable=1)
        assert_type(w, int)
        engine.commit()
        assert_type(engine.parameter_shape(w), tuple[int, ...])
        with engine.begin_pass([np.ones((2, 3), np.float32)]) as p:
            assert_type(p, Pass)
            p.add_grad(w, p.output_grad(0))
        assert_type(engine.step(), lowlevel.StepReport)
        assert_type(engine.read(w), npt.NDArray[np.float32])
        out = np.empty((2, 3), np.float64)
        assert_type(engine.read(w, out=out).dtype, np.dtype[np.float64])
        with engine.acquire([w]) as arrays:
            assert_type(arrays, list[npt.NDArray[Any]])
        assert_type(engine.memory, list[tuple[str, int, int]])
        first, count = engine.local_range(w)
        assert_type(first, int)
        assert_type(count, int)
        try:
            engine.parameter_id("nowhere")
        except OutriggerError as error:
            assert_type(error.code, int)
            assert_type(error.text, str)
    by_name()


def by_name() -> None:
    with outrigger.numpy.Engine({"w": np.ones(3, np.float32), "layers": [{"b": np.zeros(2)}]}) as engine:
        with engine.parameters() as parameters, engine.backward(np.ones(3)) as grads:
            assert_type(parameters, dict[str, npt.NDArray[Any]])
            grads["w"] = parameters["w"] * grads.output
        assert_type(engine.step(), lowlevel.StepReport)
        assert_type(engine.read("w"), npt.NDArray[np.float32])


def wrong(engine: Engine, comm: Comm) -> None:
    Context(worker=1)  # type: ignore[call-arg]
    Context(workers="1")  # type: ignore[arg-type]
    Engine(engine)  # type: ignore[arg-type]
    Engine(comm, ["stage", 1])  # type: ignore[arg-type]
    engine.add_parameter(b"w")  # type: ignore[arg-type]
    engine.add_parameter("w", [1.0, 2.0])  # type: ignore[arg-type]
    engine.add_parameter("w", None, frozen=True)  # type: ignore[call-arg]
    engine.acquire(["w"])  # type: ignore[list-item]
    engine.parameter_count()  # type: ignore[operator]
    lowlevel.engine_step(engine)  # type: ignore[arg-type]
    lowlevel.engine_commit(engine.handle, 1)  # type: ignore[call-arg]
    engine.step().outcome = "applied"  # type: ignore[assignment]


if __name__ == "__main__":
    main()
