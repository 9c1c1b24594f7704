"""What `--help` shows of each command: the flags that people set, under titles, and examples.

A flag that is not named here is shown by `--help-all`, under the title of its settings class. So a
new flag needs a line here only if most people will set it.
"""

from __future__ import annotations

from collections.abc import Mapping

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Start": ("demo", "info", "doctor", "completion"),
    "Data and pre-training": ("corpus", "pretrain", "static"),
    "Train": ("train", "mine", "distil"),
    "Compare": ("evaluate", "compare", "predict", "reproduce"),
    "Search and share": ("index", "search", "serve", "encode", "export", "import", "push"),
}
"""The commands and groups of `polyrank --help`, by what people do."""

GROUPS: Mapping[str, str] = {
    "index": "Build an index of candidates; add, delete, compact, verify, info.",
}
"""The commands that have subcommands."""

FIGURES = ("ks", "metrics", "num_candidates", "limit")
BUILDING = {
    "Data": ("model", "candidates", "encoded"),
    "Index": ("storage", "backend", "recall", "copy_model"),
    "Output": ("output",),
    "Hardware": ("device",),
}
SHOWN: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "corpus": {
        "Data": ("source", "format", "language", "lists", "keep_going"),
        "Output": ("output", "restart"),
        "Hardware": ("processes",),
    },
    "pretrain": {
        "Data": ("corpus", "tasks", "preview"),
        "Model": ("base", "num_layers", "width", "vocabulary"),
        "Training": ("recipe", "epochs", "batch_size", "learning_rate"),
        "Output": ("output", "restart"),
        "Hardware": ("device",),
    },
    "static": {
        "Data": ("source", "limit"),
        "Model": ("dimension", "sif"),
        "Output": ("output",),
        "Hardware": ("device",),
    },
    "train": {
        "Data": ("train", "dev", "columns"),
        "Model": ("arch", "base", "max_context_length"),
        "Training": ("epochs", "batch_size", "learning_rate"),
        "Output": ("output", "preview", "restart"),
        "Hardware": ("device",),
    },
    "distil": {
        "Data": ("train", "dev", "pairs", "in_batch"),
        "Model": ("teacher", "arch", "base"),
        "Training": ("epochs", "batch_size", "learning_rate"),
        "Output": ("output", "restart"),
        "Hardware": ("device",),
    },
    "mine": {
        "Data": ("data", "candidates"),
        "Negatives": ("method", "retriever", "reranker", "num_negatives", "from_rank", "to_rank"),
        "Output": ("output", "restart"),
        "Hardware": ("device",),
    },
    "evaluate": {
        "Data": ("model", "data", "split", "mteb"),
        "Figures": (*FIGURES, "reranker"),
        "Output": ("output",),
        "Hardware": ("device",),
    },
    "compare": {
        "Data": ("models", "data", "split"),
        "Figures": (*FIGURES, "retriever", "latency"),
        "Output": ("output", "plot"),
        "Hardware": ("device",),
    },
    "predict": {
        "Data": ("model", "data", "split", "limit"),
        "Output": ("kind", "output", "restart"),
        "Hardware": ("device",),
    },
    "encode": {
        "Data": ("model", "candidates"),
        "Parts": ("num_parts", "part_index", "storage"),
        "Output": ("output",),
        "Hardware": ("device", "processes"),
    },
    "index build": BUILDING,
    "index add": {"Data": ("index", "candidates", "replace"), "Hardware": ("device",)},
    "search": {
        "Data": ("index", "texts", "turn"),
        "Search": ("top_k", "filter", "exact", "reranker", "num_candidates"),
        "Hardware": ("device",),
    },
    "serve": {
        "Serve": ("model", "index", "reranker"),
        "Server": ("host", "port", "workers", "api_key_file"),
        "Hardware": ("device",),
    },
    "export": {
        "Export": ("model", "to", "output", "only_candidates"),
        "Speed": ("quantise", "calibration"),
    },
    "reproduce": {
        "Data": ("tables", "data"),
        "Training": ("scale", "base", "max_steps", "batch_size", "seeds"),
        "Output": ("output", "keep_models"),
        "Hardware": ("device",),
    },
}
"""The settings of each command that `--help` shows, by title; without an entry, all of them."""

