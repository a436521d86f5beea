"""A textbook prefix beam search: a dictionary of prefixes, step by step."""

import math
from collections import defaultdict

import torch


def log_sum(a: float, b: float) -> float:
    """The logarithm of the sum of two numbers given by their logarithms."""
    low, high = min(a, b), max(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def search(probs: list[list[float]], blank: int, width: int) -> list[tuple[float, tuple]]:
    """Logarithm of the probability and labels of each prefix of the last beam, in order."""
    beam = {(): (0.0, -math.inf)}  # with a blank at the end, with the last label at the end
    for step in probs:
        found = defaultdict(lambda: [-math.inf, -math.inf])
        for prefix, (blank_end, label_end) in beam.items():
            total = log_sum(blank_end, label_end)
            for label, p in enumerate(step):
                if label == blank:
                    found[prefix][0] = log_sum(found[prefix][0], total + p)
                    continue
                longer = (*prefix, label)
                if prefix and prefix[-1] == label:
                    found[prefix][1] = log_sum(found[prefix][1], label_end + p)
                    found[longer][1] = log_sum(found[longer][1], blank_end + p)
                else:
                    found[longer][1] = log_sum(found[longer][1], total + p)
        ordered = sorted(((log_sum(*ends), prefix) for prefix, ends in found.items()
                          if log_sum(*ends) > -math.inf), key=lambda item: (-item[0], item[1]))
        beam = {prefix: tuple(found[prefix]) for _, prefix in ordered[:width]}
    ordered = [(log_sum(*ends), prefix) for prefix, ends in beam.items()]
    return sorted(ordered, key=lambda item: (-item[0], item[1]))


def decoded(probs: torch.Tensor, lengths: torch.Tensor, blank=0, beam_width=100, top_paths=1):
    """What ``ctc_beam_search_decoder`` gives."""
    time, batch, _ = probs.shape
    path_probs = torch.full((batch, top_paths), -math.inf, dtype=probs.dtype)
    path_lengths = torch.zeros(batch, top_paths, dtype=torch.int32)
    paths = torch.full((batch, top_paths, time), blank, dtype=torch.int32)
    for i, length in enumerate(lengths.tolist()):
        found = search(probs[:length, i].double().tolist(), blank, beam_width)
        for j, (total, prefix) in enumerate(found[:top_paths]):
            path_probs[i, j], path_lengths[i, j] = total, len(prefix)
            paths[i, j, :len(prefix)] = torch.tensor(prefix, dtype=torch.int32)
    return path_probs, path_lengths, paths
