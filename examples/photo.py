"""Normalizes a photograph within and across its channels, forward and backward, and shows what that does.

    python examples/photo.py                          # matplotlib's portrait of Grace Hopper -> normalized.png
    python examples/photo.py picture.jpg -o out.png

Within each channel, a pixel is divided by the energy of its surroundings, which evens out light and shade. Across
channels, it is divided by the energy of its own three, which leaves hue and takes away brightness. The backward pass is
given the forward result as its gradient; it is shown around grey, black being negative.

Needs `pip install -e '.[examples]'`, from the root of the checkout.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

import cynorm

OPERATORS = {
    "within each channel, 31 x 31": cynorm.LRN(
        31, alpha=40.0, beta=0.5, k=0.5, region="within_channel", layout="NHWC"
    ),
    "across channels": cynorm.LRN(5, alpha=40.0, beta=0.5, k=0.5, region="across_channels", layout="NHWC"),
}
LONGEST_SIDE = 480
CAPTION = 16

Pixels = npt.NDArray[np.floating[Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "photo", nargs="?", type=Path, help="default: a photograph that comes with matplotlib"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("normalized.png"))
    options = parser.parse_args(arguments)

    with Image.open(options.photo or sample_photo()) as image:
        photo = image.convert("RGB")
    photo.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    src = np.asarray(photo, np.float32)[np.newaxis] / 255  # N, H, W, C

    rows = []
    for name, lrn in OPERATORS.items():
        workspace = cynorm.Workspace()
        dst = lrn.forward(src, workspace=workspace)
        diff_src = lrn.backward(dst, src, workspace=workspace)
        print(f"{name}: {lrn.implementation(src)}, dst up to {dst.max():.2f}, diff_src {spread(diff_src)}")
        rows.append({"before": src[0], name: stretched(dst[0]), f"gradient, {name}": signed(diff_src[0])})
    contact_sheet(rows).save(options.output)
    print(f"wrote {options.output}")


def sample_photo() -> str:
    """The path of a photograph that is inside matplotlib's wheel."""
    from matplotlib import cbook

    return str(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))


def spread(values: Pixels) -> str:
    """The range of an array as text."""
    return f"{values.min():.2f} to {values.max():.2f}"


def stretched(values: Pixels) -> Pixels:
    """Scaled so that the largest per mille is white."""
    return values / float(np.quantile(values, 0.999))


def signed(values: Pixels) -> Pixels:
    """Scaled so that zero is grey."""
    return 0.5 + values / (2 * float(np.quantile(abs(values), 0.999)))


def contact_sheet(rows: list[dict[str, Pixels]]) -> Image.Image:
    """One picture of rows of pictures in [0, 1], each with its caption."""
    height, width, _ = next(iter(rows[0].values())).shape
    sheet = Image.new("RGB", (width * len(rows[0]), (height + CAPTION) * len(rows)), "white")
    draw = ImageDraw.Draw(sheet)
    for row, pictures in enumerate(rows):
        for column, (caption, picture) in enumerate(pictures.items()):
            x, y = column * width, row * (height + CAPTION)
            draw.text((x + 4, y + 2), caption, "black")
            pixels = np.clip(np.round(picture * 255), 0, 255).astype(np.uint8)
            sheet.paste(Image.fromarray(pixels), (x, y + CAPTION))
    return sheet


if __name__ == "__main__":
    main()
