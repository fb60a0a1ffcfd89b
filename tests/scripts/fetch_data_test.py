"""Tests of what scripts/fetch_data does without a network: reading R's files, cutting the text, staying idempotent."""
import hashlib
import importlib.machinery
import importlib.util
import pathlib
import struct
import tempfile
import unittest
import zlib

from support import SCRIPTS


def load():
    loader = importlib.machinery.SourceFileLoader("fetch_data", str(SCRIPTS / "fetch_data"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_data", loader))
    loader.exec_module(module)
    return module


fetch_data = load()


def serialize(strings, version):
    """R's serialisation of a character vector, in the binary XDR format."""
    out = b"X\n" + struct.pack(">3i", version, 0x040201, 0x020300)
    if version == 3:
        out += struct.pack(">i", 5) + b"UTF-8"
    out += struct.pack(">2i", 16, len(strings))
    for string in strings:
        data = string.encode()
        out += struct.pack(">2i", 0x40009, len(data)) + data
    return out


class FetchDataTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-fetch-")
        self.addCleanup(scratch.cleanup)
        self.base = pathlib.Path(scratch.name)

    def use(self, make):
        """Makes "tiny" a data set of one file with the content "right"."""
        digits = hashlib.sha256(b"right").hexdigest()[:16]
        fetch_data.DATA_SETS["tiny"] = fetch_data.DataSet(make, "a test", {"file": digits})
        self.addCleanup(fetch_data.DATA_SETS.pop, "tiny")

    def test_reads_the_strings_of_both_versions_of_r_serialisation(self):
        strings = ["", "CHAPTER I", "na\u00efve"]
        for version in (2, 3):
            self.assertEqual(fetch_data.read_r_strings(serialize(strings, version)), strings)

    def test_refuses_an_r_object_that_holds_no_strings(self):
        numbers = b"X\n" + struct.pack(">5i", 2, 0, 0, 13, 0)
        with self.assertRaises(fetch_data.FetchError):
            fetch_data.read_r_strings(numbers)

    def test_walks_the_entries_of_an_r_database_and_notices_damage(self):
        entries = [b"first", b"second" * 100]
        data = b"".join(struct.pack(">I", len(e)) + zlib.compress(e) for e in entries)

        self.assertEqual(list(fetch_data.read_r_database(data)), entries)
        with self.assertRaises(fetch_data.FetchError):
            list(fetch_data.read_r_database(data[:-8]))

    def test_cuts_behind_a_blank_line_and_loses_nothing(self):
        text = "one\n\ntwo two\n\nthree"

        self.assertEqual(fetch_data.split_at_paragraph(text, 0.9), ("one\n\ntwo two\n\n", "three"))

    def test_keeps_what_is_right_and_replaces_what_is_damaged(self):
        made = []

        def make(_scratch, target):
            made.append(target)
            (target / "file").write_text("right")

        self.use(make)
        fetch_data.fetch("tiny", self.base)
        fetch_data.fetch("tiny", self.base)
        self.assertEqual(len(made), 1)

        (self.base / "tiny/file").write_text("damaged")
        fetch_data.fetch("tiny", self.base)

        self.assertEqual(len(made), 2)
        self.assertEqual((self.base / "tiny/file").read_text(), "right")
        self.assertEqual([path.name for path in self.base.iterdir()], ["tiny"])

    def test_a_wrong_download_leaves_nothing_behind(self):
        self.use(lambda _scratch, target: (target / "file").write_text("wrong"))

        with self.assertRaises(fetch_data.FetchError):
            fetch_data.fetch("tiny", self.base)

        self.assertEqual(list(self.base.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
