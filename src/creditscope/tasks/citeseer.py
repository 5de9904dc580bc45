"""CiteSeer, a citation graph of Planetoid: 3,327 papers, 3,703 words, 6 classes, 120 labelled."""

from creditscope.tasks import GraphTask, register_task
from creditscope.tasks._planetoid import load_planetoid, planetoid_files

FILES = planetoid_files(
    "citeseer",
    {
        "allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        "tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    },
)


@register_task("citeseer", version="planetoid-citeseer")
def citeseer(*, normalisation: str = "symmetric") -> GraphTask:
    """The public split; `normalisation` of Â is symmetric or row."""
    return load_planetoid(FILES, normalisation=normalisation)
