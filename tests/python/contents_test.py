"""Contents tell whether memory holds what it held, whoever writes it, where the kernel tells of pages and where not."""

import ctypes
import mmap
import os
import random
import tempfile
import threading
import unittest

from convoy._core import Contents

from convoy import _core

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
DONTNEED, FIXED, PRIVATE, SHARED, ANONYMOUS, BOTH = 4, 16, 2, 1, 32, 3
SIZE = 5 << 20  # whole page tables of 2 MB lie in it


class Memory:
    """SIZE bytes of memory of some kind."""

    def __init__(self, flags=PRIVATE | ANONYMOUS, fd=-1, address=None, fill=True):
        self.address = LIBC.mmap(address, SIZE, BOTH, flags, fd, 0)
        assert self.address not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
        self.bytes = (ctypes.c_ubyte * SIZE).from_address(self.address)
        if fill:
            ctypes.memset(self.address, 7, SIZE)

    def __del__(self):
        LIBC.munmap(ctypes.c_void_p(self.address), SIZE)


class EveryWrite(unittest.TestCase):
    asks = True

    def setUp(self):
        self.addCleanup(_core._ask_kernel_for_pages, True)
        _core._ask_kernel_for_pages(self.asks)
        self.seed = random.randrange(1 << 30)
        self.random = random.Random(self.seed)

    def check(self, memory, write, what, at=0, size=SIZE):
        """Contents of a part, unchanged some times, are not the same after write(), and those made then are."""
        address = memory.address + at
        contents = Contents(address, size)
        for threads in (1, 2, 1):
            self.assertTrue(contents.same(address, size, threads), f"{what}: before")
        write()
        self.assertFalse(contents.same(address, size), what)
        self.assertFalse(contents.same(address, size), f"{what}: at the second look")
        now = Contents(address, size)
        self.assertTrue(now.same(address, size), f"{what}: made behind it")
        self.assertFalse(contents.same(address, size), f"{what}: at the third look")

    def test_every_byte(self):
        memory = Memory()
        for size in (1, 7, 63, 64, 65, 4095, 4096, 4097, 70000, 700001):
            offset = self.random.choice((0, 16, 64, 4000))
            address = memory.address + offset
            for i in range(size):
                memory.bytes[offset + i] = self.random.randrange(256)
            contents = Contents(address, size)
            for threads in (1, 2):
                self.assertTrue(contents.same(address, size, threads))
            self.assertFalse(contents.same(address, size - 1))
            for at in {0, size // 3, size // 2, size - 1, *(self.random.randrange(size) for _ in range(40))}:
                memory.bytes[offset + at] ^= 1
                self.assertFalse(contents.same(address, size, 1 + at % 2), (size, offset, at, self.seed))
                memory.bytes[offset + at] ^= 1
            self.assertTrue(contents.same(address, size))
            if size > 16:  # words that change places
                old = bytes(memory.bytes[offset : offset + size])
                ctypes.memmove(address, old[8:16] + old[:8], 16)
                self.assertEqual(contents.same(address, size), old[:8] == old[8:16])

    def test_writers(self):
        memory = Memory()
        places = [0, 4095, 4096, SIZE // 2, SIZE - 4096, SIZE - 1, *(self.random.randrange(SIZE) for _ in range(8))]
        with tempfile.TemporaryFile() as file:
            file.write(bytes(range(1, 251)))
            file.flush()
            for at in places:
                size = min(250, SIZE - at)
                view = memoryview(memory.bytes).cast("B")[at : at + size]

                def by_kernel(view=view):
                    file.seek(0)
                    os.readv(file.fileno(), [view])

                def by_thread(at=at):
                    thread = threading.Thread(target=ctypes.memset, args=(memory.address + at, 99, 1))
                    thread.start()
                    thread.join()

                for what, write in (("the program", lambda at=at: ctypes.memset(memory.address + at, 42, 1)),
                                    ("the kernel", by_kernel), ("a thread", by_thread)):  # fmt: skip
                    for begin, end in ((0, SIZE), (max(0, at - 70000), min(SIZE, at + 70001))):
                        ctypes.memset(memory.address, 7, SIZE)
                        self.check(memory, write, f"{what} at {at} of [{begin}, {end})", begin, end - begin)

    def test_several_look_at_the_same_memory(self):
        memory = Memory()
        parts = [(0, SIZE), (0, SIZE // 2), (SIZE // 2 - 10000, SIZE // 2), (SIZE // 2 + 100, 300000)]
        for turn in range(20):
            all_of_them = [(Contents(memory.address + at, size), at, size) for at, size in parts]
            at = SIZE // 2 + self.random.randrange(200, 200000)
            memory.bytes[at] ^= 1 + turn
            self.random.shuffle(all_of_them)
            for contents, begin, size in all_of_them:
                hit = begin <= at < begin + size
                for _ in range(2):
                    self.assertEqual(contents.same(memory.address + begin, size), not hit, (at, begin, size, self.seed))

    def test_memory_elsewhere(self):
        here, there, shared = Memory(), Memory(), Memory(SHARED | ANONYMOUS)
        contents = Contents(here.address, SIZE)
        for turn in range(3):
            for memory in (here, there, shared, shared):
                self.assertTrue(contents.same(memory.address, SIZE), turn)
            for memory in (there, shared, here):
                memory.bytes[SIZE // 2 + turn] = 1
                for _ in range(3):
                    self.assertFalse(contents.same(memory.address, SIZE), turn)
                memory.bytes[SIZE // 2 + turn] = 7
                self.assertTrue(contents.same(memory.address, SIZE), turn)

    def test_a_forked_child_sees_its_own(self):
        memory = Memory()
        contents = Contents(memory.address, SIZE)
        self.assertTrue(contents.same(memory.address, SIZE))

        def in_child(what):
            child = os.fork()
            if child == 0:
                try:
                    os._exit(what())
                except BaseException:
                    os._exit(9)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        def writes():
            before = contents.same(memory.address, SIZE)
            memory.bytes[SIZE // 3] = 1
            return 0 if before and not contents.same(memory.address, SIZE) else 1

        self.assertEqual(in_child(writes), 0)
        self.assertTrue(contents.same(memory.address, SIZE))
        memory.bytes[SIZE // 3] = 2
        self.assertEqual(in_child(lambda: int(contents.same(memory.address, SIZE))), 0)
        self.assertFalse(contents.same(memory.address, SIZE))

    def test_shared_memory(self):
        for touched in (True, False):
            memory = Memory(SHARED | ANONYMOUS, fill=touched)

            def by_a_child(memory=memory):
                if (child := os.fork()) == 0:
                    ctypes.memset(memory.address + SIZE // 2, 3, 1)
                    os._exit(0)
                os.waitpid(child, 0)

            self.check(memory, by_a_child, f"a child, touched {touched}")

    def test_memory_of_a_file(self):
        for flags in (SHARED, PRIVATE):
            for kind in ("memfd", "file"):
                file = open(os.memfd_create("contents"), "r+b") if kind == "memfd" else tempfile.TemporaryFile()  # noqa: SIM115
                with file:
                    file.truncate(SIZE)
                    memory = Memory(flags, file.fileno(), fill=False)
                    number = file.fileno()
                    self.check(memory, lambda number=number: os.pwrite(number, b"x", SIZE // 2),
                               f"{kind}, {flags}: pwrite")  # fmt: skip
                    with mmap.mmap(number, SIZE) as other:
                        self.check(memory, lambda other=other: other.__setitem__(SIZE // 4, 9),
                                   f"{kind}, {flags}: a mapping")  # fmt: skip

    def test_pages_that_are_dropped(self):
        for begin, size in ((SIZE // 2 // 4096 * 4096, 4096), (0, SIZE // 4096 * 4096)):
            memory = Memory()
            contents = Contents(memory.address, SIZE)
            for _ in range(3):
                self.assertTrue(contents.same(memory.address, SIZE))
            LIBC.madvise(memory.address + begin, size, DONTNEED)  # they read as zeros now
            for _ in range(3):
                self.assertFalse(contents.same(memory.address, SIZE), (begin, size))

    def test_memory_that_is_mapped_anew(self):
        memory = Memory()
        contents = Contents(memory.address, SIZE)
        self.assertTrue(contents.same(memory.address, SIZE))
        other = Memory(PRIVATE | ANONYMOUS | FIXED, address=memory.address)
        self.assertTrue(contents.same(memory.address, SIZE))
        ctypes.memset(other.address + 123456, 1, 1)
        self.assertFalse(contents.same(memory.address, SIZE))
        shared = Memory(SHARED | ANONYMOUS | FIXED, address=memory.address)
        self.check(shared, lambda: ctypes.memset(shared.address, 2, 1), "shared instead of private")

    def test_a_write_at_any_moment(self):
        """Whatever the moment of a write, a look that begins behind it tells."""
        memory = Memory()
        for turn in range(60):
            contents = Contents(memory.address, SIZE)
            stop, bad = threading.Event(), []

            def look(contents=contents, stop=stop):
                while not stop.is_set():
                    contents.same(memory.address, SIZE, 1)

            lookers = [threading.Thread(target=look) for _ in range(3)]
            for thread in lookers:
                thread.start()
            at = self.random.randrange(SIZE)
            memory.bytes[at] ^= 255
            for _ in range(5):
                bad += [turn] if contents.same(memory.address, SIZE) else []
            stop.set()
            for thread in lookers:
                thread.join()
            self.assertEqual(bad, [], (at, self.seed))


class EveryWriteWithoutTheKernel(EveryWrite):
    """As where a sandbox forbids it: everything is read."""

    asks = False


class Kernel(unittest.TestCase):
    def test_it_is_asked(self):
        """Where the kernel can tell, a look at large memory takes a small part of what reading it does."""
        import time

        release = tuple(int(part) for part in os.uname().release.split(".")[:2])
        memory = Memory()
        looks = {}
        for asks in (True, False):
            _core._ask_kernel_for_pages(asks)
            contents, times = Contents(memory.address, SIZE), []
            for _ in range(50):
                started = time.perf_counter()
                contents.same(memory.address, SIZE)
                times.append(time.perf_counter() - started)
            looks[asks] = min(times)
        _core._ask_kernel_for_pages(True)
        if release < (6, 7) or looks[True] > looks[False] / 1.5:
            self.skipTest(f"Linux {release}, or a sandbox: {looks[True]:.2g} s a look, {looks[False]:.2g} s to read")
        self.assertLess(looks[True], looks[False] / 4)


if __name__ == "__main__":
    unittest.main()
