"""Writes paddle_structured.npz: structured prediction (CRF, CTC, beam search, sampled classes) run by Paddle 2.6.2, with inputs,
LoD, outputs and gradients.

Runs in an environment of its own that has paddlepaddle==2.6.2 and numpy<2.
"""

import json
import sys

import numpy as np
import paddle

paddle.enable_static()
rng = np.random.RandomState(11)

M = [[0, 3, 4, 6]]
LENGTHS = np.array([3, 1, 2], "int64")


def x(*shape):
    return rng.standard_normal(shape).astype("float32")


def ints(*shape, high=5, low=0):
    return rng.randint(low, high, size=shape).astype("int64")


def column(*values):
    return np.array(values, "int64").reshape(-1, 1)


CRF = {"Emission": (x(6, 4), M), "Transition": (x(6, 4), [])}
PADDED_CRF = {"Emission": (x(3, 4, 4), []), "Transition": (x(6, 4), []), "Length": (LENGTHS.reshape(-1, 1), [])}
CRF_OUT = {"LogLikelihood": "float32", "Alpha": "float32", "EmissionExps": "float32", "TransitionExps": "float32"}
CTC_LENGTHS = [[0, 5, 9, 12, 13]]
CTC_PADDED = {
    "Logits": (x(5, 4, 6), []),
    "Label": (ints(4, 3, low=1).astype("int32"), []),
    "LogitsLength": (np.array([5, 4, 3, 5], "int64"), []),
    "LabelLength": (np.array([2, 3, 1, 0], "int64"), []),
}
WORDS, OTHERS = ints(7, 1), ints(8, 1)
CHUNK_OUT = {"Precision": "float32", "Recall": "float32", "F1-Score": "float32"}
CHUNK_OUT.update(dict.fromkeys(["NumInferChunks", "NumLabelChunks", "NumCorrectChunks"], "int64"))
CHUNK_TAGS = {"IOB": 7, "IOE": 7, "IOBES": 13, "plain": 4}
TREE = {"X": (x(4, 3), []), "Label": (column(0, 5, 2, 3), [])}
TABLE = np.array([[0, 2, 4, -1], [0, 1, -1, -1], [0, 2, 3, 5], [0, 1, 6, -1]], "int64")
CODE = np.array([[0, 1, 0, -1], [1, 0, -1, -1], [0, 1, 1, 0], [1, 1, 1, -1]], "int64")
PROBABILITIES = np.array([0.1, 0.05, 0.2, 0.25, 0.15, 0.25], "float32")
NCE = {"Input": (x(4, 3), []), "Label": (ints(4, 2, high=6), []), "Weight": (x(6, 3), []), "Bias": (x(6, 1), [])}
NCE_OUT = {"Cost": "float32", "SampleLogits": "float32", "SampleLabels": "int64"}
NCE_ATTRS = {"num_total_classes": 6, "num_neg_samples": 3, "is_sparse": False, "remote_prefetch": False, "is_test": False}
BEAMS = [[0, 2, 5], [0, 1, 2, 3, 4, 5]]
BEAM_OUT = {"selected_ids": "int64", "selected_scores": "float32", "parent_idx": "int32"}
BEAM_ATTRS = {"level": 0, "beam_size": 3, "end_id": 0, "is_accumulated": True}


def beams(pre_ids, scores=None, ids=True, lod=BEAMS):
    found = {
        "pre_ids": (column(*pre_ids), lod),
        "pre_scores": (x(len(pre_ids), 1), lod),
        "scores": (x(len(pre_ids), 3) if scores is None else scores, lod),
    }
    if ids:
        found["ids"] = (ints(len(pre_ids), 3, high=9), lod)
    return found


def alias(probabilities):
    """Of each class the probability to stay, and the class to go to otherwise."""
    stays, others = np.ones(6, "float32"), np.full(6, -1, "int32")
    scaled = probabilities.astype("float64") * 6
    small, large = [i for i in range(6) if scaled[i] < 1], [i for i in range(6) if scaled[i] >= 1]
    while small and large:
        low, high = small.pop(), large.pop()
        stays[low], others[low] = scaled[low], high
        scaled[high] -= 1 - scaled[low]
        (small if scaled[high] < 1 else large).append(high)
    return {
        "CustomDistProbs": (probabilities, []),
        "CustomDistAlias": (others, []),
        "CustomDistAliasProbs": (stays, []),
    }


