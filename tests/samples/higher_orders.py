"""Samples of `fluid.ops.higher_orders` in plain numpy; test_paddle_higher_orders.py has Paddle's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add, structural

data = Data("higher_orders")

structural(
    "test_paddle_higher_orders.py",
    *(
        f"{op}_grad_grad"
        for op in ("batch_norm", "celu", "elu", "leaky_relu", "log", "relu", "rsqrt", "sigmoid", "sqrt", "square")
    ),
    *(f"{op}_double_grad" for op in ("abs", "clip", "cos", "instance_norm", "pad3d", "pool2d", "pow", "sin", "softplus")),
    *(f"{op}_triple_grad" for op in ("cos", "elementwise_add", "elementwise_mul", "matmul_v2", "pow", "sigmoid", "sin", "tanh")),
    *(f"{op}_grad_grad" for op in ("conv2d", "conv2d_transpose", "conv3d", "depthwise_conv2d", "matmul_v2", "reshape2")),
    *(f"elementwise_{op}_grad_grad" for op in ("div", "mul", "sub")),
)


def second_of_tanh(Out: Any, grad_out: Any, **given: Any) -> Any:
    again = given["grad_x@GRAD"]
    return {"grad_out@GRAD": again * (1 - Out**2), "Out@GRAD": -2 * Out * grad_out * again}


add("tanh_grad_grad", Sample({"Out": data(2, 3), "grad_out": data(2, 3), "grad_x@GRAD": data(2, 3)}, {}, second_of_tanh))
add(
    "elementwise_add_grad_grad",
    *(
        Sample(
            {"Y": data(3), "DOut": data(2, 3, 2), **given},
            {"axis": 1},
            lambda Y, DOut, DDX=0, DDY=None: DDX + (0 if DDY is None else DDY.reshape(3, 1)) + np.zeros_like(DOut),
        )
        for given in ({"DDX": data(2, 3, 2), "DDY": data(3)}, {"DDX": data(2, 3, 2)}, {"DDY": data(3)})
    ),
)


def second_of_product(X: Any, Y: Any, DOut: Any, DDX: Any = None, DDY: Any = None) -> Any:
    ddx, ddy = (np.zeros_like(X) if DDX is None else DDX), (np.zeros_like(Y) if DDY is None else DDY)
    return {"DX": DOut @ ddy.T, "DY": ddx.T @ DOut, "DDOut": ddx @ Y + X @ ddy}


PRODUCT = {"X": data(2, 3), "Y": data(3, 4), "DOut": data(2, 4)}
for op_type in ("mul_grad_grad", "matmul_grad_grad"):
    add(
        op_type,
        Sample({**PRODUCT, "DDX": data(2, 3), "DDY": data(3, 4)}, {}, second_of_product),
        Sample({**PRODUCT, "DDX": data(2, 3)}, {}, second_of_product),
        Sample({**PRODUCT, "DDY": data(3, 4)}, {}, second_of_product),
    )
