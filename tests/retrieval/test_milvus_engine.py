import itertools

import pytest
from engine_contract import EngineContract

from polyrank.retrieval.milvus.address import MilvusAddress
from polyrank.retrieval.milvus.engine import MilvusEngine
from polyrank.retrieval.milvus.schema import MilvusIndex

pytest.importorskip("pymilvus", reason="needs the extra milvus")
pytest.importorskip("milvus_lite", reason="needs the extra milvus")

numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One embedded server for the module: an engine stays open and keeps it running."""
    path = tmp_path_factory.mktemp("milvus") / "shared.db"
    engine = create(path, "kept", 8)
    yield path
    engine.close()


def create(path, name, dimension, index_type="FLAT", **options):
    return MilvusEngine.create(
        MilvusAddress(path=path, collection=name),
        fingerprint="f" * 64,
        dimension=dimension,
        num_vectors=4,
        index=MilvusIndex(index_type=index_type, lists=4),
        **options,
    )


class Contract(EngineContract):
    index_type = ""

    @pytest.fixture
    def build(self, server):
        engines = []

        def build(model, candidates):
            name = f"c{next(numbers)}"
            engines.append(create(server, name, model.dimension, self.index_type))
            engines[-1].add(candidates, model.encode_candidates, replace=False)
            return engines[-1]

        yield build
        for engine in engines:
            engine._collection.drop()
            engine.close()


class TestFlat(Contract):
    index_type = "FLAT"


class TestHNSW(Contract):
    index_type = "HNSW"
