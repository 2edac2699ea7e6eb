"""Q-learning with a replay memory and a second net for the targets, on a corridor whose goal is at its end."""

from __future__ import print_function

import collections
import random

import numpy as np

import fluid
from fluid.dygraph import Linear, to_variable

CELLS, ACTIONS, GAMMA, LONGEST = 8, 2, 0.9, 60


class Corridor(object):
    """Steps to the left or right; only the last cell is worth something."""

    def reset(self):
        self.place = 0
        return self.place

    def step(self, action):
        self.place = min(max(self.place + (1 if action else -1), 0), CELLS - 1)
        is_done = self.place == CELLS - 1
        return self.place, float(is_done), is_done


class QNet(fluid.dygraph.Layer):
    def __init__(self):
        super(QNet, self).__init__()
        self.fc1 = Linear(CELLS, 32, act="relu")
        self.fc2 = Linear(32, ACTIONS)

    def forward(self, obs):
        return self.fc2(self.fc1(obs))


class Agent(object):
    def __init__(self):
        self.model, self.target = QNet(), QNet()
        self.memory = collections.deque(maxlen=2000)
        self.optimizer = fluid.optimizer.Adam(learning_rate=0.005, parameter_list=self.model.parameters())
        self.sync()

    def sync(self):
        self.target.set_dict(self.model.state_dict())

    def act(self, place, epsilon):
        if random.random() < epsilon:
            return random.randrange(ACTIONS)
        with fluid.dygraph.no_grad():
            values = self.model(to_variable(np.eye(CELLS, dtype="float32")[[place]])).numpy()[0]
        return int(np.random.choice(np.flatnonzero(values == values.max())))

    def learn(self, batch_size):
        places, actions, rewards, following, done = map(np.array, zip(*random.sample(self.memory, batch_size)))
        one_hot = np.eye(CELLS, dtype="float32")
        values = self.model(to_variable(one_hot[places]))
        chosen = fluid.layers.one_hot(to_variable(actions.astype("int64").reshape(-1, 1)), ACTIONS)
        value = fluid.layers.reduce_sum(fluid.layers.elementwise_mul(values, chosen), dim=1)
        best = fluid.layers.reduce_max(self.target(to_variable(one_hot[following])), dim=1)
        best.stop_gradient = True
        wanted = to_variable(rewards.astype("float32")) + GAMMA * best * to_variable((1 - done).astype("float32"))
        loss = fluid.layers.reduce_mean(fluid.layers.square_error_cost(value, wanted))
        loss.backward()
        self.optimizer.minimize(loss)
        self.model.clear_gradients()


def main(steps=40):
    """The lengths of the episodes, and the values of the first cell."""
    np.random.seed(1)
    random.seed(1)
    with fluid.dygraph.guard():
        fluid.default_main_program().random_seed = 1
        env, agent, lengths, count = Corridor(), Agent(), [], 0
        for episode in range(steps):
            place, length, is_done = env.reset(), 0, False
            while not is_done and length < LONGEST:
                action = agent.act(place, epsilon=max(0.05, 1.0 - episode / 10.0))
                following, reward, is_done = env.step(action)
                agent.memory.append((place, action, reward, following, is_done))
                place, length, count = following, length + 1, count + 1
                if len(agent.memory) >= 64:
                    agent.learn(32)
                if count % 50 == 0:
                    agent.sync()
            lengths.append(float(length))
        values = agent.model(to_variable(np.eye(CELLS, dtype="float32"))).numpy()
    return lengths, values
