"""Private mappings, of a file or of zeros, whose end does not stop the process.

Python's mmap unmaps while it holds the interpreter's lock: 0.08 s for each GiB that was read, in
which an engine generates nothing. A foreign call gives that lock away. The kernel's lock of the
address space, without which no thread can start, is held for one part at a time.
"""

import ctypes
import mmap
import os
import weakref

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value
_PART = 64 * 1024 * 1024


def mapped(descriptor: int, nbytes: int) -> memoryview:
    """Map a file's first bytes until the last view of them ends; raises OSError.

    A write of this process changes only a page of its own.
    """
    return _mapped(nbytes, mmap.MAP_PRIVATE, descriptor)


def zeroed(nbytes: int) -> memoryview:
    """Map zeros until the last view of them ends; raises OSError."""
    return _mapped(nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)


def _mapped(nbytes: int, flags: int, descriptor: int) -> memoryview:
    access = mmap.PROT_READ | mmap.PROT_WRITE
    address = _LIBC.mmap(None, nbytes, access, flags, descriptor, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    memory = (ctypes.c_ubyte * nbytes).from_address(address)
    # A process that ends unmaps by itself, while threads may still read.
    weakref.finalize(memory, _unmap, address, nbytes).atexit = False
    return memoryview(memory).cast("B")


def _unmap(address: int, nbytes: int) -> None:
    for begin in range(0, nbytes, _PART):
        _LIBC.munmap(address + begin, min(_PART, nbytes - begin))
