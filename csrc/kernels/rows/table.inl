// The table of rows.h, filled with the loops included before.
extern const Rows<T> table;
const Rows<T> table = {
    .softmax = softmax,
    .log_softmax = log_softmax,
    .softmax_backward = softmax_backward,
    .log_softmax_backward = log_softmax_backward,
    .softmax_columns = softmax_columns,
    .log_softmax_columns = log_softmax_columns,
    .softmax_backward_columns = softmax_backward_columns,
    .log_softmax_backward_columns = log_softmax_backward_columns,
    .log_sum = log_sum,
    .scaled_softmax = scaled_softmax,
    .moments = moments<T>,
    .affine = affine,
    .grad_sums = grad_sums,
    .grad_affine = grad_affine,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .mse = loops_of<MseLoss>(),
    .smooth_l1 = loops_of<SmoothL1Loss>(),
    .huber = loops_of<HuberLoss>(),
    .cross_entropy = loops_of<CrossEntropy>(),
    .logits_loss = logits_loss,
    .sum = sum_all,
    .attention_softmax = attention_softmax,
    .attention_gradient = attention_gradient,
};

template <typename E>
inline constexpr BatchNormLoops<E> batch_norm_table = {
    .moments = moments<E>,
    .moments_columns = moments_columns<E>,
    .affine = batch_affine<E>,
    .affine_columns = batch_affine_columns<E>,
    .grad_sums = batch_grad_sums<E>,
    .grad_sums_columns = batch_grad_sums_columns<E>,
    .grad_affine = batch_grad_affine<E>,
    .grad_affine_columns = batch_grad_affine_columns<E>,
};
