"""Trains the network of digits.py in float32 and in three 16-bit modes; draws their losses.

All runs start from the same weights and use the same batches. They differ by rounding only, so the
curves are close to each other, and the accuracies on the test set differ by less than 1 %.

Examples:
    python examples/precisions.py
    python examples/precisions.py --epochs 4 --output losses.png
"""

import argparse
import copy

import torch
from digits import PRECISIONS, DigitNet, load_data, test, train
from digits import parse_arguments as digits_arguments


def plot(curves, path):
    """Draws loss curves, by name, into a PNG file: means over ten batches."""
    # Only here: the example trains without it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5))
    axes = figure.subplots()
    for name, losses in curves.items():
        losses = torch.tensor(losses)
        means = losses[: len(losses) // 10 * 10].view(-1, 10).mean(dim=1)
        axes.plot(10 * torch.arange(1, len(means) + 1), means, label=name, linewidth=1.2)
    axes.set(xlabel="batch", ylabel="cross-entropy", yscale="log", title="digits")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"wrote {path}")


def parse_arguments():
    """The command line."""
    summary, _, examples = __doc__.partition("\nExamples:")
    parser = argparse.ArgumentParser(
        description=summary,
        epilog="examples:" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--epochs", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--output", default="precisions.png", help="picture of the curves (default: %(default)s)"
    )
    return parser.parse_args()


def main():
    """Trains in each precision, prints the accuracies, draws the curves."""
    args = parse_arguments()
    torch.manual_seed(args.seed)
    first, curves = DigitNet(), {}
    for name, (dtype, _) in PRECISIONS.items():
        words = ["--epochs", str(args.epochs), "--seed", str(args.seed), "--precision", name]
        net = copy.deepcopy(first)
        train_data, test_data = load_data(dtype)
        print(f"\n{name}")
        curves[name] = train(net, train_data, digits_arguments(words))
        print(f"{name}: test accuracy {test(net, test_data):.2f} %")
    plot(curves, args.output)


if __name__ == "__main__":
    main()
