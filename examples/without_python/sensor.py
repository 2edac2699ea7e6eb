"""Compile a net that predicts the next value of a sensor from eight values, for sensor.c on a board with a Cortex-M4.

    python sensor.py --target cortex-m4
    arm-none-eabi-gcc -mthumb -mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16 --specs=rdimon.specs -T mps2.ld \\
        -O2 mps2.c sensor.c net.o -o sensor.elf
    qemu-system-arm -M mps2-an386 -nographic -semihosting-config enable=on,target=native -kernel sensor.elf
"""

from __future__ import annotations

import argparse
from pathlib import Path

import fluid
from fluid import layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cortex-m4", help="the processor (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path(), help="the folder to write to")
    args = parser.parse_args()
    fluid.default_startup_program().random_seed = 1
    window, value = fluid.data("window", [1, 8]), fluid.data("value", [1, 1])
    prediction = layers.fc(layers.fc(window, 8, act="relu"), 1)
    loss = layers.mean(layers.square_error_cost(prediction, value))
    fluid.optimizer.SGD(0.05).minimize(loss)
    library = fluid.compile_program(
        fluid.default_main_program(),
        fetches={"loss": loss, "prediction": prediction},
        startup=fluid.default_startup_program(),
        target=args.target,
        output=args.output / "net",
    )
    print("\n".join(library.paths))


if __name__ == "__main__":
    main()
