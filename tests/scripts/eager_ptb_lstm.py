"""A language model with an LSTM of its own, two layers deep, whose states go on from batch to batch; gradients are clipped."""

from __future__ import print_function

import numpy as np

import fluid
from fluid.dygraph.base import to_variable
from fluid.dygraph.nn import Embedding

VOCAB, HIDDEN, STEPS, LAYERS, BATCH = 8, 24, 5, 2, 16


class SimpleLSTMRNN(fluid.dygraph.Layer):
    def __init__(self, name_scope, hidden_size, num_steps, num_layers=2, init_scale=0.1, dropout=None):
        super(SimpleLSTMRNN, self).__init__(name_scope)
        self._hidden_size = hidden_size
        self._num_layers = num_layers
        self._init_scale = init_scale
        self._dropout = dropout
        self._num_steps = num_steps

    def _build_once(self, input_embedding, init_hidden=None, init_cell=None):
        self.weight_1_arr = []
        self.bias_arr = []
        uniform = fluid.initializer.UniformInitializer(low=-self._init_scale, high=self._init_scale)
        for i in range(self._num_layers):
            weight_1 = self.create_parameter(
                attr=fluid.ParamAttr(initializer=uniform),
                shape=[self._hidden_size * 2, self._hidden_size * 4],
                dtype="float32",
                default_initializer=uniform,
            )
            self.weight_1_arr.append(self.add_parameter("w_%d" % i, weight_1))
            bias_1 = self.create_parameter(
                attr=fluid.ParamAttr(initializer=uniform),
                shape=[self._hidden_size * 4],
                dtype="float32",
                default_initializer=fluid.initializer.Constant(0.0),
            )
            self.bias_arr.append(self.add_parameter("b_%d" % i, bias_1))

    def forward(self, input_embedding, init_hidden=None, init_cell=None):
        hidden_array, cell_array = [], []
        for i in range(self._num_layers):
            pre_hidden = fluid.layers.slice(init_hidden, axes=[0], starts=[i], ends=[i + 1])
            pre_cell = fluid.layers.slice(init_cell, axes=[0], starts=[i], ends=[i + 1])
            hidden_array.append(fluid.layers.reshape(pre_hidden, shape=[-1, self._hidden_size]))
            cell_array.append(fluid.layers.reshape(pre_cell, shape=[-1, self._hidden_size]))

        res = []
        for index in range(self._num_steps):
            step_input = fluid.layers.slice(input_embedding, axes=[1], starts=[index], ends=[index + 1])
            step_input = fluid.layers.reshape(step_input, shape=[-1, self._hidden_size])
            for k in range(self._num_layers):
                nn = fluid.layers.concat([step_input, hidden_array[k]], 1)
                gate_input = fluid.layers.matmul(x=nn, y=self.weight_1_arr[k])
                gate_input = fluid.layers.elementwise_add(gate_input, self.bias_arr[k])
                i, j, f, o = fluid.layers.split(gate_input, num_or_sections=4, dim=-1)
                c = cell_array[k] * fluid.layers.sigmoid(f) + fluid.layers.sigmoid(i) * fluid.layers.tanh(j)
                m = fluid.layers.tanh(c) * fluid.layers.sigmoid(o)
                hidden_array[k], cell_array[k] = m, c
                step_input = m
                if self._dropout is not None and self._dropout > 0.0:
                    step_input = fluid.layers.dropout(
                        step_input, dropout_prob=self._dropout, dropout_implementation="upscale_in_train"
                    )
            res.append(fluid.layers.reshape(step_input, shape=[1, -1, self._hidden_size]))
        real_res = fluid.layers.transpose(x=fluid.layers.concat(res, 0), perm=[1, 0, 2])

        def stacked(states):
            states = fluid.layers.reshape(fluid.layers.concat(states, 1), shape=[-1, self._num_layers, self._hidden_size])
            return fluid.layers.transpose(x=states, perm=[1, 0, 2])

        return real_res, stacked(hidden_array), stacked(cell_array)


