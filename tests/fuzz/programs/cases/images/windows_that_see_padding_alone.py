"""oneDNN's convolution of channels-last images, whose windows read no pixel, ended the process."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=2134140331622,
    sources=(
        Source(name='b0', sizes=(4, 6, 17, 1), dtype='F16', fill='normal', layout='plain'),
        Source(name='x0', sizes=(2, 6, 5, 1), dtype='F16', fill='positive', layout='plain'),
        Source(name='w0', sizes=(2,), dtype='F16', fill='whole', layout='plain'),
        Source(name='w1', sizes=(6, 1, 4, 1), dtype='F16', fill='whole', layout='plain'),
        Source(name='w2', sizes=(4,), dtype='F16', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = b0[::2]',
        'v1 = v0.contiguous(memory_format=torch.channels_last)',
        'v2 = x0 * 1',
        'v3 = w0 * 1',
        'v4 = F.conv2d(v1, v2, bias=v3, stride=2)',
        'v5 = w1[1:5]',
        'v6 = F.conv2d(v4, v5, bias=w2, stride=(3, 2), padding=(0, 3), dilation=(1, 2), groups=2)',
    ),
    outputs=('v4', 'v5', 'v6'),
    loss='(v5.to(F32).reshape(-1) * torch.linspace(-1, 1, v5.numel(), dtype=F32)).sum() '
         '+ v6.to(F32).pow(2).sum()',
    setting=Setting(
        algorithms=('gemm:bf16_loops', 'conv:bf16_im2col', 'gemm:float16_blocks',
                    'conv:direct_weight_gradient'),
        isa='base', reload_ir=True, iterations=2, accumulation=2, replicas=2, calls=2),
)
