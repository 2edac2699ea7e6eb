"""Reads digits from a strip: convolutions, GRUs in both directions, and a decoder that attends to the columns."""

from __future__ import print_function

import numpy as np

import fluid
from fluid.dygraph.base import to_variable
from fluid.dygraph.nn import FC, BatchNorm, Conv2D, Embedding, GRUUnit, Pool2D

CLASSES = 6  # <s>, <e>, and four digits
HEIGHT, WIDTH, LENGTH, BATCH = 8, 16, 3, 8
ENCODER, DECODER, VECTOR = 12, 16, 8


class ConvBNPool(fluid.dygraph.Layer):
    def __init__(self, name_scope, out_ch, channels, act="relu", is_test=False, pool=True, use_cudnn=True):
        super(ConvBNPool, self).__init__(name_scope)
        self.pool = pool
        filter_size, conv_std = 3, (2.0 / (3**2 * channels)) ** 0.5
        conv_param = fluid.ParamAttr(
            initializer=fluid.initializer.Normal(0.0, conv_std), regularizer=fluid.regularizer.L2Decay(0.0005)
        )
        self.conv = Conv2D(
            self.full_name(), out_ch, filter_size=filter_size, padding=1, bias_attr=False, param_attr=conv_param, act=None
        )
        self.bn = BatchNorm(self.full_name(), out_ch, act=act, is_test=is_test)
        if self.pool:
            self.pool_0 = Pool2D(
                self.full_name(), pool_size=2, pool_type="max", pool_stride=2, use_cudnn=use_cudnn, ceil_mode=True
            )

    def forward(self, inputs):
        out = self.bn(self.conv(inputs))
        if self.pool:
            out = self.pool_0(out)
        return out


class DynamicGRU(fluid.dygraph.Layer):
    def __init__(self, scope_name, size, h_0=None, param_attr=None, bias_attr=None, is_reverse=False, origin_mode=False):
        super(DynamicGRU, self).__init__(scope_name)
        self.gru_unit = GRUUnit(
            self.full_name(), size * 3, param_attr=param_attr, bias_attr=bias_attr, activation="tanh",
            gate_activation="sigmoid", origin_mode=origin_mode,
        )  # fmt: skip
        self.h_0 = h_0
        self.is_reverse = is_reverse

    def forward(self, inputs):
        hidden = self.h_0
        res = []
        for i in range(inputs.shape[1]):
            if self.is_reverse:
                i = inputs.shape[1] - 1 - i
            input_ = inputs[:, i : i + 1, :]
            input_ = fluid.layers.reshape(input_, [-1, input_.shape[2]], inplace=False)
            hidden, _, _ = self.gru_unit(input_, hidden)
            hidden_ = fluid.layers.reshape(hidden, [-1, 1, hidden.shape[1]], inplace=False)
            res.append(hidden_)
        if self.is_reverse:
            res = res[::-1]
        return fluid.layers.concat(res, axis=1)


class EncoderNet(fluid.dygraph.Layer):
    def __init__(self, scope_name, rnn_hidden_size=ENCODER, is_test=False):
        super(EncoderNet, self).__init__(scope_name)
        para_attr = fluid.ParamAttr(initializer=fluid.initializer.Normal(0.0, 0.1))
        bias_attr = fluid.ParamAttr(initializer=fluid.initializer.Normal(0.0, 0.02), learning_rate=2.0)
        self.ocr_convs = ConvBNPool(self.full_name(), 6, 1, is_test=is_test)
        self.fc_1_layer = FC(self.full_name(), rnn_hidden_size * 3, param_attr=para_attr, bias_attr=False, num_flatten_dims=2)
        self.fc_2_layer = FC(self.full_name(), rnn_hidden_size * 3, param_attr=para_attr, bias_attr=False, num_flatten_dims=2)
        h_0 = np.zeros((BATCH, rnn_hidden_size), dtype="float32")
        h_0 = to_variable(h_0)
        self.gru_forward_layer = DynamicGRU(self.full_name(), rnn_hidden_size, h_0, para_attr, bias_attr)
        self.gru_backward_layer = DynamicGRU(self.full_name(), rnn_hidden_size, h_0, para_attr, bias_attr, is_reverse=True)
        self.encoded_proj_fc = FC(self.full_name(), DECODER, bias_attr=False, num_flatten_dims=2)

    def forward(self, inputs):
        conv_features = self.ocr_convs(inputs)
        transpose = fluid.layers.transpose(conv_features, perm=[0, 3, 1, 2])
        columns = fluid.layers.reshape(
            transpose, [-1, transpose.shape[1], transpose.shape[2] * transpose.shape[3]], inplace=False
        )
        gru_forward = self.gru_forward_layer(self.fc_1_layer(columns))
        gru_backward = self.gru_backward_layer(self.fc_2_layer(columns))
        encoded_vector = fluid.layers.concat(input=[gru_forward, gru_backward], axis=2)
        return gru_backward, encoded_vector, self.encoded_proj_fc(encoded_vector)


class SimpleAttention(fluid.dygraph.Layer):
    def __init__(self, scope_name, decoder_size):
        super(SimpleAttention, self).__init__(scope_name)
        self.fc_1 = FC(self.full_name(), decoder_size, act=None, bias_attr=False)
        self.fc_2 = FC(self.full_name(), 1, num_flatten_dims=2, act=None, bias_attr=False)

    def forward(self, encoder_vec, encoder_proj, decoder_state):
        decoder_state_fc = self.fc_1(decoder_state)
        decoder_state_proj = fluid.layers.reshape(decoder_state_fc, [-1, 1, decoder_state_fc.shape[1]], inplace=False)
        expanded = fluid.layers.expand(decoder_state_proj, [1, encoder_proj.shape[1], 1])
        concated = fluid.layers.tanh(fluid.layers.elementwise_add(encoder_proj, expanded))
        weights = self.fc_2(concated)
        weights = fluid.layers.reshape(weights, [weights.shape[0], weights.shape[1]], inplace=False)
        weights = fluid.layers.softmax(weights)
        scaled = fluid.layers.elementwise_mul(x=encoder_vec, y=weights, axis=0)
        return fluid.layers.reduce_sum(scaled, dim=1)