CASES = [
    ("linear_chain_crf", {**CRF, "Label": (ints(6, 1, high=4), M)}, {}, CRF_OUT, ["Emission", "Transition"]),
    (
        "linear_chain_crf",
        {**PADDED_CRF, "Label": (ints(3, 4, high=4), [])},
        {},
        CRF_OUT,
        ["Emission", "Transition"],
    ),
    (
        "linear_chain_crf",
        {**CRF, "Transition": (8 * x(6, 4), []), "Emission": (20 * x(6, 4), M), "Label": (ints(6, 1, high=4), M)},
        {},
        CRF_OUT,
        ["Emission", "Transition"],
    ),
    ("crf_decoding", CRF, {}, {"ViterbiPath": "int64"}, []),
    ("crf_decoding", {**CRF, "Label": (ints(6, 1, high=4), M)}, {}, {"ViterbiPath": "int64"}, []),
    ("crf_decoding", PADDED_CRF, {}, {"ViterbiPath": "int64"}, []),
    ("crf_decoding", {**PADDED_CRF, "Label": (ints(3, 4, high=4), [])}, {}, {"ViterbiPath": "int64"}, []),
    *(
        (
            "warpctc",
            {"Logits": (2 * x(13, 6), CTC_LENGTHS), "Label": (column(1, 2, 2, 3, 1, 4).astype("int32"), [[0, 3, 4, 5, 6]])},
            {"blank": blank, "norm_by_times": norm},
            {"Loss": "float32"},
            ["Logits"],
        )
        for blank, norm in ((0, False), (0, True), (5, False))
    ),
    *(
        ("warpctc", CTC_PADDED, {"blank": blank, "norm_by_times": norm}, {"Loss": "float32"}, ["Logits"])
        for blank, norm in ((0, False), (5, True))
    ),
    *(
        (
            "ctc_align",
            {"Input": (column(0, 1, 1, 0, 1, 2, 2, 0, 0, 0, 3), [[0, 5, 8, 9, 11]])},
            {"blank": 0, "merge_repeated": merge},
            {"Output": "int64"},
            [],
        )
        for merge in (True, False)
    ),
    ("ctc_align", {"Input": (column(0, 0), [[0, 1, 2]])}, {"blank": 0, "merge_repeated": True}, {"Output": "int64"}, []),
    (
        "ctc_align",
        {
            "Input": (np.array([[0, 1, 1, 0, 1], [2, 2, 3, 3, 3], [0, 0, 0, 1, 1]], "int64"), []),
            "InputLength": (column(5, 4, 3), []),
        },
        {"blank": 0, "merge_repeated": True, "padding_value": 9},
        {"Output": "int64", "OutputLength": "int64"},
        [],
    ),
    *(
        (
            "edit_distance",
            {"Hyps": (WORDS, [[0, 3, 5, 7]]), "Refs": (OTHERS, [[0, 2, 6, 8]])},
            {"normalized": normalized},
            {"Out": "float32", "SequenceNum": "int64"},
            [],
        )
        for normalized in (False, True)
    ),
    (
        "edit_distance",
        {"Hyps": (WORDS, [[0, 3, 3, 7]]), "Refs": (OTHERS, [[0, 2, 8, 8]])},
        {"normalized": False},
        {"Out": "float32", "SequenceNum": "int64"},
        [],
    ),
    (
        "edit_distance",
        {
            "Hyps": (ints(3, 4), []),
            "Refs": (ints(3, 5), []),
            "HypsLength": (np.array([4, 2, 3], "int64"), []),
            "RefsLength": (np.array([3, 5, 4], "int64"), []),
        },
        {"normalized": True},
        {"Out": "float32", "SequenceNum": "int64"},
        [],
    ),
    *(
        (
            "chunk_eval",
            {slot: (ints(60, 1, high=high), [[0, 13, 14, 40, 60]]) for slot in ("Inference", "Label")},
            {"num_chunk_types": 3, "chunk_scheme": scheme, "excluded_chunk_types": excluded},
            CHUNK_OUT,
            [],
        )
        for scheme, high in CHUNK_TAGS.items()
        for excluded in ([], [1])
    ),
    (
        "chunk_eval",
        {
            "Inference": (ints(3, 9, high=7), []),
            "Label": (ints(3, 9, high=7), []),
            "SeqLength": (np.array([9, 4, 6], "int64"), []),
        },
        {"num_chunk_types": 3, "chunk_scheme": "IOB", "excluded_chunk_types": []},
        CHUNK_OUT,
        [],
    ),
    (
        "hierarchical_sigmoid",
        {**TREE, "W": (x(5, 3), []), "Bias": (x(5, 1), [])},
        {"num_classes": 6},
        {"Out": "float32"},
        ["X", "W", "Bias"],
    ),
    ("hierarchical_sigmoid", {**TREE, "W": (40 * x(5, 3), [])}, {"num_classes": 6}, {"Out": "float32"}, ["X", "W"]),
    (
        "hierarchical_sigmoid",
        {**TREE, "W": (x(7, 3), []), "Bias": (x(7, 1), []), "PathTable": (TABLE, []), "PathCode": (CODE, [])},
        {"num_classes": 6},
        {"Out": "float32"},
        ["X", "W", "Bias"],
    ),
    *(
        (
            "nce",
            {**NCE, **more},
            {**NCE_ATTRS, "sampler": sampler, "seed": 3},
            NCE_OUT,
            ["Input", "Weight", "Bias"],
        )
        for sampler, more in (
            (0, {}),
            (1, {"SampleWeight": (np.abs(x(4, 1)), [])}),
            (2, alias(PROBABILITIES)),
        )
    ),
    ("beam_search", beams([1, 2, 3, 4, 5]), BEAM_ATTRS, BEAM_OUT, []),
    ("beam_search", beams([1, 0, 3, 0, 5]), BEAM_ATTRS, BEAM_OUT, []),
    ("beam_search", beams([0, 0, 3, 0, 5]), BEAM_ATTRS, BEAM_OUT, []),
    ("beam_search", beams([0, 0, 0, 0, 0]), {**BEAM_ATTRS, "beam_size": 2}, BEAM_OUT, []),
    (
        "beam_search",
        beams([1, 2, 3, 4, 5], np.abs(x(5, 3)) / 3, ids=False),
        {**BEAM_ATTRS, "is_accumulated": False, "beam_size": 2},
        BEAM_OUT,
        [],
    ),
    ("beam_search", beams([1, 2, 3], lod=[[0, 1, 2, 3], [0, 1, 2, 3]]), BEAM_ATTRS, BEAM_OUT, []),
    ("beam_search", beams([1, 2, 3, 4, 5], np.ones((5, 3), "float32")), BEAM_ATTRS, BEAM_OUT, []),
]


