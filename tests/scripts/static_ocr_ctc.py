"""Reads digits from a strip without knowing where each is: columns as sequences, CTC, and edit distances."""

from __future__ import print_function

import numpy as np

import fluid

NUM_CLASSES, HEIGHT, BATCH = 4, 8, 8


def conv_bn_pool(input, group, out_ch, act="relu", is_test=False, pool=True):
    tmp = input
    for i in range(group):
        filter_size = 3
        conv_std = (2.0 / (filter_size**2 * tmp.shape[1])) ** 0.5
        conv_param = fluid.ParamAttr(
            initializer=fluid.initializer.Normal(0.0, conv_std), regularizer=fluid.regularizer.L2DecayRegularizer(0.0004)
        )
        tmp = fluid.layers.conv2d(
            input=tmp, num_filters=out_ch[i], filter_size=3, padding=1, bias_attr=False, param_attr=conv_param, act=None
        )
        tmp = fluid.layers.batch_norm(input=tmp, act=act, is_test=is_test)
    if pool:
        tmp = fluid.layers.pool2d(input=tmp, pool_size=2, pool_type="max", pool_stride=2, ceil_mode=True)
    return tmp


def encoder_net(images, num_classes, rnn_hidden_size=16):
    conv_features = conv_bn_pool(images, 1, [8])
    sliced_feature = fluid.layers.im2sequence(input=conv_features, stride=[1, 1], filter_size=[conv_features.shape[2], 1])
    para_attr = fluid.ParamAttr(
        regularizer=fluid.regularizer.L2DecayRegularizer(0.0004), initializer=fluid.initializer.Normal(0.0, 0.1)
    )
    bias_attr = fluid.ParamAttr(initializer=fluid.initializer.Normal(0.0, 0.02), learning_rate=2.0)
    fc_1 = fluid.layers.fc(input=sliced_feature, size=rnn_hidden_size * 3, param_attr=para_attr, bias_attr=bias_attr)
    fc_2 = fluid.layers.fc(input=sliced_feature, size=rnn_hidden_size * 3, param_attr=para_attr, bias_attr=bias_attr)
    gru_forward = fluid.layers.dynamic_gru(
        input=fc_1, size=rnn_hidden_size, param_attr=para_attr, bias_attr=bias_attr, candidate_activation="relu"
    )
    gru_backward = fluid.layers.dynamic_gru(
        input=fc_2, size=rnn_hidden_size, is_reverse=True, param_attr=para_attr, bias_attr=bias_attr, candidate_activation="relu"
    )
    return fluid.layers.fc(input=[gru_forward, gru_backward], size=num_classes + 1, param_attr=para_attr)


def ctc_train_net(images, label, num_classes):
    fc_out = encoder_net(images, num_classes)
    cost = fluid.layers.warpctc(input=fc_out, label=label, blank=num_classes, norm_by_times=True)
    sum_cost = fluid.layers.reduce_sum(cost)
    decoded_out = fluid.layers.ctc_greedy_decoder(input=fc_out, blank=num_classes)
    casted_label = fluid.layers.cast(x=label, dtype="int64")
    error_evaluator = fluid.evaluator.EditDistance(input=decoded_out, label=casted_label)
    inference_program = fluid.default_main_program().clone(for_test=True)
    optimizer = fluid.optimizer.Adam(learning_rate=0.01)
    optimizer.minimize(sum_cost)
    model_average = fluid.optimizer.ModelAverage(0.1, min_average_window=10, max_average_window=50)
    return sum_cost, error_evaluator, inference_program, model_average


def samples(count, seed):
    rng = np.random.RandomState(seed)

    def reader():
        for _ in range(count):
            # all images of a batch are of one width
            rows = []
            for _ in range(BATCH):
                digits = rng.randint(0, NUM_CLASSES, rng.randint(1, 4))
                image = rng.normal(0, 0.1, (1, HEIGHT, 24))
                for place, digit in enumerate(digits):
                    image[0, digit * 2 : digit * 2 + 2, place * 8 + 1 : place * 8 + 6] += 1.0
                rows.append((image.astype("float32"), digits.astype("int32")))
            yield rows

    return reader


def get_feeder_data(data, place):
    pixel = np.stack([row[0] for row in data])
    label_lens = [len(row[1]) for row in data]
    label = fluid.LoDTensor()
    label.set(np.concatenate([row[1] for row in data]).reshape(-1, 1).astype("int32"), place)
    label.set_recursive_sequence_lengths([label_lens])
    return {"pixel": pixel, "label": label}


def main(steps=60):
    fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 4
    images = fluid.layers.data(name="pixel", shape=[1, HEIGHT, 24], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int32", lod_level=1)
    sum_cost, error_evaluator, inference_program, model_average = ctc_train_net(images, label, NUM_CLASSES)

    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    losses = []
    error_evaluator.reset(exe)
    for data in samples(steps, 1)():
        results = exe.run(feed=get_feeder_data(data, place), fetch_list=[sum_cost] + error_evaluator.metrics)
        losses.append(float(results[0][0]) / BATCH)
        if len(losses) % 20 == 1:
            print("Batch: %d; Avg loss: %.4f; Avg seq err: %s" % (len(losses), losses[-1], results[2][0]))

    with model_average.apply(exe):
        error_evaluator.reset(exe)
        for data in samples(4, 2)():
            exe.run(inference_program, feed=get_feeder_data(data, place))
        test_seq_error = error_evaluator.eval(exe)
    print("Test seq error: %s" % (test_seq_error[1],))
    return losses, float(np.asarray(test_seq_error[1]).item())


if __name__ == "__main__":
    main(300)
