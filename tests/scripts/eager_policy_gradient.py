"""REINFORCE: the probability of each action grows with the reward of the episode from there on, less a moving mean."""

from __future__ import print_function

import numpy as np

import fluid
from fluid.dygraph import Linear, to_variable

CELLS, GAMMA, LONGEST = 6, 0.95, 40


class Policy(fluid.dygraph.Layer):
    def __init__(self):
        super(Policy, self).__init__()
        self.hidden = Linear(CELLS, 16, act="tanh")
        self.out = Linear(16, 2, act="softmax")

    def forward(self, obs):
        return self.out(self.hidden(obs))


def episode_of(policy):
    """Walk until the last cell; the places, the actions and the discounted rewards."""
    place, places, actions, rewards = 0, [], [], []
    while place < CELLS - 1 and len(actions) < LONGEST:
        obs = np.zeros((1, CELLS), dtype="float32")
        obs[0, place] = 1.0
        with fluid.dygraph.no_grad():
            probabilities = policy(to_variable(obs)).numpy()[0].astype("float64")
        action = np.random.choice(2, p=probabilities / probabilities.sum())
        places.append(obs)
        actions.append([action])
        place = min(max(place + 2 * action - 1, 0), CELLS - 1)
        rewards.append(-0.1 + (place == CELLS - 1))
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + GAMMA * total
        returns.append(total)
    return np.concatenate(places), np.array(actions, dtype="int64"), np.array(returns[::-1], dtype="float32").reshape(-1, 1)


def main(steps=80):
    """The lengths of the episodes, and the probabilities of both actions in each cell."""
    np.random.seed(3)
    with fluid.dygraph.guard():
        fluid.default_main_program().random_seed = 3
        policy = Policy()
        optimizer = fluid.optimizer.Adam(learning_rate=0.02, parameter_list=policy.parameters())
        lengths, mean = [], 0.0
        for _ in range(steps):
            obs, actions, returns = episode_of(policy)
            mean = 0.9 * mean + 0.1 * float(returns.mean())
            probabilities = policy(to_variable(obs))
            surprise = fluid.layers.cross_entropy(probabilities, to_variable(actions))
            loss = fluid.layers.reduce_mean(surprise * to_variable(returns - mean))
            loss.backward()
            optimizer.minimize(loss)
            policy.clear_gradients()
            lengths.append(float(len(actions)))
        probabilities = policy(to_variable(np.eye(CELLS, dtype="float32"))).numpy()
    return lengths, probabilities
