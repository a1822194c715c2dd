"""Every layout and type of x, weights and bias that Conv2d takes (layouts.py), on the CPU."""

import unittest

try:
    import layouts
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None


class Layouts(unittest.TestCase):
    def test_taken(self):
        self.assertGreater(layouts.check("cpu"), 800)

    def test_refused(self):
        layouts.check_refused("cpu")


if __name__ == "__main__":
    unittest.main()