class GRUDecoderWithAttention(fluid.dygraph.Layer):
    def __init__(self, scope_name, decoder_size, num_classes):
        super(GRUDecoderWithAttention, self).__init__(scope_name)
        self.simple_attention = SimpleAttention(self.full_name(), decoder_size)
        self.fc_1_layer = FC(self.full_name(), size=decoder_size * 3, bias_attr=False)
        self.fc_2_layer = FC(self.full_name(), size=decoder_size * 3, bias_attr=False)
        self.gru_unit = GRUUnit(self.full_name(), size=decoder_size * 3, param_attr=None, bias_attr=None)
        self.out_layer = FC(self.full_name(), size=num_classes, bias_attr=None, act="softmax")
        self.decoder_size = decoder_size

    def forward(self, target_embedding, encoder_vec, encoder_proj, decoder_boot):
        res = []
        hidden_mem = decoder_boot
        for i in range(target_embedding.shape[1]):
            current_word = fluid.layers.slice(target_embedding, axes=[1], starts=[i], ends=[i + 1])
            current_word = fluid.layers.reshape(current_word, [-1, current_word.shape[2]], inplace=False)
            context = self.simple_attention(encoder_vec, encoder_proj, hidden_mem)
            decoder_inputs = fluid.layers.elementwise_add(x=self.fc_1_layer(context), y=self.fc_2_layer(current_word))
            h, _, _ = self.gru_unit(decoder_inputs, hidden_mem)
            hidden_mem = h
            res.append(fluid.layers.reshape(self.out_layer(h), [-1, 1, CLASSES]))
        return fluid.layers.concat(res, axis=1)


class OCRAttention(fluid.dygraph.Layer):
    def __init__(self, scope_name):
        super(OCRAttention, self).__init__(scope_name)
        self.encoder_net = EncoderNet(self.full_name())
        self.fc = FC(self.full_name(), size=DECODER, bias_attr=False, act="relu")
        self.embedding = Embedding(self.full_name(), [CLASSES, VECTOR], dtype="float32")
        self.gru_decoder_with_attention = GRUDecoderWithAttention(self.full_name(), DECODER, CLASSES)

    def forward(self, inputs, label_in):
        gru_backward, encoded_vector, encoded_proj = self.encoder_net(inputs)
        backward_first = fluid.layers.slice(gru_backward, axes=[1], starts=[0], ends=[1])
        backward_first = fluid.layers.reshape(backward_first, [-1, backward_first.shape[2]], inplace=False)
        decoder_boot = self.fc(backward_first)
        label_in = fluid.layers.reshape(label_in, [-1, 1], inplace=False)
        trg_embedding = self.embedding(label_in)
        trg_embedding = fluid.layers.reshape(trg_embedding, [-1, LENGTH + 1, trg_embedding.shape[1]], inplace=False)
        return self.gru_decoder_with_attention(trg_embedding, encoded_vector, encoded_proj, decoder_boot)


def batch(rng):
    digits = rng.randint(2, CLASSES, (BATCH, LENGTH))
    image = rng.normal(0, 0.1, (BATCH, 1, HEIGHT, WIDTH))
    for row in range(BATCH):
        for place, digit in enumerate(digits[row]):
            image[row, 0, (digit - 2) * 2 : digit * 2 - 2, 1 + place * 5 : 5 + place * 5] += 1.0
    start, end = np.zeros((BATCH, 1), "int64"), np.ones((BATCH, 1), "int64")
    return image.astype("float32"), np.concatenate([start, digits], 1), np.concatenate([digits, end], 1)


def main(steps=12):
    rng = np.random.RandomState(0)
    with fluid.dygraph.guard():
        backward_strategy = fluid.dygraph.BackwardStrategy()
        backward_strategy.sort_sum_gradient = True
        fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 90
        ocr_attention = OCRAttention("ocr_attention")
        optimizer = fluid.optimizer.Momentum(learning_rate=fluid.layers.natural_exp_decay(0.1, 100, 0.1), momentum=0.9)
        grad_clip = fluid.dygraph_grad_clip.GradClipByGlobalNorm(5.0)
        losses = []
        for step in range(steps):
            image, before, after = batch(rng)
            label_out = to_variable(after.astype("int64"))
            label_out._stop_gradient = True
            label_out.trainable = False
            dy_prediction = ocr_attention(to_variable(image), to_variable(before.astype("int64")))
            dy_prediction = fluid.layers.reshape(dy_prediction, [-1, CLASSES], inplace=False)
            label_out = fluid.layers.reshape(label_out, [-1, 1], inplace=False)
            loss = fluid.layers.cross_entropy(input=dy_prediction, label=label_out)
            avg_loss = fluid.layers.reduce_sum(loss) / BATCH
            avg_loss.backward(backward_strategy)
            optimizer.minimize(avg_loss, grad_clip=grad_clip)
            ocr_attention.clear_gradients()
            losses.append(float(avg_loss.numpy()))
            if step % 10 == 0:
                print("step %d, loss %.4f" % (step, avg_loss.numpy()))
        right = float(np.mean(dy_prediction.numpy().argmax(1) == after.flatten()))
        print("%.2f of the last signs are right" % right)
    return losses, right


if __name__ == "__main__":
    main(200)
