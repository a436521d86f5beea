"""Random calls of torch's functions, mostly with arguments that do not suit them.

Whatever eager refuses is refused, as a poptorch.Error that is caught as eager's class too and
names the line; whatever else is refused is a poptorch.Error as well. What Python itself refuses
before torch runs (an unexpected keyword) is the same TypeError as in eager.
"""

import random
import re

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.capture.common import Function
from tests.fuzz.judge import FACTOR
from tests.helpers import quiet_options

CALLS = 300

# Made of other operations, functions take more dtypes here than PyTorch's kernels do, and give what
# those operations give.
DTYPE = re.compile(
    r"not implemented for '|with a bool tensor|expected dtype|support bool|same dtype|"
    r"can't be cast")

TORCH = """
    abs add addcdiv addcmul addmm all allclose amax amin aminmax any argmax argmin argsort
    as_strided atan2 baddbmm bitwise_and bitwise_not bitwise_left_shift bmm broadcast_to bucketize
    cat ceil chunk clamp clone column_stack complex concat conj constant_pad_nd cosine_similarity
    count_nonzero cov cross cummax cumprod cumsum cumulative_trapezoid deg2rad diag diag_embed
    diagonal diff dist div dot dstack einsum eq equal exp expm1 eye fill flatten flip floor_divide
    fmod frac full full_like gather gcd ge hstack hypot index_add index_copy index_fill
    index_select inner isclose isfinite isin kron kthvalue lerp linspace log logaddexp
    logcumsumexp logical_and logical_not logit logsumexp lt masked_fill masked_scatter matmul max
    maximum mean median meshgrid min mm mode movedim mul multinomial mv nan_to_num narrow neg norm
    ones_like outer permute pow prod quantile ravel remainder renorm repeat_interleave reshape
    roll rot90 round rsub scatter scatter_add scatter_reduce searchsorted select sigmoid sign
    softmax sort split split_with_sizes sqrt square squeeze stack std std_mean sub sum t take
    take_along_dim tensor_split tensordot tile topk trace transpose trapezoid tril triu
    true_divide trunc unbind unflatten unsqueeze vander var var_mean vdot view_as_real vstack
    where xlogy zeros zeros_like""".split()
METHODS = """
    add_ addmm_ bool clamp_ contiguous copy_ div_ double expand expand_as fill_ float half
    index_add_ index_copy_ index_fill_ int long masked_fill_ mul_ narrow new_full new_zeros permute
    pow_ repeat reshape_as scatter_ scatter_add_ squeeze_ sub_ sum_to_size t_ to transpose_ tril_
    type_as unfold unsqueeze_ view view_as zero_ __and__ __floordiv__ __getitem__ __matmul__
    __rsub__""".split()
LAYERS = """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d affine_grid alpha_dropout
    avg_pool1d avg_pool2d batch_norm bilinear binary_cross_entropy
    binary_cross_entropy_with_logits celu conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    cosine_embedding_loss cross_entropy dropout2d elu embedding embedding_bag fold gelu glu
    grid_sample group_norm gumbel_softmax hardshrink hardtanh hinge_embedding_loss huber_loss
    instance_norm interpolate kl_div l1_loss layer_norm leaky_relu linear local_response_norm
    log_softmax lp_pool1d margin_ranking_loss max_pool1d max_pool2d mse_loss multi_margin_loss
    multilabel_margin_loss nll_loss normalize one_hot pad pairwise_distance pixel_shuffle
    pixel_unshuffle poisson_nll_loss prelu relu rms_norm scaled_dot_product_attention selu
    smooth_l1_loss soft_margin_loss softmax softplus threshold triplet_margin_loss unfold
    upsample""".split()
FUNCTIONS = [*((torch, name) for name in TORCH), *((torch.Tensor, name) for name in METHODS),
             *((F, name) for name in LAYERS)]
KEYWORDS = ["dim", "keepdim", "dtype", "alpha", "out", "size", "correction", "reduction", "weight",
            "stable", "value", "foo", "p", "mode", "bias", "stride", "padding"]
DTYPES = [torch.float32] * 4 + [torch.int64] * 2 + [torch.float16, torch.bfloat16, torch.bool,
                                                    torch.int32, torch.uint8, torch.float64]


