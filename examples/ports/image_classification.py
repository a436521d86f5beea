"""Classifies images: data loaded ahead, several batches in a call, validation after each epoch.

The images are scikit-learn's 1,797 handwritten digits. The training images are shifted by a pixel
at random, in place of the decoding and augmentation of larger programs. Training and validation
wrap the same module, so validation uses the trained weights without any copying code.

Examples:
    python examples/ports/image_classification.py
    python examples/ports/image_classification.py --epochs 3 --device-iterations 8 --workers 2
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset
from tqdm import tqdm

import poptorch


class Digits(Dataset):
    """Items ``(image [1, 8, 8], label)``; the training part is shifted at random."""

    def __init__(self, is_training):
        digits = load_digits()
        rows = range(0, 1437) if is_training else range(1437, 1797)
        self.images = torch.tensor(digits.images[rows], dtype=torch.float32).unsqueeze(1) / 16
        self.labels = torch.tensor(digits.target[rows])
        self.is_training = is_training

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.is_training:
            image = image.roll(torch.randint(-1, 2, (1,)).item(), dims=2)
        return image, self.labels[index]


class Net(nn.Module):
    """Two convolutions and a linear layer; the loss is part of it, as PopTorch needs it."""

    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, 10),
        )
        self.loss = nn.CrossEntropyLoss(label_smoothing=0.1)

    def forward(self, images, labels=None):
        scores = self.layers(images)
        return scores if labels is None else (scores, self.loss(scores, labels))


def options_for(args):
    """The same for both models: results of all the batches of a call come back."""
    options = poptorch.Options()
    options.deviceIterations(args.device_iterations)
    options.outputMode(poptorch.OutputMode.All)
    return options.randomSeed(args.seed)


def loader_for(options, is_training, args):
    """Loads in a process of its own, ``--workers`` more of them help it."""
    return poptorch.DataLoader(
        options, Digits(is_training), batch_size=args.batch_size, shuffle=is_training,
        num_workers=args.workers, mode=poptorch.DataLoaderMode.Async,
        async_options={"early_preload": True},
    )


def validate(model, loader):
    """Scores and labels of all the images that the loader gives."""
    results = [(model(images), labels.clone()) for images, labels in loader]
    return (torch.cat(column) for column in zip(*results, strict=True))


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--epochs", type=int, default=8, help="default: %(default)s")
    add("--batch-size", type=int, default=15, help="default: %(default)s")
    add("--device-iterations", type=int, default=4, help="batches a call (default: %(default)s)")
    add("--workers", type=int, default=0, help="more loading processes (default: %(default)s)")
    add("--learning-rate", type=float, default=3e-3, help="default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    return parser.parse_args()


def main():
    """Trains and validates; compares the predictions with those of PyTorch."""
    args = parse_arguments()
    torch.manual_seed(args.seed)
    net, options = Net(), options_for(args)
    train_loader = loader_for(options, True, args)
    validation_loader = loader_for(options, False, args)
    optimizer = poptorch.optim.AdamW(net.parameters(), lr=args.learning_rate, weight_decay=0.01)
    training = poptorch.trainingModel(net.train(), options, optimizer)
    inference = poptorch.inferenceModel(net.eval(), options)

    for epoch in range(args.epochs):
        with tqdm(train_loader, desc=f"epoch {epoch + 1}/{args.epochs}") as bar:
            for images, labels in bar:
                _, loss = training(images, labels)
                bar.set_postfix(loss=f"{loss.mean().item():.3f}")
        scores, labels = validate(inference, validation_loader)
        accuracy = (scores.argmax(1) == labels).float().mean().item() * 100
        print(f"epoch {epoch + 1}: validation accuracy {accuracy:.2f} %")
    for loader in (train_loader, validation_loader):
        loader.terminate()

    data = Digits(is_training=False)
    with torch.no_grad():
        eager = net.eval()(data.images[: len(scores)])
    same = (eager.argmax(1) == scores.argmax(1)).sum().item()
    print(f"PyTorch predicts the same for {same} of {len(scores)} images")


if __name__ == "__main__":
    main()