TITLES: Mapping[str, str] = {
    "model": "Model",
    "training": "Training",
    "objective": "Objective",
    "negatives": "Negatives",
    "bm25": "BM25",
    "pretraining": "Tasks",
    "masking": "Masked words",
    "tables": "Passages and turns",
    "tasks_settings": "Single tasks",
    "encoder": "New encoder",
    "DataOptions": "Data",
    "FigureOptions": "Figures",
    "DeviceOptions": "Hardware",
    "ModelOptions": "Hardware",
    "SourceOptions": "Model",
    "InferenceOptions": "Hardware",
    "RunOptions": "Output",
    "TrainOptions": "Data",
    "DistilOptions": "Data",
    "MineOptions": "Data",
    "EvaluateOptions": "Figures",
    "CompareOptions": "Figures",
    "BuildOptions": "Index",
    "ExportOptions": "Export",
    "ServeOptions": "Serve",
    "server": "Server",
    "settings": "Export",
}
"""The title of all other flags: by the name of the settings that are flattened into a command, or
of the class that declares them."""

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "": (
        "polyrank demo",
        "polyrank train --train faq.csv --output my-model",
    ),
    "demo": ("polyrank demo", "polyrank demo --data my-examples.jsonl"),
    "corpus": (
        "polyrank corpus enwiki-latest-pages-articles.xml.bz2 --output enwiki",
        "polyrank corpus python-docs --output docs",
    ),
    "pretrain": (
        "polyrank pretrain --corpus enwiki --preview",
        "polyrank pretrain --corpus enwiki --output my-encoder",
    ),
    "static": (
        "polyrank static all-MiniLM-L6-v2 --output static",
        "polyrank static glove.6B.300d.txt --output glove --limit 100000",
    ),
    "train": (
        "polyrank train --train faq.csv --output my-model",
        "polyrank train --train chats.jsonl --dev dev.jsonl --arch poly \\",
        "  --base my-model --output my-poly",
    ),
    "distil": (
        "polyrank distil --teacher my-cross --train chats.jsonl --arch bi \\",
        "  --base my-model --pairs given,bm25 --output my-bi",
    ),
    "mine": (
        "polyrank mine --data train.jsonl --method bm25 --output mined.jsonl",
        "polyrank mine --data train.jsonl --method model --retriever my-bi \\",
        "  --output mined.jsonl",
    ),
    "evaluate": (
        "polyrank evaluate my-model --data test.jsonl",
        "polyrank evaluate my-bi --data scifact --reranker my-cross",
        "polyrank evaluate my-bi --mteb SciFact --output results",
    ),
    "compare": ("polyrank compare my-bi my-poly bm25 --data test.jsonl --output table",),
    "predict": ("polyrank predict my-cross --data pairs.jsonl --output scores.jsonl",),
    "encode": (
        "polyrank encode my-bi --candidates texts.jsonl --num-parts 16 \\",
        "  --output parts",
    ),
    "index": (
        "polyrank index build my-model --candidates texts.txt --output my-index",
        "polyrank index add my-index more.jsonl --replace",
    ),
    "index build": (
        "polyrank index build my-model --candidates texts.txt --output my-index",
        "polyrank index build my-model --encoded parts --output my-index",
    ),
    "index add": ("polyrank index add my-index more.jsonl --replace",),
    "index delete": ("polyrank index delete my-index ids.txt",),
    "index compact": ("polyrank index compact my-index",),
    "index verify": ("polyrank index verify my-index",),
    "index info": ("polyrank index info my-index",),
    "completion": (
        "source <(polyrank completion bash)  # in ~/.bashrc",
        "polyrank completion fish > ~/.config/fish/completions/polyrank.fish",
    ),
    "doctor": ("polyrank doctor", "polyrank doctor --json"),
    "info": ("polyrank info my-model", "polyrank info examples.csv --json"),
    "search": (
        'polyrank search my-index "How do I sort a list?" -k 3',
        "polyrank search my-index < questions.txt",
    ),
    "serve": (
        "polyrank serve --model my-model",
        "polyrank serve --index my-index --reranker my-cross",
    ),
    "export": (
        "polyrank export my-model --to sentence-transformers --output for-st",
        "polyrank export my-model --to openvino --output for-cpus",
    ),
    "import": ("polyrank import parlai/model --output my-model",),
    "push": ("polyrank push my-model my-name/my-model --private",),
    "reproduce": (
        "polyrank reproduce",
        "polyrank reproduce architectures --data dialogues=chats.jsonl",
    ),
}
"""Commands as one types them, for the end of each help page; "" is `polyrank --help`."""
