"""Batch normalization with ReLU, then LRN, as functions that PyTorch's autograd differentiates once, beside PyTorch's own."""

from __future__ import annotations

from typing import Any

import torch

import cynorm

Tensor = torch.Tensor


def refuse_second_derivatives() -> None:
    """These would be those of constants: gradients are computed where autograd does not see it."""
    if torch.is_grad_enabled():  # in backward: where the caller has said create_graph=True
        raise RuntimeError("these gradients cannot be differentiated again")


class BatchNormFunction(torch.autograd.Function):
    """dst = relu(batch_norm(src)); running statistics are updated in place, as by torch.nn.functional.batch_norm."""

    @staticmethod
    def forward(ctx: Any, src: Tensor, scale: Tensor, shift: Tensor, running_mean: Tensor, running_variance: Tensor) -> Tensor:
        ctx.bn, ctx.workspace = cynorm.BatchNorm(activation="relu"), cynorm.Workspace()  # of this call alone
        ctx.save_for_backward(src, scale)
        dst = torch.empty_like(src)
        ctx.bn.forward_training(
            src.detach(),
            scale.detach(),
            shift.detach(),
            out=dst,
            workspace=ctx.workspace,
            running_mean=running_mean,
            running_variance=running_variance,
        )
        return dst

    @staticmethod
    def backward(ctx: Any, diff_dst: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        src, scale = (tensor.detach() for tensor in ctx.saved_tensors)
        out = [torch.empty_like(tensor) for tensor in (src, scale, scale)]
        ctx.bn.backward_training(
            diff_dst, src, scale, workspace=ctx.workspace, out=out[0], out_scale=out[1], out_shift=out[2]
        )
        return (*out, None, None)


class LRNFunction(torch.autograd.Function):
    """dst = local_response_norm(src, 5); any cynorm.LRN will do in its place."""

    lrn = cynorm.LRN(5, window="torch")

    @staticmethod
    def forward(ctx: Any, src: Tensor) -> Tensor:
        ctx.save_for_backward(src)
        dst = torch.empty_like(src)
        LRNFunction.lrn.forward(src.detach(), out=dst)
        return dst

    @staticmethod
    def backward(ctx: Any, diff_dst: Tensor) -> Tensor:
        refuse_second_derivatives()
        (src,) = ctx.saved_tensors
        diff_src = torch.empty_like(src)
        LRNFunction.lrn.backward(diff_dst, src.detach(), out=diff_src)
        return diff_src


def ours(src: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Both functions, one after the other."""
    return LRNFunction.apply(BatchNormFunction.apply(src, scale, shift, mean, variance))  # type: ignore[no-any-return, no-untyped-call]


def theirs(src: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """PyTorch's."""
    hidden = torch.nn.functional.batch_norm(src, mean, variance, scale, shift, training=True)
    return torch.nn.functional.local_response_norm(hidden.relu(), 5)


def main() -> None:
    """One step of each, and how far apart results, gradients and running statistics are."""
    torch.manual_seed(0)
    src, target = torch.randn(2, 8, 16, 28, 28)
    results = []
    for function in ours, theirs:
        leaves = [src.clone().requires_grad_(), torch.ones(16, requires_grad=True), torch.zeros(16, requires_grad=True)]
        running = [torch.zeros(16), torch.ones(16)]
        dst = function(*leaves, *running)
        ((dst - target) ** 2).sum().backward()
        results.append([dst.detach(), *(leaf.grad for leaf in leaves), *running])
    for name, a, b in zip(("dst", "diff_src", "diff_scale", "diff_shift", "mean", "variance"), *results, strict=True):
        print(f"{name:10}  largest difference {(a - b).abs().max() / b.abs().max():.1e} of the largest")


if __name__ == "__main__":
    main()
