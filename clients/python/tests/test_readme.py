"""The example of the README runs as it is printed, but for the server's address."""

import contextlib
import io
import os
import re
import unittest

import umbra


class Readme(unittest.TestCase):
    def test_example(self):
        with open(os.path.join(os.path.dirname(__file__), "..", "README.md"), encoding="utf-8") as f:
            (example,) = re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)
        client, out = umbra.Client, io.StringIO()
        umbra.Client = lambda url, *a, **o: client(os.environ["UMBRA_TEST_URL"], *a, **o)
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(example, "README.md", "exec"), {})
        finally:
            umbra.Client = client
        self.assertEqual(out.getvalue(), "['b.txt']\n")


if __name__ == "__main__":
    unittest.main()
