"""Benchmarks that oneDNN's developers recognize: see ``python -m benchmarks --help``.

__main__.py      the command line and its modes
descriptor.py    the grammar of one problem          mb256ic96_ih55n"alexnet:norm1"
problems.py      the grammar of options and batch files; problems/ holds the layers of named networks
tensors.py       a problem's arrays in its memory layout, and their fills
peers/           cynorm (subject.py) and the libraries beside it, each with the same four functions
measure.py       the libraries in turn on the same arrays, beside the machine's streaming limit
check.py         errors against the float64 oracle of the tests, benchdnn's thresholds and the project's
sweeps.py        scaling runs
report.py        benchdnn's lines, the table, JSON lines, the comparison of two runs
picture.py       charts
targets.py       pass or fall short: lrn_targets.py, bn_targets.py
"""
