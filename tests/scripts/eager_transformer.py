"""A transformer of Layers that learns to repeat sentences in which words follow each other, with a rate by Noam's rule."""

from __future__ import print_function

import numpy as np

import fluid
from fluid import layers
from fluid.dygraph import FC, Embedding, Layer, LayerNorm, to_variable
from fluid.dygraph.learning_rate_scheduler import LearningRateDecay

VOCAB, LENGTH, MODEL, HEADS, BATCH = 10, 6, 24, 2, 12


class NoamDecay(LearningRateDecay):
    def __init__(self, d_model, warmup_steps, static_lr=0.2, begin=1, step=1, dtype="float32"):
        super(NoamDecay, self).__init__(begin, step, dtype)
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.static_lr = static_lr

    def step(self):
        a = self.create_lr_var(self.step_num**-0.5)
        b = self.create_lr_var((self.warmup_steps**-1.5) * self.step_num)
        return (self.d_model**-0.5) * layers.elementwise_min(a, b) * self.static_lr


class PrePostProcessLayer(Layer):
    def __init__(self, name_scope, process_cmd, shape_len=None):
        super(PrePostProcessLayer, self).__init__(name_scope)
        for cmd in process_cmd:
            if cmd == "n":
                self._layer_norm = LayerNorm(
                    name_scope=self.full_name(),
                    begin_norm_axis=shape_len - 1,
                    param_attr=fluid.ParamAttr(initializer=fluid.initializer.Constant(1.0)),
                    bias_attr=fluid.ParamAttr(initializer=fluid.initializer.Constant(0.0)),
                )

    def forward(self, prev_out, out, process_cmd, dropout_rate=0.0):
        for cmd in process_cmd:
            if cmd == "a":
                out = out + prev_out if prev_out is not None else out
            elif cmd == "n":
                out = self._layer_norm(out)
            elif cmd == "d" and dropout_rate:
                out = layers.dropout(out, dropout_prob=dropout_rate, is_test=False)
        return out


class MultiHeadAttentionLayer(Layer):
    def __init__(self, name_scope, d_model, n_head):
        super(MultiHeadAttentionLayer, self).__init__(name_scope)
        self._n_head, self._d_key = n_head, d_model // n_head
        self._q_fc = FC(name_scope=self.full_name(), size=d_model, bias_attr=False, num_flatten_dims=2)
        self._k_fc = FC(name_scope=self.full_name(), size=d_model, bias_attr=False, num_flatten_dims=2)
        self._v_fc = FC(name_scope=self.full_name(), size=d_model, bias_attr=False, num_flatten_dims=2)
        self._proj_fc = FC(name_scope=self.full_name(), size=d_model, bias_attr=False, num_flatten_dims=2)

    def forward(self, queries, keys, values, attn_bias):
        keys = queries if keys is None else keys
        values = keys if values is None else values

        def heads(x):
            return layers.transpose(layers.reshape(x, shape=[0, 0, self._n_head, self._d_key], inplace=False), perm=[0, 2, 1, 3])

        q, k, v = heads(self._q_fc(queries)), heads(self._k_fc(keys)), heads(self._v_fc(values))
        product = layers.matmul(x=q, y=k, transpose_y=True, alpha=self._d_key**-0.5)
        if attn_bias is not None:
            product += attn_bias
        out = layers.transpose(layers.matmul(layers.softmax(product), v), perm=[0, 2, 1, 3])
        out = layers.reshape(x=out, shape=[0, 0, out.shape[2] * out.shape[3]], inplace=False)
        return self._proj_fc(out)


class SubLayers(Layer):
    """Attention to itself, to what is encoded if there is any, and a feed-forward net, each between norms and sums."""

    def __init__(self, name_scope, d_model, n_head, crosses):
        super(SubLayers, self).__init__(name_scope)
        self._pre, self._attentions = [], []
        for i in range(2 if crosses else 1):
            self._pre.append(self.add_sublayer("pre_%d" % i, PrePostProcessLayer(self.full_name(), "n", 3)))
            self._attentions.append(self.add_sublayer("attn_%d" % i, MultiHeadAttentionLayer(self.full_name(), d_model, n_head)))
        self._post = PrePostProcessLayer(self.full_name(), "da", 3)
        self._ffn_norm = PrePostProcessLayer(self.full_name(), "n", 3)
        self._i2h = FC(name_scope=self.full_name(), size=d_model * 2, num_flatten_dims=2, act="relu")
        self._h2o = FC(name_scope=self.full_name(), size=d_model, num_flatten_dims=2)

    def forward(self, x, encoded, self_bias):
        for i, (pre, attention) in enumerate(zip(self._pre, self._attentions)):
            memory = encoded if i else None
            x = self._post(x, attention(pre(None, x, "n"), memory, memory, None if i else self_bias), "da", 0.1)
        return self._post(x, self._h2o(self._i2h(self._ffn_norm(None, x, "n"))), "da", 0.1)