def tensor(array, lod):
    found = paddle.base.core.LoDTensor()
    found.set(array, paddle.CPUPlace())
    if lod:
        found.set_lod(lod)
    return found


def run(op_type, inputs, attrs, outputs, wrt, arrays, number):
    main = paddle.static.Program()
    with paddle.static.program_guard(main):
        block = main.global_block()
        feed, slots = {}, {}
        for slot, (array, lod) in inputs.items():
            shape = [-1, *array.shape[1:]] if lod else array.shape
            var = block.create_var(name=slot, shape=shape, dtype=str(array.dtype), lod_level=len(lod), is_data=True)
            var.stop_gradient = array.dtype.kind != "f"
            feed[slot] = tensor(array, lod)
            slots[slot] = var
        made = {name: block.create_var(name="out." + name, dtype=dtype) for name, dtype in outputs.items()}
        more = {"warpctc": ["WarpCTCGrad"], "hierarchical_sigmoid": ["PreOut", "W_Out"]}.get(op_type, [])
        extra = {name: block.create_var(name=name, dtype="float32") for name in more}
        block.append_op(type=op_type, inputs=slots, outputs={**made, **extra}, attrs=dict(attrs))
        exe = paddle.static.Executor(paddle.CPUPlace())
        fetch = list(made.values())
        grads = []
        main_output = made[next(iter(outputs))]
        if wrt:
            values = exe.run(main, feed=feed, fetch_list=[main_output], return_numpy=False)
            shape = np.asarray(values[0]).shape
            seed = np.cos(np.arange(np.prod(shape))).astype("float32").reshape(shape)
            arrays[f"{number}.seed"] = seed
            given = block.create_var(name="seed", shape=shape, dtype="float32", is_data=True)
            main_output.desc.set_shape(shape)
            feed["seed"] = tensor(seed, [])
            grads = paddle.static.gradients([main_output], [slots[slot] for slot in wrt], [given])
        values = exe.run(main, feed=feed, fetch_list=[*fetch, *grads], return_numpy=False)
    record = {"type": op_type, "attrs": attrs, "inputs": {}, "outputs": {}}
    for slot, (array, lod) in inputs.items():
        arrays[f"{number}.in.{slot}"] = array
        record["inputs"][slot] = lod
    for name, value in zip(outputs, values, strict=False):
        arrays[f"{number}.out.{name}"] = np.asarray(value)
        record["outputs"][name] = value.lod()
    for slot, value in zip(wrt, values[len(fetch) :], strict=True):
        arrays[f"{number}.grad.{slot}"] = np.asarray(value)
    return record


