# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Strings of spoken digits, made of the ten recordings in Debian's package asterisk-core-sounds-en-wav (Allison Smith, CC-BY-SA-3.0)."""
import wave

import debian
import numpy as np

RATE, FRAME, HOP = 8000, 256, 160             # samples per second, of a frame, and between two frames
BANDS = 20
MOST = 3                                      # digits of a string
SECONDS = 2.4


def recordings() -> list[np.ndarray]:
    folder = debian.files("asterisk-core-sounds-en-wav", "usr/share/asterisk/sounds/en_US_f_Allison/digits")
    found = []
    for digit in range(10):
        with wave.open(str(folder / f"{digit}.wav")) as file:
            sound = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
        loud = np.flatnonzero(np.abs(sound) > 0.02)
        found.append(sound[loud[0]:loud[-1]])
    return found


def spectrogram(sound: np.ndarray) -> np.ndarray:
    """Returns the logarithms of the energy in bands that widen with the frequency [frames, BANDS]."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, FRAME)[::HOP] * np.hanning(FRAME)
    energy = np.abs(np.fft.rfft(frames)) ** 2
    edges = np.unique(np.round(np.geomspace(3, FRAME // 2, BANDS + 1)).astype(int))
    edges = np.round(np.interp(np.linspace(0, 1, BANDS + 1), np.linspace(0, 1, len(edges)), edges)).astype(int)
    bands = np.add.reduceat(energy, edges[:-1], 1)
    return np.log(bands + 1e-4)


def strings(count: int, seed: int) -> dict[str, np.ndarray]:
    """Returns spectrograms of strings of 1 to MOST digits at several speeds and pitches, in noise, with their labels (digit + 1)."""
    random, spoken = np.random.default_rng(seed), recordings()
    size = int(RATE * SECONDS)
    sounds, labels, lengths = [], np.zeros((count, MOST), np.int64), random.integers(1, MOST + 1, count)
    for row, length in enumerate(lengths):
        sound, at = random.standard_normal(size) * random.uniform(0.001, 0.02), random.integers(RATE // 10)
        for place, digit in enumerate(random.integers(10, size=length)):
            speed = random.uniform(0.9, 1.25)
            said = np.interp(np.arange(0, len(spoken[digit]) - 1, speed), np.arange(len(spoken[digit])), spoken[digit])[:size - at]
            sound[at:at + len(said)] += random.uniform(0.4, 1) * said
            at = min(at + len(said) + random.integers(RATE // 20), size)
            labels[row, place] = digit + 1
        sounds.append(spectrogram(sound))
    return {"sounds": ((np.stack(sounds) + 3) / 3).astype(np.float32), "labels": labels, "lengths": lengths}
