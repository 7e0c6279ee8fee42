from collections.abc import Callable

def streaming_limit(
    reads: int = 1,
    writes: int = 1,
    nbytes: int = 268435456,
    num_threads: int | None = None,
    streaming: bool = True,
) -> float: ...
def stream_pass(
    reads: int, writes: int, nbytes: int, num_threads: int | None = None, streaming: bool = True
) -> Callable[[], int]: ...
