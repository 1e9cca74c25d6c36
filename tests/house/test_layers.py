# SPDX-License-Identifier: Apache-2.0
"""The layer rule holds in the tree, and the check sees each kind of breach."""

import unittest

import layers
import tree


def project_sources():
    chosen = [p for p in tree.files() if p.suffix in layers.SUFFIXES]
    return {p.as_posix(): tree.text_of(p) or "" for p in chosen}


class Layers(unittest.TestCase):
    def test_the_tree_keeps_to_the_rule(self):
        sources = project_sources()
        self.assertGreater(len(list(layers.includes(sources))), 50)
        self.assertEqual(layers.violations(sources), [])

    def test_a_wrong_include_is_caught(self):
        # (including, included, a word of the reason; None where it is allowed)
        cases = [
            ("core/engine/step.cpp", "core/comm/communicator.h", None),
            ("core/comm/shm.cpp", "core/memory/block.h", None),
            ("core/comm/shm.cpp", "core/engine/step.h", "above"),
            ("core/tensor/view.cpp", "core/memory/block.h", "above"),
            ("core/memory/block.cpp", "core/optimizer/adam.h", "above"),
            ("core/config/parse.cpp", "core/base/error.h", None),
            ("core/tensor/view.cpp", "c_api/include/outrigger.h", None),
            ("core/engine/step.cpp", "c_api/src/guard.h", "above"),
            ("kernels/cpu/adam.cpp", "kernels/reference/adam.h", None),
            ("kernels/cpu/adam.cpp", "core/base/error.h", "above"),
            ("kernels/cpu/adam.cpp", "c_api/include/outrigger.h", "handles"),
            ("c_api/src/engine.cpp", "core/engine/engine.h", None),
            ("c_api/examples/gpt/model.c", "c_api/include/outrigger.h", None),
            ("c_api/examples/gpt/model.c", "c_api/examples/gpt/model.h", None),
            ("c_api/examples/gpt/model.c", "core/engine/engine.h", "public headers"),
            ("bindings/swig/outrigger.i", "core/engine/engine.h", "public headers"),
            ("c_api/tools/flight_file.h", "core/observe/flight_format.h", None),
            ("c_api/tools/flight_file.h", "core/observe/timeline.h", "public headers"),
            ("bindings/swig/outrigger.i", "core/observe/flight_format.h", "public headers"),
            ("core/observe/flight_format.h", "core/base/error.h", "stand alone"),
            ("core/engine/step.cpp", "tests/core/helper.h", "no layer"),
            ("tests/plugins/cuda/mock.cpp", "plugins/cuda/driver.h", None),
            ("tests/c_api/device_test.cpp", "plugins/cuda/driver.h", "loaded"),
            ("plugins/cuda/device.cpp", "core/base/error.h", "plugins include only"),
        ]
        for including, included, reason in cases:
            with self.subTest(including=including, included=included):
                name = included.removeprefix("c_api/include/")
                found = layers.violations({including: f'#include "{name}"\n', included: ""})
                if reason is None:
                    self.assertEqual(found, [])
                else:
                    self.assertIn(reason, found[0])

    def test_a_circle_of_folders_is_caught(self):
        found = layers.violations({
            "core/comm/a.h": '#include "core/memory/b.h"\n', "core/memory/b.h": '#include "core/layout/c.h"\n',
            "core/layout/c.h": '#  include <core/comm/a.h>\n'})
        self.assertEqual(len(found), 1)
        self.assertIn("circle", found[0])

    def test_a_circle_inside_a_folder_is_caught(self):
        # No header includes itself: a source closes the circle.
        tree = {"core/engine/plan.h": "", "core/engine/plan.cpp": '#include "core/engine/plan.h"\n#include "core/engine/saver.h"\n',
                "core/engine/saver.h": '#include "core/engine/state.h"\n', "core/engine/state.h": '#include "core/engine/plan.h"\n'}
        found = layers.violations(tree)
        self.assertEqual(found, ["concepts include each other in a circle: "
                                 "core/engine/plan -> core/engine/saver -> core/engine/state -> core/engine/plan"])
        # A header that is a part of its source is no circle; one with a source of its own is.
        part = {"core/engine/keys.h": "", "core/engine/keys.cpp": '#include "core/engine/keys_host.h"\n',
                "core/engine/keys_host.h": '#include "core/engine/keys.h"\n'}
        self.assertEqual(layers.violations(part), [])
        self.assertEqual(len(layers.violations(part | {"core/engine/keys_host.cpp": ""})), 1)

    def test_a_folder_without_a_layer_is_caught(self):
        self.assertIn("no layer", layers.violations({"core/misc/x.cpp": ""})[0])

    def test_relative_includes_are_followed(self):
        found = layers.violations({"core/comm/a.cpp": '#include "../engine/b.h"\n', "core/engine/b.h": ""})
        self.assertIn("above", found[0])


if __name__ == "__main__":
    unittest.main()
