# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""XXH64 with seed 0 (Collet, xxHash, 2012) of short names, by which the program's counter-based generator tells tensors apart.

usage: xxh64.py      checks published answers
"""
PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
MASK = (1 << 64) - 1


def rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & MASK


def xxh64(data: bytes) -> int:
    if len(data) >= 32:
        raise ValueError("only names of less than 32 bytes")
    value, at = PRIMES[4] + len(data), 0
    while at + 8 <= len(data):
        word = rotate(int.from_bytes(data[at:at + 8], "little") * PRIMES[1] & MASK, 31) * PRIMES[0] & MASK
        value, at = (rotate(value ^ word, 27) * PRIMES[0] + PRIMES[3]) & MASK, at + 8
    if at + 4 <= len(data):
        value ^= int.from_bytes(data[at:at + 4], "little") * PRIMES[0] & MASK
        value, at = (rotate(value, 23) * PRIMES[1] + PRIMES[2]) & MASK, at + 4
    for byte in data[at:]:
        value = rotate(value ^ (byte * PRIMES[4] & MASK), 11) * PRIMES[0] & MASK
    for shift, prime in ((33, PRIMES[1]), (29, PRIMES[2]), (32, 1)):
        value = (value ^ (value >> shift)) * prime & MASK
    return value


if __name__ == "__main__":
    for text, answer in (("", 0xEF46DB3751D8E999), ("a", 0xD24EC4F1A98C6E5B), ("abc", 0x44BC2CF5AD770999)):
        assert xxh64(text.encode()) == answer, (text, hex(xxh64(text.encode())))
    print("xxh64: known answers match")
