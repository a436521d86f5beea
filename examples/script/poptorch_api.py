"""Trains a small ResNet to read handwritten digits: the script of eager.py with PopTorch's API.

It has what such scripts have: autocast, gradient clipping, a cosine schedule with warm-up, an
exponential moving average of the weights, validation after each epoch, a best checkpoint, and a
smaller last batch.

Examples:
    python examples/script/poptorch_api.py
    python examples/script/poptorch_api.py --epochs 2 --seed 1
"""

import argparse
import os
import tempfile

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim import lr_scheduler, swa_utils
from torch.utils.data import DataLoader, TensorDataset, random_split
from tqdm import tqdm

import poptorch


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.layers(x) + self.shortcut(x))


def resnet(width=16):
    """A network from images ``[batch, 1, 8, 8]`` to scores ``[batch, 10]``."""
    return nn.Sequential(
        Block(1, width, 1),
        Block(width, 2 * width, 2),
        Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, 10),
    )


def load_data():
    """Training and validation set: images ``[1, 8, 8]`` from 0 to 1, and labels."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    data = TensorDataset(images, torch.tensor(digits.target))
    return random_split(data, [1437, 360], torch.Generator().manual_seed(0))


def validate(model, loader):
    """Accuracy in percent."""
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images).argmax(dim=1) == labels).sum().item()
    return 100 * right / len(loader.dataset)


def parse_arguments():
    """The command line."""
    summary, _, examples = __doc__.partition("\nExamples:")
    parser = argparse.ArgumentParser(
        description=summary,
        epilog="examples:" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--epochs", type=int, default=6, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--learning-rate", type=float, default=0.01, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--checkpoint", default=os.path.join(tempfile.mkdtemp(), "best.pt"),
                        help="file of the best checkpoint (default: in a temporary folder)")
    return parser.parse_args()


def main():
    """Trains, validates after each epoch, and prints the accuracy of the best checkpoint."""
    args = parse_arguments()
    torch.manual_seed(args.seed)
    train_data, valid_data = load_data()
    train_loader = DataLoader(train_data, args.batch_size, shuffle=True)
    valid_loader = DataLoader(valid_data, 2 * args.batch_size)
    net = resnet()
    average = swa_utils.AveragedModel(
        net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.95), use_buffers=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(net.parameters(), args.learning_rate)
    warm_up, steps = len(train_loader), args.epochs * len(train_loader)
    schedule = lr_scheduler.SequentialLR(optimizer, [
        lr_scheduler.LinearLR(optimizer, 0.1, total_iters=warm_up),
        lr_scheduler.CosineAnnealingLR(optimizer, steps - warm_up),
    ], [warm_up])
    options = poptorch.Options().recompilation(shapes=True)
    options.Training.gradientClipping(norm=1.0)
    step = poptorch.trainingModel(net, options, optimizer, loss=criterion)
    valid = poptorch.inferenceModel(net, poptorch.Options().recompilation(shapes=True))
    valid_average = poptorch.inferenceModel(average.module, valid.options)

    best = 0.0
    for epoch in range(args.epochs):
        net.train()
        with tqdm(train_loader, desc=f"epoch {epoch + 1}/{args.epochs}") as bar:
            for images, labels in bar:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    scores, loss = step(images, labels)
                schedule.step()
                average.update_parameters(net)
                bar.set_postfix(loss=f"{loss.item():.3f}")
        accuracy, averaged = validate(valid, valid_loader), validate(valid_average, valid_loader)
        print(f"epoch {epoch + 1}: accuracy {accuracy:.2f} %, of the average {averaged:.2f} %")
        if averaged > best:
            best = averaged
            torch.save({"net": net.state_dict(), "average": average.module.state_dict(),
                        "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
                        "epoch": epoch}, args.checkpoint)

    checkpoint = torch.load(args.checkpoint)
    net.load_state_dict(checkpoint["average"])
    print(f"best checkpoint: accuracy {validate(net, valid_loader):.2f} %")


if __name__ == "__main__":
    main()
