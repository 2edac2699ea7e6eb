"""Predict what people think of films: from who they are, and from a film's number, kinds and title.

A plain program of `paddle.fluid` 1.6 in which only the import is another. People, films and ratings are made up: each age
and job has its taste, a film has one kind or several, and its title gives them away. A film has as many kinds and
words as it likes: they are sequences, which are fed one after the other, with their lengths.
"""

from __future__ import annotations

import random

import numpy as np
from training import judge, parse, parser_of, start, train

import fluid
from fluid import layers

KINDS = ["comedy", "thriller", "romance", "western", "fantasy", "documentary"]
TITLES = [
    "laughing monkey holiday prank wedding",
    "midnight knife silence stranger shadow",
    "kiss summer letters moonlight heart",
    "saddle canyon outlaw dust revolver",
    "dragon ring wizard tower prophecy",
    "glacier bees factory election ocean",
]
WORDS = ["the", "of", "last", *" ".join(TITLES).split()]
AGES, JOBS, GENDERS, USERS, FILMS = 7, 8, 2, 200, 150


def ratings(count, seed):
    """`count` tuples (user, gender, age, job, film, kinds, title, rating from 1 to 5), the last with some noise."""
    rng = random.Random(seed)
    tastes = [[rng.uniform(-1, 1) for _ in KINDS] for _ in range(AGES + JOBS)]
    users = [(user, rng.randrange(GENDERS), rng.randrange(AGES), rng.randrange(JOBS)) for user in range(USERS)]
    films = []
    for film in range(FILMS):
        kinds = rng.sample(range(len(KINDS)), rng.choice([1, 1, 2, 3]))
        words = [WORDS.index(rng.choice(TITLES[kind].split())) for kind in kinds]
        films.append((film, kinds, [rng.randrange(3), *words, rng.randrange(3)][: 2 + len(words)]))
    for _ in range(count):
        (user, gender, age, job), (film, kinds, title) = rng.choice(users), rng.choice(films)
        liking = np.mean([tastes[age][kind] + tastes[AGES + job][kind] for kind in kinds]) + rng.gauss(0, 0.1)
        yield user, gender, age, job, film, kinds, title, float(np.clip(3 + 1.5 * liking, 1, 5))


def inputs():
    """The variables that a rating is fed to, in the order of `ratings`."""
    singles = [layers.data(name=name, shape=[1], dtype="int64") for name in ("user", "gender", "age", "job", "film")]
    sequences = [layers.data(name=name, shape=[1], dtype="int64", lod_level=1) for name in ("kinds", "title")]
    return [*singles, *sequences, layers.data(name="rating", shape=[1], dtype="float32")]


def embedded(number, count, size, name):
    """A vector of `size` for each number below `count`; only the rows that occur are updated."""
    return layers.embedding(number, size=[count, size], is_sparse=True, param_attr=fluid.ParamAttr(name=f"{name}_vectors"))


def of_user(user, gender, age, job, size):
    """A vector for each user: the user's properties, concatenated, through a dense layer."""
    parts = []
    for number, count, name in ((user, USERS, "user"), (gender, GENDERS, "gender"), (age, AGES, "age"), (job, JOBS, "job")):
        parts.append(layers.fc(embedded(number, count, size // 2, name), size=size // 2))
    return layers.fc(layers.concat(parts, axis=1), size=size, act="tanh")


def of_film(film, kinds, title, size):
    """A vector for each film: of its number, of the sum of its kinds, and of a convolution over its title."""
    number = layers.fc(embedded(film, FILMS, size // 2, "film"), size=size // 2)
    kind = layers.sequence_pool(embedded(kinds, len(KINDS), size // 2, "kind"), pool_type="sum")
    words = embedded(title, len(WORDS), size // 2, "word")
    words = fluid.nets.sequence_conv_pool(words, num_filters=size // 2, filter_size=3, act="tanh", pool_type="sum")
    return layers.fc(layers.concat([number, kind, words], axis=1), size=size, act="tanh")


def recommender(user, gender, age, job, film, kinds, title, rating, size=32):
    """Predicted ratings, from the angle between the vectors of user and film, and the mean of their squared errors."""
    likeness = layers.cos_sim(of_user(user, gender, age, job, size), of_film(film, kinds, title, size))
    predicted = layers.scale(likeness, scale=2.0, bias=3.0)
    return predicted, layers.mean(layers.square_error_cost(input=predicted, label=rating))


def main():
    args = parse(parser_of(__doc__, epochs=10, samples=4000, goal=0.8, of="share of the variance that is predicted"))

    # The program: what to compute, as data.
    feed_list = inputs()
    predicted, loss = recommender(*feed_list)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.005).minimize(loss)

    # The executor: computes it.
    executor = start(args.seed)
    (*samples,) = ratings(args.samples + 400, args.seed)
    losses = train(executor, samples[400:], feed_list, loss, args.epochs, batch_size=32)

    unseen = samples[:400]
    feed = fluid.DataFeeder(feed_list, fluid.CPUPlace()).feed(unseen)
    guesses, error = executor.run(test_program, feed=feed, fetch_list=[predicted, loss])
    print("\nsome ratings, and what was predicted:")
    for (*_, title, rating), guess in zip(unseen[:5], guesses[:, 0], strict=False):
        print(f"  {' '.join(WORDS[word] for word in title):40} {rating:.1f}  {guess:.1f}")
    variance = np.var([sample[-1] for sample in unseen])
    judge(args, losses, 1 - np.asarray(error).item() / variance, "variance of unseen ratings that is predicted")


if __name__ == "__main__":
    main()
