"""One training step through convolution-free layers: batch normalization with ReLU, then LRN, there and back."""

import numpy as np

import cynorm


def main() -> None:
    rng = np.random.default_rng(0)
    src = rng.standard_normal((8, 64, 28, 28)).astype(np.float32)
    target = rng.random(src.shape).astype(np.float32)
    scale, shift = np.ones(64, np.float32), np.zeros(64, np.float32)
    running_mean, running_variance = np.zeros(64, np.float32), np.ones(64, np.float32)

    bn, lrn = cynorm.BatchNorm(activation="relu"), cynorm.LRN(local_size=5)
    bn_workspace, lrn_workspace = cynorm.Workspace(), cynorm.Workspace()
    losses = []
    for _ in range(5):
        hidden, _, _ = bn.forward_training(
            src, scale, shift, workspace=bn_workspace, running_mean=running_mean, running_variance=running_variance
        )
        dst = lrn.forward(hidden, workspace=lrn_workspace)
        losses.append(float(np.mean((dst - target) ** 2)))

        diff_dst = (dst - target) * np.float32(2 / target.size)
        diff_hidden = lrn.backward(diff_dst, hidden, workspace=lrn_workspace)
        gradients = bn.backward_training(diff_hidden, src, scale, workspace=bn_workspace)
        scale -= 10 * gradients.diff_scale
        shift -= 10 * gradients.diff_shift
    print("loss", *(f"{loss:.4f}" for loss in losses))


if __name__ == "__main__":
    main()
