"""Reverse-mode differentiation of float32 arrays: just enough to train the small models of this benchmark.

Every operation appends its node to the tape; ``backward`` walks the tape from the end. Arithmetic is
float32 on purpose, so that what blows up does so as it would on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Params = dict[str, Array]

_tape: list[Node] = []


class Node:
    """A value on the tape, its gradient, and how that gradient reaches its parents."""

    __slots__ = ("back", "grad", "value")

    def __init__(self, value: Array, back: Callable[[Array], None] | None = None) -> None:
        self.value = value
        self.grad: Array | None = None
        self.back = back
        if back is not None:
            _tape.append(self)

    def add_grad(self, grad: Array) -> None:
        """Add a gradient, summed over what was broadcast."""
        shape = self.value.shape
        if grad.shape != shape:
            grad = grad.sum(axis=tuple(range(grad.ndim - len(shape))))
            kept = tuple(axis for axis, size in enumerate(shape) if size == 1 and grad.shape[axis] != 1)
            grad = grad.sum(axis=kept, keepdims=True) if kept else grad
        self.grad = grad if self.grad is None else self.grad + grad


def leaves(params: Params) -> dict[str, Node]:
    """Start a new tape and return a leaf node for every parameter."""
    _tape.clear()
    return {name: Node(value) for name, value in params.items()}


def backward(loss: Node) -> None:
    """Give every node on the tape the gradient of a scalar loss."""
    loss.grad = np.ones_like(loss.value)
    for node in reversed(_tape):
        if node.grad is not None and node.back is not None:
            node.back(node.grad)


def constant(value: Any) -> Node:
    """Return data as a node that needs no gradient."""
    return Node(np.asarray(value, dtype=np.float32))


def _unary(x: Node, value: Array, slope: Callable[[], Array]) -> Node:
    return Node(value, lambda g: x.add_grad(g * slope()))


def add(a: Node, b: Node) -> Node:
    def back(g: Array) -> None:
        a.add_grad(g)
        b.add_grad(g)

    return Node(a.value + b.value, back)


def sub(a: Node, b: Node) -> Node:
    def back(g: Array) -> None:
        a.add_grad(g)
        b.add_grad(-g)

    return Node(a.value - b.value, back)


def mul(a: Node, b: Node) -> Node:
    def back(g: Array) -> None:
        a.add_grad(g * b.value)
        b.add_grad(g * a.value)

    return Node(a.value * b.value, back)


def scale(x: Node, factor: float) -> Node:
    factor32 = np.float32(factor)
    return Node(x.value * factor32, lambda g: x.add_grad(g * factor32))


def matmul(a: Node, b: Node) -> Node:
    def back(g: Array) -> None:
        a.add_grad(g @ b.value.T)
        b.add_grad(a.value.T @ g)

    return Node(a.value @ b.value, back)


def transpose(x: Node) -> Node:
    return Node(x.value.T, lambda g: x.add_grad(g.T))


def reshape(x: Node, *shape: int) -> Node:
    return Node(x.value.reshape(*shape), lambda g: x.add_grad(g.reshape(x.value.shape)))


def columns(x: Node, start: int, stop: int) -> Node:
    def back(g: Array) -> None:
        full = np.zeros_like(x.value)
        full[:, start:stop] = g
        x.add_grad(full)

    return Node(x.value[:, start:stop], back)


def take(table: Node, index: Array) -> Node:
    """Look up rows of an embedding table."""

    def back(g: Array) -> None:
        full = np.zeros_like(table.value)
        np.add.at(full, index, g)
        table.add_grad(full)

    return Node(table.value[index], back)


def relu(x: Node) -> Node:
    return _unary(x, np.maximum(x.value, 0), lambda: (x.value > 0).astype(np.float32))


def tanh(x: Node) -> Node:
    y = np.tanh(x.value)
    return _unary(x, y, lambda: 1 - y * y)


def exp(x: Node) -> Node:
    y = np.exp(x.value)
    return _unary(x, y, lambda: y)


def square(x: Node) -> Node:
    return _unary(x, x.value * x.value, lambda: 2 * x.value)


def mean(x: Node) -> Node:
    n = np.float32(x.value.size)
    return Node(x.value.mean(), lambda g: x.add_grad(np.broadcast_to(g / n, x.value.shape)))


def total(x: Node, axis: int) -> Node:
    def back(g: Array) -> None:
        x.add_grad(np.broadcast_to(np.expand_dims(g, axis), x.value.shape))

    return Node(x.value.sum(axis=axis), back)


def unit_rows(x: Node) -> Node:
    """Scale every row to length one."""
    norm = np.sqrt((x.value * x.value).sum(1, keepdims=True)) + np.float32(1e-6)
    y = x.value / norm
    return Node(y, lambda g: x.add_grad((g - y * (g * y).sum(1, keepdims=True)) / norm))


def log_softmax(logits: Node) -> Node:
    shifted = logits.value - logits.value.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return Node(log_p, lambda g: logits.add_grad(g - np.exp(log_p) * g.sum(axis=1, keepdims=True)))


def pick(x: Node, index: Array) -> Node:
    """Return one column per row."""
    rows = np.arange(len(index))

    def back(g: Array) -> None:
        full = np.zeros_like(x.value)
        full[rows, index] = g
        x.add_grad(full)

    return Node(x.value[rows, index], back)


def cross_entropy(logits: Node, labels: Array) -> Node:
    return scale(mean(pick(log_softmax(logits), labels)), -1.0)


def softplus(x: Node) -> Node:
    return _unary(x, np.logaddexp(np.float32(0), x.value), lambda: 1 / (1 + np.exp(-x.value)))


def squared_error(predicted: Node, target: Array) -> Node:
    return mean(square(sub(predicted, constant(target))))


def patches3(images: Node) -> Node:
    """Return every 3x3 patch of one-channel images (batch, h, w) as a row of nine."""
    n, h, w = images.value.shape
    view = np.lib.stride_tricks.sliding_window_view(images.value, (3, 3), axis=(1, 2))
    return Node(np.ascontiguousarray(view).reshape(n * (h - 2) * (w - 2), 9))
