import pytest
from engine_contract import EngineContract

from polyrank.retrieval.folder_engine import FolderEngine
from polyrank.retrieval.store.build import build_folder
from polyrank.retrieval.store.manifest import Layout


class TestFolderEngine(EngineContract):
    @pytest.fixture
    def build(self, tmp_path):
        def build(model, candidates):
            layout = Layout(block_rows=32, shard_rows=128)
            folder = tmp_path / "index"
            build_folder(
                model, candidates, folder, model_from=None, layout=layout, storage="float32"
            )
            return FolderEngine(folder)

        return build