# What was selected at each step of a search: ids, scores and LoD.
SEARCHES = [
    [
        ([1, 1], [[0, 1, 2], [0, 1, 2]]),
        ([2, 3, 4], [[0, 1, 2], [0, 2, 3]]),
        ([5, 6, 7, 8], [[0, 2, 3], [0, 1, 2, 4]]),
        ([0, 9, 0, 9], [[0, 2, 4], [0, 1, 2, 3, 4]]),
    ],
    [
        ([1, 1], [[0, 1, 2], [0, 1, 2]]),
        ([0, 3, 4, 0], [[0, 1, 2], [0, 2, 4]]),
        ([0, 6, 7, 0], [[0, 2, 4], [0, 1, 2, 3, 4]]),
        ([0, 6], [[0, 2, 4], [0, 0, 0, 1, 2]]),
    ],
    [
        ([1], [[0, 1], [0, 1]]),
        ([0, 3], [[0, 1], [0, 2]]),
        ([0, 0], [[0, 2], [0, 1, 2]]),
        ([], [[0, 2], [0, 0, 0]]),
    ],
]


def decode(steps, arrays, number):
    main = paddle.static.Program()
    with paddle.static.program_guard(main):
        feed, lists, record = {}, [None, None], []
        for step, (ids, lod) in enumerate(steps):
            at = paddle.tensor.fill_constant([1], "int64", step)
            for which, (name, array) in enumerate((("ids", column(*ids)), ("scores", x(len(ids), 1)))):
                var = paddle.static.data(f"{name}{step}", [-1, 1], str(array.dtype), lod_level=2)
                feed[var.name] = tensor(array, lod)
                arrays[f"{number}.{name}.{step}"] = array
                lists[which] = paddle.tensor.array_write(var, at, lists[which])
            record.append(lod)
        block = main.global_block()
        out = {
            name: block.create_var(name=name, dtype=dtype)
            for name, dtype in (("SentenceIds", "int64"), ("SentenceScores", "float32"))
        }
        block.append_op(
            type="beam_search_decode",
            inputs={"Ids": lists[0], "Scores": lists[1]},
            outputs=out,
            attrs={"beam_size": 2, "end_id": 0},
        )
        values = paddle.static.Executor(paddle.CPUPlace()).run(main, feed=feed, fetch_list=list(out.values()), return_numpy=False)
    for name, value in zip(out, values, strict=True):
        arrays[f"{number}.out.{name}"] = np.asarray(value)
    return {"steps": record, "lod": values[0].lod()}


def main(path):
    arrays, records, searches = {}, [], []
    for number, case in enumerate(CASES):
        records.append(run(*case, arrays, number))
    for number, steps in enumerate(SEARCHES):
        searches.append(decode(steps, arrays, f"search{number}"))
    arrays["records"] = np.array(json.dumps(records))
    arrays["searches"] = np.array(json.dumps(searches))
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