class TransFormer(Layer):
    def __init__(self, name_scope):
        super(TransFormer, self).__init__(name_scope)
        self._word_emb = Embedding(
            name_scope=self.full_name(),
            size=[VOCAB, MODEL],
            padding_idx=0,
            param_attr=fluid.ParamAttr(name="word_emb_table", initializer=fluid.initializer.Normal(0.0, MODEL**-0.5)),
        )
        self._pos_emb = Embedding(
            name_scope=self.full_name(),
            size=[LENGTH, MODEL],
            param_attr=fluid.ParamAttr(
                name="pos_enc_table",
                initializer=fluid.initializer.NumpyArrayInitializer(np.eye(LENGTH, MODEL).astype("float32")),
                trainable=False,
            ),
        )
        self._encoder = SubLayers(self.full_name(), MODEL, HEADS, crosses=False)
        self._decoder = SubLayers(self.full_name(), MODEL, HEADS, crosses=True)
        self._norm = PrePostProcessLayer(self.full_name(), "n", 3)
        self._fc = FC(name_scope=self.full_name(), size=VOCAB, bias_attr=False)

    def _embed(self, word, pos):
        pos_enc = self._pos_emb(pos)
        pos_enc.stop_gradient = True
        return layers.scale(x=self._word_emb(word), scale=MODEL**0.5) + pos_enc

    def forward(self, src_word, trg_word, pos, future_bias, label, weights):
        encoded = self._encoder(self._embed(src_word, pos), None, None)
        decoded = self._norm(None, self._decoder(self._embed(trg_word, pos), encoded, future_bias), "n")
        predict = self._fc(layers.reshape(decoded, [-1, MODEL], inplace=False))
        label_out = layers.label_smooth(label=layers.one_hot(input=label, depth=VOCAB), epsilon=0.1)
        cost = layers.softmax_with_cross_entropy(logits=predict, label=label_out, soft_label=True)
        sum_cost = layers.reduce_sum(cost * weights)
        token_num = layers.reduce_sum(weights)
        token_num.stop_gradient = True
        return sum_cost, sum_cost / token_num, predict, token_num


def batch(rng):
    words = 2 + (rng.randint(0, VOCAB - 2, (BATCH, 1)) + np.arange(LENGTH)) % (VOCAB - 2)
    words = words.astype("int64")
    target = np.concatenate([np.ones((BATCH, 1), "int64"), words[:, :-1]], axis=1)
    pos = np.tile(np.arange(LENGTH), [BATCH, 1]).astype("int64")
    bias = np.tile(np.triu(np.full((LENGTH, LENGTH), -1e9, "float32"), 1), [BATCH, HEADS, 1, 1])
    arrays = [words[:, :, np.newaxis], target[:, :, np.newaxis], pos[:, :, np.newaxis], bias, words.reshape(-1, 1)]
    return arrays + [np.ones((BATCH * LENGTH, 1), "float32")]


def main(steps=30):
    rng = np.random.RandomState(0)
    with fluid.dygraph.guard():
        fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 90
        transformer = TransFormer("transformer")
        optimizer = fluid.optimizer.AdamOptimizer(learning_rate=NoamDecay(MODEL, 20), beta1=0.9, beta2=0.997, epsilon=1e-9)
        losses = []
        for step in range(steps):
            variables = [to_variable(array) for array in batch(rng)]
            for var in variables:
                var.stop_gradient = True
            sum_cost, avg_cost, predict, token_num = transformer(*variables)
            avg_cost.backward()
            optimizer.minimize(avg_cost)
            transformer.clear_gradients()
            losses.append(float(avg_cost.numpy()))
            if step % 20 == 0:
                total_avg_cost = np.array(sum_cost.numpy()) / token_num.numpy()
                print("step: %d, avg loss: %f, ppl: %f" % (step, total_avg_cost, np.exp(min(float(total_avg_cost), 100))))
        right = float(np.mean(predict.numpy().argmax(1) == variables[4].numpy().flatten()))
        print("%.2f of the last words are right, %d optimizer states" % (right, len(optimizer.state_dict())))
    return losses, right


if __name__ == "__main__":
    main(200)
