"""PubMed, a citation graph of Planetoid: 19,717 papers, 500 words, 3 classes, 60 labelled."""

from creditscope.tasks import GraphTask, register_task
from creditscope.tasks._planetoid import load_planetoid, planetoid_files

FILES = planetoid_files(
    "pubmed",
    {
        "allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
        "tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
    },
)


@register_task("pubmed", version="planetoid-pubmed")
def pubmed(*, normalisation: str = "symmetric") -> GraphTask:
    """The public split; `normalisation` of Â is symmetric or row."""
    return load_planetoid(FILES, normalisation=normalisation)
