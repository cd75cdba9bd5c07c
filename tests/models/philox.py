# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The program's random numbers for dropout: philox4x32-10, a counter-based generator.

Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011).
key     = low and high 32 bits of the seed
counter = (element / 4, ordinal of the dropout op in graph order, microbatch j of the step, step), lane = element mod 4
where element is the flat row-major index in the op's result. u = (x >> 8) * 2^-24; kept where u >= ratio.

usage: philox.py      checks the published known answers
"""
import numpy as np

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)


def philox4x32(counter, key, rounds: int = 10) -> list[np.ndarray]:
    """Returns four words per counter. The counter's four words may be arrays or numbers."""
    c = [np.asarray(word, dtype=np.uint64) for word in counter]
    k = list(key)
    for _ in range(rounds):
        p0, p1 = MULTIPLIERS[0] * c[0], MULTIPLIERS[1] * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), p1 & LOW, (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), p0 & LOW]
        k = [(word + step) & 0xFFFFFFFF for word, step in zip(k, WEYL)]
    return c


def keep_mask(shape, ratio: float, seed: int, op: int, microbatch: int, step: int) -> np.ndarray:
    elements = int(np.prod(shape))
    words = philox4x32((np.arange((elements + 3) // 4), op, microbatch, step), (seed & 0xFFFFFFFF, seed >> 32))
    words = np.stack(np.broadcast_arrays(*words), axis=-1).reshape(-1)[:elements]
    uniform = (words >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return (uniform >= np.float32(ratio)).reshape(shape)


def self_test() -> None:
    """Random123's kat_vectors for philox4x32 with 10 rounds."""
    answers = [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
         (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ]
    for counter, key, expected in answers:
        got = tuple(int(word) for word in philox4x32(counter, key))
        assert got == expected, (counter, key, [hex(word) for word in got])
    kept = keep_mask((100, 101), 0.1, seed=3, op=0, microbatch=0, step=0).mean()
    assert abs(kept - 0.9) < 0.01, kept


if __name__ == "__main__":
    self_test()
    print("philox4x32-10: known answers match")