class PtbModel(fluid.dygraph.Layer):
    def __init__(self, name_scope, hidden_size, vocab_size, num_layers=2, num_steps=20, init_scale=0.1, dropout=None):
        super(PtbModel, self).__init__(name_scope)
        self.hidden_size, self.vocab_size = hidden_size, vocab_size
        self.num_layers, self.num_steps = num_layers, num_steps
        self.dropout = dropout
        self.simple_lstm_rnn = SimpleLSTMRNN(
            self.full_name(), hidden_size, num_steps, num_layers=num_layers, init_scale=init_scale, dropout=dropout
        )
        uniform = fluid.initializer.UniformInitializer(low=-init_scale, high=init_scale)
        self.embedding = Embedding(
            self.full_name(),
            size=[vocab_size, hidden_size],
            dtype="float32",
            is_sparse=False,
            param_attr=fluid.ParamAttr(name="embedding_para", initializer=uniform),
        )
        self.softmax_weight = self.create_parameter(
            attr=fluid.ParamAttr(), shape=[hidden_size, vocab_size], dtype="float32", default_initializer=uniform
        )
        self.softmax_bias = self.create_parameter(
            attr=fluid.ParamAttr(), shape=[vocab_size], dtype="float32", default_initializer=uniform
        )

    def forward(self, input, label, init_hidden, init_cell):
        init_h = fluid.layers.reshape(init_hidden, shape=[self.num_layers, -1, self.hidden_size])
        init_c = fluid.layers.reshape(init_cell, shape=[self.num_layers, -1, self.hidden_size])
        x_emb = self.embedding(input)
        x_emb = fluid.layers.reshape(x_emb, shape=[-1, self.num_steps, self.hidden_size])
        rnn_out, last_hidden, last_cell = self.simple_lstm_rnn(x_emb, init_h, init_c)
        projection = fluid.layers.matmul(rnn_out, self.softmax_weight)
        projection = fluid.layers.elementwise_add(projection, self.softmax_bias)
        projection = fluid.layers.reshape(projection, shape=[-1, self.vocab_size])
        loss = fluid.layers.softmax_with_cross_entropy(logits=projection, label=label, soft_label=False)
        loss = fluid.layers.reshape(loss, shape=[-1, self.num_steps])
        loss = fluid.layers.reduce_mean(loss, dim=[0])
        loss = fluid.layers.reduce_sum(loss)
        loss.permissions = True
        return loss, last_hidden, last_cell


def get_data_iter(raw_data, batch_size, num_steps):
    raw_data = np.asarray(raw_data, dtype="int64")
    batch_len = len(raw_data) // batch_size
    data = raw_data[: batch_size * batch_len].reshape((batch_size, batch_len))
    for i in range((batch_len - 1) // num_steps):
        x = np.copy(data[:, i * num_steps : (i + 1) * num_steps])
        y = np.copy(data[:, i * num_steps + 1 : (i + 1) * num_steps + 1])
        yield (x, y)


def main(steps=20):
    with fluid.dygraph.guard(fluid.CPUPlace()):
        fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 33
        np.random.seed(33)
        ptb_model = PtbModel("ptb_model", HIDDEN, VOCAB, num_layers=LAYERS, num_steps=STEPS, init_scale=0.4, dropout=None)
        words = np.cumsum(np.random.RandomState(1).randint(1, 3, BATCH * (STEPS * steps + 1))) % VOCAB

        grad_clip = fluid.dygraph_grad_clip.GradClipByGlobalNorm(5.0)
        boundaries = [steps // 2, steps * 3 // 4]
        sgd = fluid.optimizer.SGDOptimizer(
            learning_rate=fluid.layers.piecewise_decay(boundaries=boundaries, values=[1.0, 0.5, 0.25])
        )
        total_loss, iters, losses = 0.0, 0.0, []
        init_hidden_data = np.zeros((LAYERS, BATCH, HIDDEN), dtype="float32")
        init_cell_data = np.zeros((LAYERS, BATCH, HIDDEN), dtype="float32")
        for batch_id, (x_data, y_data) in enumerate(get_data_iter(words, BATCH, STEPS)):
            x = to_variable(x_data.reshape((-1, STEPS, 1)))
            y = to_variable(y_data.reshape((-1, 1)))
            init_hidden = to_variable(init_hidden_data)
            init_cell = to_variable(init_cell_data)
            dy_loss, last_hidden, last_cell = ptb_model(x, y, init_hidden, init_cell)
            out_loss = dy_loss.numpy()
            init_hidden_data = last_hidden.numpy()
            init_cell_data = last_cell.numpy()
            dy_loss.backward()
            sgd.minimize(dy_loss, grad_clip=grad_clip)
            ptb_model.clear_gradients()
            total_loss += out_loss
            iters += STEPS
            losses.append(float(out_loss) / STEPS)
            if batch_id % 10 == 0:
                ppl = np.exp(total_loss / iters)
                print(
                    "-- Batch:[%d]; ppl: %.5f; lr: %.5f, loss: %.5f"
                    % (batch_id, ppl, sgd._global_learning_rate().numpy(), out_loss)
                )
        state = sgd.state_dict()
        print(sorted(state), [value.numpy() for value in state.values()])
    return losses, None


if __name__ == "__main__":
    main(100)
