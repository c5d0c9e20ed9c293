# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.4"]
# ///
"""Trains a small transformer on generated text, with checkpoints: stopped anywhere, it resumes on another node.

Run:  pool submit examples/train_gpu.py --vram 8 --ram 8 --disk 4 --wait -- --steps 500

A node whose owner offers an environment with torch starts it without a download. On a node without a GPU, leave out --vram;
the model is then much smaller.
"""

import argparse
import json
import os
import time
from pathlib import Path

BEGAN = time.perf_counter()  # before the import of torch, which takes seconds on a cold start

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

try:
    from computepool import checkpoint, restored
except ModuleNotFoundError:  # started by hand, on a machine without ComputePool
    checkpoint, restored = None, None

SAVED = "training.pt"
LETTERS = "0123456789+= \n"


def text(seed: int, count: int) -> str:
    """Lines of sums, such as `17+25=42`: a model that learns has to carry."""
    numbers = torch.randint(0, 100, (count, 2), generator=torch.Generator().manual_seed(seed)).tolist()
    return "".join(f"{first}+{second}={first + second}\n" for first, second in numbers)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.attend(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.project(seen)
        return x + self.feed(self.second(x))


class Model(nn.Module):
    def __init__(self, *, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(LETTERS)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.blocks(self.letters(x) + self.places(places)))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=50, metavar="STEPS", help="between two reports and checkpoints")
    parser.add_argument("--size", choices=("tiny", "small"), help="default: small on a GPU, tiny without one")
    parser.add_argument("--no-checkpoints", action="store_true")
    return parser.parse_args()


class Training:
    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        small = (chosen.size or ("small" if self.device.type == "cuda" else "tiny")) == "small"
        self.batch, self.context = (64, 256) if small else (8, 32)
        shape = {"width": 512, "layers": 8, "heads": 8} if small else {"width": 32, "layers": 2, "heads": 2}
        torch.manual_seed(7)
        self.model = Model(**shape, context=self.context).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4 if small else 3e-3)
        self.data = torch.tensor([LETTERS.index(letter) for letter in text(1, 20_000)], device=self.device)
        self.start = 0  #: the last step of the attempt that this one resumes

    @property
    def device_name(self) -> str:
        if self.device.type == "cuda":
            return torch.cuda.get_device_name()
        return f"CPU, {torch.get_num_threads()} threads"

    def resume(self) -> None:
        folder = restored() if restored else None
        if folder is not None:
            saved = torch.load(folder / SAVED, map_location=self.device, weights_only=True)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.start = saved["step"]
            print(f"resuming after step {self.start}", flush=True)

    def save(self, step: int) -> None:
        if checkpoint and not self.chosen.no_checkpoints:
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": step}
            torch.save(state, SAVED)
            checkpoint(SAVED, progress=step / self.chosen.steps)

    def step(self) -> torch.Tensor:
        at = torch.randint(0, len(self.data) - self.context - 1, (self.batch, 1), device=self.device)
        window = self.data[at + torch.arange(self.context + 1, device=self.device)]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            scores = self.model(window[:, :-1])
        loss = F.cross_entropy(scores.float().flatten(0, 1), window[:, 1:].flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self) -> dict[str, object]:
        steps, first_step_s, began, loss_now = self.chosen.steps, 0.0, time.perf_counter(), float("nan")
        for step in range(self.start + 1, steps + 1):
            loss = self.step()
            if not first_step_s:
                loss_now = loss.item()  # waits for the GPU
                first_step_s, began = time.perf_counter() - BEGAN, time.perf_counter()
                print(f"first step after {first_step_s:.2f} s, loss {loss_now:.3f}", flush=True)
            if step % self.chosen.every == 0 or step == steps:
                loss_now = loss.item()
                print(f"step {step}: loss {loss_now:.3f}\n::progress {step / steps:.4f}", flush=True)
                if step < steps:
                    self.save(step)
        train_s, done = time.perf_counter() - began, max(0, steps - self.start - 1)
        return {
            "device": self.device_name,
            "first_step_s": round(first_step_s, 3),
            "steps": done,
            "train_s": round(train_s, 3),
            "tokens_per_s": round(done * self.batch * self.context / train_s),
            "loss": loss_now,
            "vram_mb": torch.cuda.max_memory_allocated() >> 20 if self.device.type == "cuda" else 0,
            "resumed_after": self.start,
        }


def main() -> None:
    training = Training(options())
    training.resume()
    parameters = sum(parameter.numel() for parameter in training.model.parameters())
    print(f"{parameters:,} parameters on {training.device_name}, torch {torch.__version__}", flush=True)
    found = training.run()
    print(f"{found['tokens_per_s']} tokens/s over {found['steps']} steps, loss {found['loss']:.3f}")
    outputs = Path(os.environ.get("COMPUTEPOOL_OUTPUTS", "outputs"))
    outputs.mkdir(exist_ok=True)
    (outputs / "training.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
