"""benchdnn's problem descriptors, such as ``mb256ic96_ih55n"alexnet:norm1"``.

    lrn:    mbXicX_idXihXiwX_lsX_alphaF_betaF_kF_nS
    bnorm:  mbXicX_idXihXiwX_epsF_nS

X stands for an integer, F for a number, S for a name (quoted or not, always the last). The entries come in
any order, ``_`` means nothing, and only ``ic`` has no default. Naming the outermost spatial size alone makes
a cube or a square: ``ih55`` is 55x55, ``id7`` is 7x7x7, while ``iw9`` is one axis of 9.
"""

import re
from dataclasses import dataclass, field

DEFAULT_MB = 2
PARAMETERS = {
    "lrn": {"ls": 5, "alpha": 1 / 8192, "beta": 0.75, "k": 1.0},
    "bnorm": {"eps": 1 / 16},
}
_INTEGERS = ("mb", "ic", "id", "ih", "iw", "ls")


@dataclass(frozen=True)
class Descriptor:
    """The shape and the parameters of one problem.

    Attributes
    ----------
    driver : {"lrn", "bnorm"}
    mb, ic : int
        Images in the batch, channels.
    spatial : tuple of int
        None to three extents: (w,), (h, w) or (d, h, w).
    parameters : dict
        By benchdnn's names: ls, alpha, beta, k for lrn, eps for bnorm.
    name : str
    """

    driver: str
    mb: int
    ic: int
    spatial: tuple
    parameters: dict = field(hash=False)
    name: str = ""

    @classmethod
    def parse(cls, text, driver):
        """Read one descriptor; ValueError says what in it is wrong."""
        values = {"mb": DEFAULT_MB, "ic": 0, "id": 0, "ih": 0, "iw": 0} | PARAMETERS[driver]
        entry = re.compile(rf"({'|'.join(values)})([0-9.]+(?:e[+-]?[0-9]+)?)?", re.IGNORECASE)
        position, name = 0, ""
        while position < len(text):
            if text[position] == "_":
                position += 1
                continue
            if text[position] == "n":
                name = text[position + 1 :].strip("\"'")
                break
            match = entry.match(text, position)
            if match is None:
                raise ValueError(f"{driver} descriptor {text!r}: nothing known starts at {text[position:]!r}")
            key, number = match.groups()
            try:
                values[key] = int(number) if key in _INTEGERS else float(number)
            except (TypeError, ValueError):
                raise ValueError(f"{driver} descriptor {text!r}: {key} has the value {number!r}") from None
            position = match.end()
        if values["ic"] == 0:
            raise ValueError(f"{driver} descriptor {text!r}: ic is missing or 0")
        parameters = {key: values[key] for key in PARAMETERS[driver]}
        return cls(
            driver,
            values["mb"],
            values["ic"],
            _spatial(values["id"], values["ih"], values["iw"]),
            parameters,
            name,
        )

    def unusual(self):
        """The parameters that differ from their defaults."""
        defaults = PARAMETERS[self.driver]
        return {key: value for key, value in self.parameters.items() if value != defaults[key]}

    def __str__(self):
        return self.format()

    def format(self, canonical=False):
        """The descriptor as text: the shortest, or with every entry written out."""
        mb = f"mb{self.mb}" if canonical or self.mb != DEFAULT_MB else ""
        regular = len(self.spatial) > 1 and len(set(self.spatial)) == 1 and not canonical
        names = ("id", "ih", "iw")[3 - len(self.spatial) :]
        sizes = [f"{name}{extent}" for name, extent in zip(names, self.spatial, strict=True)]
        parameters = [
            key + _number(value) for key, value in (self.parameters if canonical else self.unusual()).items()
        ]
        name = f'n"{self.name}"' if self.name else ""
        return f"{mb}ic{self.ic}" + "".join(sizes[: 1 if regular else None]) + "".join(parameters) + name


def _spatial(depth, height, width):
    """The spatial extents, where 0 means unspecified."""
    if depth:
        height = height or depth
        return depth, height, width or height
    if height:
        return height, width or height
    return (width,) if width else ()


def _number(value):
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
