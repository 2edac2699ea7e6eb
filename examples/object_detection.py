"""Find coloured shapes in pictures, with a small SSD: disks, squares and triangles, where they are and how large.

A plain program of `paddle.fluid` 1.6 in which only the import is another. Three feature maps predict boxes, the coarser ones
large boxes; how many a picture has differs, so labels are sequences.
"""

from __future__ import annotations

import numpy as np
from training import judge, parse, parser_of, start, train

import fluid
from fluid import layers

SIZE = 48
"""Pixels along a side of a picture."""
SHAPES = ["background", "disk", "square", "triangle"]


def shape(kind, down, across):
    """A mask of the places that belong to a shape; coordinates go from -1 to 1 in its box."""
    if kind == 1:
        return down**2 + across**2 <= 1
    inside = (np.abs(down) <= 1) & (np.abs(across) <= 1)
    return inside if kind == 2 else inside & (np.abs(across) <= (1 + down) / 2)


def picture(random):
    """A picture [3, SIZE, SIZE] with one to three shapes of random colours, their boxes in parts of it, and their labels."""
    image = 0.15 * random.random((3, SIZE, SIZE))
    rows, columns = np.mgrid[:SIZE, :SIZE] + 0.5
    boxes, labels = [], []
    for _ in range(random.integers(1, 4)):
        size = random.uniform(10, 24) * np.array([1, random.uniform(0.75, 1.3)])
        first = random.uniform(0, SIZE - size)
        box = np.concatenate([first, first + size])
        if any((np.minimum(box[2:], other[2:]) > np.maximum(box[:2], other[:2])).all() for other in boxes):
            continue  # they do not hide each other
        kind = int(random.integers(1, len(SHAPES)))
        across, down = (
            2 * (places - start) / extent - 1 for places, start, extent in zip((columns, rows), first, size, strict=True)
        )
        image[:, shape(kind, down, across)] += random.uniform(0.3, 0.85, (3, 1))
        boxes.append(box)
        labels.append([kind])
    return image.astype("float32"), np.array(boxes, "float32") / SIZE, np.array(labels, "int32")


def ssd(image, filters=(16, 32, 48, 64)):
    """The predictions of three feature maps (an 8th of the extent and less): locations, classes and priors."""
    features, maps = image, []
    for number in filters:
        features = layers.conv2d(features, number, 3, stride=2, padding=1, bias_attr=False)
        features = layers.batch_norm(features, act="relu")
        maps.append(features)
    return layers.multi_box_head(
        maps[1:],
        image,
        base_size=SIZE,
        num_classes=len(SHAPES),
        aspect_ratios=[[1.5]] * 3,
        min_sizes=[10.0, 16.0, 22.0],
        max_sizes=[16.0, 22.0, 30.0],
        kernel_size=3,
        pad=1,
        flip=True,
    )


def draw(image, detected):
    """The picture with detections as text: frames, and classes in their corners."""
    shades = " .:*#"
    levels = np.clip(image.mean(axis=0) * len(shades), 0, len(shades) - 1).astype(int)
    cells = [[shades[level] for level in row] for row in levels[::2]]  # characters are twice as high as wide
    for kind, score, *box in detected:
        left, top, right, bottom = np.clip(np.array(box) * SIZE, 0, SIZE - 1).astype(int)
        top, bottom = top // 2, bottom // 2
        for row in range(top, bottom + 1):
            cells[row][left] = cells[row][right] = "|"
        for row in (top, bottom):
            cells[row][left : right + 1] = "+" + "-" * (right - left - 1) + ("+" if right > left else "")
        name = f"{SHAPES[int(kind)]} {score:.0%}"[: SIZE - left - 1]
        cells[top][left + 1 : left + 1 + len(name)] = name
    print("\n".join(("  " + "".join(row)).rstrip() for row in cells))


def main():
    args = parse(parser_of(__doc__, epochs=10, samples=640, goal=0.8, of="mean average precision"))

    # The program: what to compute, as data.
    image = layers.data(name="image", shape=[3, SIZE, SIZE], dtype="float32")
    box = layers.data(name="box", shape=[4], dtype="float32", lod_level=1)
    label = layers.data(name="label", shape=[1], dtype="int32", lod_level=1)
    location, confidence, prior, variance = ssd(image)
    test_program = fluid.default_main_program().clone(for_test=True)
    loss = layers.reduce_sum(layers.ssd_loss(location, confidence, box, label, prior, variance))
    fluid.optimizer.Adam(learning_rate=0.002).minimize(loss)

    # The same net in another program, which looks for shapes and measures how well it finds them.
    with fluid.program_guard(test_program, fluid.default_startup_program()):
        variables = test_program.global_block().vars
        where, which, priors, variances = (variables[variable.name] for variable in (location, confidence, prior, variance))
        detected = layers.detection_output(where, which, priors, variances, nms_threshold=0.3, score_threshold=0.05)
        measure = fluid.metrics.DetectionMAP(detected, variables["label"], variables["box"], class_num=len(SHAPES))

    # The executor: computes it.
    executor = start(args.seed)
    random = np.random.default_rng(args.seed)
    losses = train(
        executor, [picture(random) for _ in range(args.samples)], [image, box, label], loss, args.epochs, batch_size=16
    )

    measure.reset(executor)
    _, mean_precision = measure.get_map_var()
    feeder = fluid.DataFeeder([variables[name] for name in ("image", "box", "label")], fluid.CPUPlace())
    for _ in range(8):
        unseen = [picture(random) for _ in range(16)]
        feed = feeder.feed(unseen)
        results, reached = executor.run(test_program, feed, [detected, mean_precision], return_numpy=False)

    rows, (count, *_) = np.asarray(results), results.recursive_sequence_lengths()[0]
    rows = rows[:count]
    print(f"\nin a picture of {', '.join(SHAPES[kind] for kind in unseen[0][2].ravel())}:")
    draw(unseen[0][0], rows[rows[:, 1] >= 0.5] if rows.shape[1] == 6 else [])
    judge(args, losses, np.asarray(reached).item(), "mean average precision on unseen pictures")


if __name__ == "__main__":
    main()