def draw_tensor(rng: random.Random) -> torch.Tensor:
    sizes = [rng.choice((1, 2, 2, 3, 3, 4, 5, 0)) for _ in range(rng.choice((0, 1, 2, 2, 3, 4)))]
    dtype = rng.choice(DTYPES)
    if dtype.is_floating_point:
        return torch.randn(sizes).to(dtype)
    return torch.randint(0, 2, sizes).to(dtype)


def draw_other(rng: random.Random):
    return rng.choice((
        lambda: rng.randint(-3, 5), lambda: rng.randint(0, 2), lambda: rng.random(),
        lambda: None, lambda: rng.random() < 0.5, lambda: rng.choice(("mean", "sum", "abc", "ij")),
        lambda: [rng.randint(-1, 4) for _ in range(rng.randint(0, 4))],
        lambda: tuple(rng.randint(1, 3) for _ in range(rng.randint(1, 3))),
        lambda: rng.choice(DTYPES)))()


def draw_call(rng: random.Random):
    """A function, its arguments and keyword arguments; in arguments, numbers stand for tensors."""
    owner, name = rng.choice(FUNCTIONS)
    tensors = [draw_tensor(rng) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    places = list(range(len(tensors)))
    arguments = [("tensors", places)] if owner is torch and rng.random() < 0.1 \
        else [("tensor", place) for place in places]
    arguments += [("other", draw_other(rng)) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
    if rng.random() < 0.2:
        head, *tail = arguments
        rng.shuffle(tail)
        arguments = [head, *tail]
    keywords = {rng.choice(KEYWORDS): draw_other(rng) for _ in range(rng.choice((0, 0, 0, 1)))}
    return getattr(owner, name), tensors, arguments, keywords


def filled(arguments: list, tensors: tuple) -> list:
    return [tensors[value] if kind == "tensor" else [tensors[i] for i in value]
            if kind == "tensors" else value for kind, value in arguments]


def refused(call, *args):
    """``(result, None)``, or ``(None, exception)``."""
    try:
        return call(*args), None
    except Exception as error:
        return None, error


def check_call(function, tensors, arguments, keywords):
    """Compares what is refused; returns whether eager refuses."""
    def forward(m, *inputs):
        return function(*filled(arguments, inputs), **keywords)

    copies = [tensor.clone() for tensor in tensors]
    with torch.no_grad():
        _, eager = refused(forward, None, *copies)
    _, ours = refused(poptorch.inferenceModel(Function(forward), quiet_options()), *tensors)
    what = f"eager: {eager!r:.300}\nours: {ours!r:.600}"
    if type(ours) is TypeError and type(eager) is TypeError:
        assert str(ours) == str(eager), what
        return True
    if ours is not None:
        assert isinstance(ours, poptorch.Error), what
        assert "internal error" not in str(ours), what
        assert __file__ in ours.location or "step run" in str(ours), what
    if eager is None or ours is None:
        assert eager is None or DTYPE.search(str(eager)), what
    elif not isinstance(ours, type(eager)) and "needs the value of a tensor" not in str(ours) \
            and not DTYPE.search(str(eager)):
        # The values decided, which a capture does not have.
        _, other = refused(forward, None, *(tensor.fill_(1) for tensor in copies))
        assert type(other) is not type(eager), what
    return eager is not None


@pytest.mark.filterwarnings("ignore")
def test_what_eager_refuses_is_refused_in_its_class(seed):
    rng = random.Random(seed)
    count, failures = 0, []
    for number in range(CALLS * FACTOR):
        call = draw_call(random.Random(rng.random()))
        try:
            count += check_call(*call)
        except AssertionError as error:
            function, tensors, arguments, keywords = call
            shapes = [f"{t.dtype}{list(t.shape)}" for t in tensors]
            failures.append(f"{function} {shapes} {arguments} {keywords}\n{error}")
    # If there are two reasons to refuse a call, eager and poptorch may name different ones.
    shown = "\n\n".join(failures[:40])
    assert len(failures) <= max(1, number // 100), f"{len(failures)} of {number + 1}\n{shown}"
    assert count > CALLS * FACTOR // 4
    layer, x = torch.nn.Linear(3, 2), torch.randn(2, 3)
    torch.testing.assert_close(poptorch.inferenceModel(layer, quiet_options())(x), layer(x))
