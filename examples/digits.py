"""Trains a small convolutional network to read handwritten digits, then tests it.

The data are the 1,797 images of 8x8 pixels that scikit-learn ships; 360 of them are held back for
the test. A call runs several batches on the device (``--device-iterations``). A new learning rate
in each epoch does not recompile the model.

With ``--precision`` weights and activations have 16 bits: float16 with a loss scale, float16 with
stochastic rounding, or bfloat16.

Examples:
    python examples/digits.py
    python examples/digits.py --epochs 20 --seed 3
    python examples/digits.py --device-iterations 1 --batch-size 64
    python examples/digits.py --precision float16
"""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import TensorDataset
from tqdm import tqdm

import poptorch

TEST_IMAGES = 360
SPLIT_SEED = 0
LOSS_SCALE = 1024.0  # of float16, whose smallest number is 6e-8

# What weights and activations are, and whether results are rounded to it by chance.
PRECISIONS = {
    "float32": (torch.float32, False),
    "float16": (torch.float16, False),
    "float16-stochastic": (torch.float16, True),
    "bfloat16": (torch.bfloat16, False),
}


class DigitNet(nn.Module):
    """Three convolutions with batch norm, and a linear layer.

    In training mode it returns ``(scores, loss)``: the loss must be computed inside the module for
    poptorch to train it. In eval mode it returns the scores, of shape ``[batch, 10]``.
    """

    def __init__(self, width=32):
        super().__init__()
        self.features = nn.Sequential(
            *self._convolution(1, width),
            *self._convolution(width, 2 * width),
            nn.MaxPool2d(2),
            *self._convolution(2 * width, 2 * width),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Dropout(0.25), nn.Linear(8 * width, 10))
        self.loss = nn.CrossEntropyLoss()

    @staticmethod
    def _convolution(channels_in, channels_out):
        convolution = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        return convolution, nn.BatchNorm2d(channels_out), nn.ReLU()

    def forward(self, images, labels=None):
        scores = self.classify(self.features(images))
        return (scores, self.loss(scores, labels)) if self.training else scores


def load_data(dtype=torch.float32):
    """Training and test set: images ``[1, 8, 8]`` from 0 to 1, and labels."""
    digits = load_digits()
    images = (torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16).to(dtype)
    labels = torch.tensor(digits.target)
    train, test = train_test_split(
        range(len(labels)),
        test_size=TEST_IMAGES,
        random_state=SPLIT_SEED,
        stratify=digits.target,
    )
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def accuracy(scores, labels):
    """Percentage of rows whose largest score is at the label."""
    return (scores.argmax(dim=1) == labels).float().mean().item() * 100


def train(net, data, args):
    """Trains ``net`` on ``data``; shows loss and accuracy for each epoch.

    Returns:
        The loss of each batch.
    """
    dtype, is_stochastic = PRECISIONS[args.precision]
    options = poptorch.Options()
    options.deviceIterations(args.device_iterations)
    options.outputMode(poptorch.OutputMode.All)
    options.randomSeed(args.seed)
    options.Precision.enableStochasticRounding(is_stochastic)
    loader = poptorch.DataLoader(options, data, batch_size=args.batch_size, shuffle=True)
    scale = LOSS_SCALE if dtype is torch.float16 else 1.0
    optimizer = poptorch.optim.Adam(net.parameters(), lr=args.learning_rate, loss_scaling=scale)
    model = poptorch.trainingModel(net.to(dtype), options, optimizer)
    curve = []

    for epoch in range(args.epochs):
        for group in optimizer.param_groups:
            group["lr"] = args.learning_rate * (1 - epoch / args.epochs)
        model.setOptimizer(optimizer)
        losses, correct = [], []
        with tqdm(loader, desc=f"epoch {epoch + 1:2d}/{args.epochs}") as bar:
            for images, labels in bar:
                scores, loss = model(images, labels)
                losses.append(loss.float().mean().item())
                curve += loss.float().tolist()
                correct.append(accuracy(scores, labels))
                bar.set_postfix(
                    loss=f"{sum(losses) / len(losses):.4f}",
                    accuracy=f"{sum(correct) / len(correct):.2f} %",
                )
    model.destroy()
    return curve


def test(net, data):
    """Accuracy in percent on ``data``."""
    options = poptorch.Options().showCompilationProgressBar(False)
    loader = poptorch.DataLoader(options, data, batch_size=60)
    model = poptorch.inferenceModel(net.eval(), options)
    results = [(model(images), labels) for images, labels in loader]
    model.destroy()
    return accuracy(*(torch.cat(column) for column in zip(*results, strict=True)))


def parse_arguments(words=None):
    """The command line, or the given list of words."""
    summary, _, examples = __doc__.partition("\nExamples:")
    parser = argparse.ArgumentParser(
        description=summary,
        epilog="examples:" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--epochs", type=int, default=12, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="default: %(default)s")
    parser.add_argument(
        "--device-iterations", type=int, default=4, help="batches a call (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="default: %(default)s"
    )
    return parser.parse_args(words)


def main():
    """Trains, tests, and prints the accuracy on the test set."""
    args = parse_arguments()
    torch.manual_seed(args.seed)
    net = DigitNet()
    train_data, test_data = load_data(PRECISIONS[args.precision][0])
    start = time.perf_counter()
    train(net, train_data, args)
    print(f"trained in {time.perf_counter() - start:.1f} s")
    print(f"test accuracy {test(net, test_data):.2f} %")


if __name__ == "__main__":
    main()
