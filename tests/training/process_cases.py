"""What is compared between one process and two."""

FIRST = 6
"""Records of the first process; the second has the other five."""
COMBINATIONS = {
    f"{variant}-{case}-{cache}": (variant, case, cache, {})
    for variant, case, caches in (
        ("bi", "softmax", ("never", "always")),
        ("bi", "symmetric", ("never",)),
        ("bi", "triplet", ("never",)),
        ("bi", "classification", ("never", "always")),
        ("bi", "cosent", ("never",)),
        ("poly-learnt", "softmax", ("never", "always")),
        ("poly-learnt", "symmetric", ("always",)),
        ("poly-learnt", "extra", ("never",)),
        ("poly-learnt", "taught-by-cross", ("always",)),
        ("bi", "taught-by-bi", ("never",)),
        ("bi", "taught-by-pairs", ("never",)),
        ("poly-learnt", "taught-by-several", ("never",)),
        ("poly-learnt", "regression", ("never",)),
        ("poly-learnt", "margin_mse", ("never", "always")),
        ("poly-learnt", "kl", ("never",)),
        ("cross", "listwise", ("never", "always")),
        ("cross", "binary", ("never",)),
        ("cross", "classification", ("never",)),
        ("cross", "kl", ("always",)),
        ("cross-interaction", "softmax", ("never",)),
    )
    for cache in caches
}
LORA = {"lora_rank": 3}
COMBINATIONS["bi-lora"] = ("bi", "softmax", "never", LORA)
COMBINATIONS["bi-lora-shared"] = ("bi", "softmax", "always", {**LORA, "shared_towers": True})
COMBINATIONS["poly-lora"] = ("poly-learnt", "softmax", "always", LORA)
COMBINATIONS["cross-lora"] = ("cross", "listwise", "never", LORA)
ONCE = {"reading": "once"}
COMBINATIONS["cross-once"] = ("cross", "listwise", "always", ONCE)
COMBINATIONS["cross-interaction-once"] = ("cross-interaction", "listwise", "never", ONCE)
COMBINATIONS["bi-corpus-never"] = ("bi", "corpus", "never", {})
COMBINATIONS["bi-corpus-always"] = ("bi", "corpus", "always", {})
COMBINATIONS["bi-corpus-two-towers"] = ("bi", "corpus", "never", {"shared_towers": False})
COMBINATIONS["bi-corpus-cmae"] = ("bi", "corpus", "always", {"tasks": "cmae"})
COMBINATIONS["bi-corpus-one-sided"] = ("bi", "corpus", "never", {"one_sided": True})
