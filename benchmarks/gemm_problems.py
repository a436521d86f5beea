"""Matrix products of published architectures: what the part 'gemm' measures.

A linear layer gives three: forward with its bias, the gradient of its input, the gradient of its
weight. Attention gives the scores and the context of all heads, and their four gradients.
"""

from dataclasses import dataclass, replace

ITEM_SIZES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i32": 4, "i64": 8}


@dataclass(frozen=True)
class Problem:
    """``op(a) @ op(b)``, ``[batch, m, k]`` times ``[batch, k, n]``.

    Attributes:
        source: the architecture.
        form: which product of a layer it is.
        turned_a: the memory of a is ``[batch, k, m]``.
        turned_b: the memory of b is ``[batch, n, k]``.
        has_bias: a row of n numbers is added.
    """

    source: str
    form: str
    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str = "f32"
    turned_a: bool = False
    turned_b: bool = False
    has_bias: bool = False

    def name(self):
        """Its sizes, as they are multiplied."""
        batch = f"{self.batch} * " if self.batch > 1 else ""
        return f"{batch}{self.m} x {self.n} x {self.k}"

    def flops(self):
        """Multiplications and additions."""
        return 2 * self.batch * self.m * self.n * self.k


def linear(source, tokens, inputs, outputs):
    """The three products of ``nn.Linear(inputs, outputs)`` over so many rows."""
    return [
        Problem(source, "forward", tokens, outputs, inputs, turned_b=True, has_bias=True),
        Problem(source, "of input", tokens, inputs, outputs),
        Problem(source, "of weight", outputs, inputs, tokens, turned_a=True),
    ]


def attention(source, heads, queries, keys, features):
    """The six products of attention, of so many heads in the batch."""
    sizes = {"batch": heads}
    return [
        Problem(source, "scores", queries, keys, features, turned_b=True, **sizes),
        Problem(source, "context", queries, features, keys, **sizes),
        Problem(source, "of weights", queries, keys, features, turned_b=True, **sizes),
        Problem(source, "of value", keys, features, queries, turned_a=True, **sizes),
        Problem(source, "of query", queries, features, keys, **sizes),
        Problem(source, "of key", keys, features, queries, turned_a=True, **sizes),
    ]


# (source, rows, input features, output features)
LINEARS = [
    ("BERT base", 512, 768, 768), ("BERT base", 512, 768, 3072), ("BERT base", 512, 3072, 768),
    ("BERT base, 1 sequence", 128, 768, 768), ("BERT base, 1 sequence", 128, 768, 3072),
    ("BERT base pooler", 8, 768, 768), ("BERT base head", 8, 768, 2),
    ("BERT tiny", 256, 128, 128), ("BERT tiny", 256, 128, 512),
    ("GPT-2 small", 256, 768, 2304), ("GPT-2 small", 256, 768, 3072),
    ("GPT-2 small, 1 token", 1, 768, 2304), ("GPT-2 small, 1 token", 1, 3072, 768),
    ("GPT-2 small, 4 beams", 4, 768, 3072),
    ("ViT-S/16", 394, 384, 1152), ("ViT-S/16", 394, 384, 1536), ("ViT-S/16", 394, 1536, 384),
    ("ViT head", 16, 384, 1000),
    ("Transformer base", 400, 512, 512), ("Transformer base", 400, 512, 2048),
    ("MLP-Mixer S/16 tokens", 4096, 196, 256), ("MLP-Mixer S/16 channels", 784, 512, 2048),
    ("Whisper tiny", 1500, 384, 384), ("Conformer S", 250, 144, 576),
    ("MNIST MLP", 64, 784, 256), ("MNIST MLP", 64, 256, 10), ("MNIST MLP", 128, 784, 128),
    ("DLRM bottom", 128, 13, 512), ("DLRM top", 128, 479, 1024), ("DLRM top", 128, 256, 1),
    ("NCF", 256, 64, 32), ("NCF", 256, 16, 8),
    ("autoencoder", 64, 128, 64), ("autoencoder", 64, 12, 3),
    ("VGG classifier", 8, 4096, 4096), ("ResNet-50 head", 32, 2048, 1000),
    ("MobileNet head", 32, 1280, 1000), ("EfficientNet squeeze", 32, 96, 4),
    ("LSTM cell, PTB small", 20, 200, 800), ("LSTM cell, PTB medium", 20, 650, 2600),
    ("LSTM cell, 64 sequences", 64, 256, 1024), ("GRU cell", 32, 512, 1536),
    ("char-RNN", 50, 128, 512), ("LSTM input, all steps", 640, 200, 800),
    ("GCN, Cora", 2708, 1433, 16), ("GCN, Cora", 2708, 16, 7),
    ("PointNet", 4096, 3, 64), ("PointNet", 4096, 64, 128), ("tabular", 4096, 32, 16),
    ("DQN head", 32, 3136, 512), ("DQN head", 32, 512, 4), ("actor, 8 environments", 8, 64, 64),
]

# (source, batch * heads, queries, keys, features of a head)
ATTENTIONS = [
    ("BERT base attention", 48, 128, 128, 64), ("GPT-2 small attention", 12, 256, 256, 64),
    ("GPT-2 small attention, 1 token", 12, 1, 256, 64), ("ViT-S/16 attention", 12, 197, 197, 64),
    ("BERT tiny attention", 16, 32, 32, 64), ("Swin window attention", 192, 49, 49, 32),
]

# Some of those above in other types: of integers ATen has plain loops, so the small ones.
IN_HALF = [
    ("BERT base", 128, 768, 768), ("BERT tiny", 256, 128, 128), ("MNIST MLP", 64, 256, 10),
    ("LSTM cell, PTB small", 20, 200, 800), ("GCN, Cora", 2708, 16, 7),
]


def every_problem():
    """All of them, those of a source side by side."""
    problems = [p for row in LINEARS for p in linear(*row)]
    problems += [p for row in ATTENTIONS for p in attention(*row)]
    for dtype in ("f16", "bf16", "f64"):
        problems += [replace(p, dtype=dtype) for row in IN_HALF for p in linear(*row)]
    for dtype in ("i32", "i64"):
        problems.append(Problem("integers", "forward", 64, 64, 64, dtype=dtype))
        problems.append(Problem("integers", "forward", 128, 256, 32, dtype=dtype, turned_b=True))
    return list(dict.fromkeys(problems))
