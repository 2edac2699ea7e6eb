import json

import numpy as np

import fluid
from fluid import layers
from fluid.dataset import digits

# What to compute, as data.
image = fluid.data("image", [None, 1, 8, 8])
label = fluid.data("label", [None, 1], "int64")
hidden = fluid.nets.simple_img_conv_pool(
    image, num_filters=20, filter_size=3, conv_padding=1, pool_size=2, pool_stride=2, act="relu"
)
hidden = layers.fc(hidden, 64, act="relu")
probabilities = layers.fc(hidden, 10, act="softmax")
loss = layers.mean(layers.cross_entropy(probabilities, label))
test = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adam(learning_rate=0.003).minimize(loss)
tell("program", json.dumps({"text": str(fluid.default_main_program())}))  # noqa: F821  (shows it on the page)

# Compute it.
executor = fluid.Executor()
fluid.default_startup_program().random_seed = 1
executor.run(fluid.default_startup_program())
images, labels = digits.arrays("train")
unseen, truth = digits.arrays("test")
order = np.random.default_rng(1)
for epoch in range(8):
    numbers = order.permutation(len(images))
    for start in range(0, len(numbers), 64):
        batch = numbers[start : start + 64]
        (found,) = executor.run(feed={"image": images[batch], "label": labels[batch]}, fetch_list=[loss])
        tell("step", json.dumps({"loss": found.item()}))  # noqa: F821
    (guesses,) = executor.run(test, {"image": unseen, "label": truth}, [probabilities])
    right = float((guesses.argmax(1) == truth[:, 0]).mean())
    tell("epoch", json.dumps({"text": f"pass {epoch + 1} of 8: loss {found.item():.3f}, right on {right:.1%} of unseen digits"}))  # noqa: F821

wrong = np.flatnonzero(guesses.argmax(1) != truth[:, 0])
shown = [*range(12), *wrong[:4]]
items = [[unseen[i].ravel().tolist(), int(guesses[i].argmax()), int(truth[i, 0])] for i in shown]
tell("guesses", json.dumps({"items": items}))  # noqa: F821
tell("done", json.dumps({"text": f"right on {right:.1%} of {len(truth)} digits that it has not seen", "accuracy": right}))  # noqa: F821
