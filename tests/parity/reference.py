"""HF Transformers, PEFT and plain torch as references for the compute library."""

import dataclasses
import pathlib
import re

import tokenizers
import torch
import transformers
from peft import LoraConfig, get_peft_model

ATTN = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
UNEMBED = ["lm_head"]


def registered_losses():
    """The names of all losses that the programs know."""
    headers = pathlib.Path(__file__).parents[2].glob("libs/common/losses/*.h")
    return set(re.findall(r'LossProgram k\w+ = \{\s*\.name = "(\w+)"',
                          "".join(header.read_text() for header in headers)))


def text_tokens(folder, length, begin=0):
    """Ids of an English text, by the folder's tokenizer."""
    text = (pathlib.Path(__file__).parents[2] / "tools/tiny_model_text.txt").read_text()
    ids = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    assert begin + length <= len(ids)
    return ids[begin : begin + length]


def load_base(folder):
    """The folder's weights, widened to fp32 if they are narrower."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def load_peft(folder, rank, alpha=32, targets=ATTN + MLP + UNEMBED):
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, lora_dropout=0.0)
    return get_peft_model(load_base(folder), config)


def lora_parameters(model):
    """PEFT's factors by the names the driver uses: "model.layers.0.mlp.up_proj.lora_A"."""
    return {
        name.removeprefix("base_model.model.").removesuffix(".default.weight"): parameter
        for name, parameter in model.named_parameters()
        if ".lora_" in name
    }


def set_lora(model, values):
    parameters = lora_parameters(model)
    assert parameters.keys() == values.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name])


def random_lora(model, seed, scale=0.05):
    """Values for every factor, B included, so that every factor has a gradient."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(parameter.shape, generator=generator) * scale
        for name, parameter in lora_parameters(model).items()
    }


def clip(low, high, **others):
    """loss_fn_config with bounds of the ratio."""
    return {"clip_low_threshold": low, "clip_high_threshold": high, **others}


@dataclasses.dataclass
class Loss:
    """A loss with the inputs of its datums made up at random."""

    kind: str
    config: dict = dataclasses.field(default_factory=dict)
    num_targets: int = 1
    per_token_clip: bool = False

    @property
    def spec(self):
        return {"name": self.kind, **self.config}

    def datum(self, seed, length, vocab_size):
        generator = torch.Generator().manual_seed(seed)

        def uniform(low, high, size=length):
            return (torch.rand(size, generator=generator) * (high - low) + low).tolist()

        def tokens(size):
            return torch.randint(vocab_size, (size,), generator=generator).tolist()

        datum = {
            "tokens": tokens(length),
            "num_targets": self.num_targets,
            "targets": tokens(length * self.num_targets),
        }
        if "kl_coef" in self.config:
            # Around the logprob of a random target. A prompt without.
            reference = uniform(-8.0, -5.0, length * self.num_targets)
            datum["reference_logprobs"] = [0.0] * self.num_targets + reference[self.num_targets :]
        if self.kind == "cross_entropy":
            datum["weights"] = uniform(-0.2, 1.0, length * self.num_targets)
            datum["weights"][0] = 0.0
            return datum
        # Close to the logprobs of random targets, so that ratios are around 1 and some clip.
        datum["logprobs"] = None
        datum["noise"] = uniform(-0.5, 0.5)
        datum["advantages"] = uniform(-1.5, 1.5)
        for i in range(length // 3):  # a prompt: advantage 0 and logprob 0
            datum["advantages"][i] = 0.0
        if self.kind in ("gspo", "stable_reinforce"):
            datum["mask"] = [0.0 if i < length // 3 else 1.0 for i in range(length)]
            # One sampled token without an advantage.
            datum["advantages"][-1] = 0.0 if length > 1 else 1.0
        if self.per_token_clip:
            datum["clip_low"] = uniform(0.6, 0.9)
            datum["clip_high"] = uniform(1.1, 1.4)
        return datum

    def num_tokens_that_take_part(self, datum):
        own = datum.get("weights", datum.get("advantages"))
        pulled = datum.get("reference_logprobs", [0.0] * len(own))
        return sum(1 for pair in zip(own, pulled) if any(pair))

    def scale(self, datum, data):
        """What `normalization` makes of the datum's loss."""
        counts = {
            "datums": self.num_tokens_that_take_part(datum),
            "tokens": sum(self.num_tokens_that_take_part(other) for other in data),
        }
        return 1.0 / max(1, counts.get(self.config.get("normalization"), 1))

    def pull_to_reference(self, datum, p):
        if "kl_coef" not in self.config:
            return 0.0
        reference = torch.tensor(datum["reference_logprobs"]).view_as(p)
        difference = (reference - p)[reference != 0]
        return self.config["kl_coef"] * (torch.exp(difference) - difference - 1).sum()

    def bounds(self, side, default, datum, size):
        """One bound of the ratio a token: the datum's own, else the request's."""
        of_all = self.config.get(f"{side}_threshold", default)
        return torch.tensor(datum.get(side, [of_all] * size))

    def total(self, datum, p):
        """The loss of 16.1 in plain torch; p [N, K]."""
        if self.kind == "cross_entropy":
            weights = torch.tensor(datum["weights"]).view_as(p)
            return -(weights * p).sum()
        p = p.squeeze(1)
        if self.kind in ("gspo", "stable_reinforce"):
            return self.total_over_sampled(datum, p)
        advantages = torch.tensor(datum["advantages"])
        counts = advantages != 0
        p, a = p[counts], advantages[counts]
        q = torch.tensor(datum["logprobs"])[counts]
        low = self.bounds("clip_low", 0.8, datum, len(counts))
        high = self.bounds("clip_high", 1.2, datum, len(counts))
        ratio = torch.exp(p - q)
        clipped = torch.clamp(ratio, low[counts], high[counts])
        if self.kind == "importance_sampling":
            return -(ratio * a).sum()
        if self.kind == "ppo":
            value = torch.minimum(ratio * a, clipped * a)
            if "dual_clip_threshold" in self.config:
                bound = torch.maximum(value, self.config["dual_clip_threshold"] * a)
                value = torch.where(a < 0, bound, value)
            return -value.sum()
        if self.kind == "cispo":
            return -(clipped.detach() * p * a).sum()
        if self.kind == "dro":
            return -(p * a - 0.5 * self.config["beta"] * (p - q) ** 2).sum()
        raise ValueError(self.kind)

    def total_over_sampled(self, datum, p):
        sampled = torch.tensor(datum["mask"]) == 1
        p, a = p[sampled], torch.tensor(datum["advantages"])[sampled]
        q = torch.tensor(datum["logprobs"])[sampled]
        if self.kind == "gspo":
            sequence = torch.exp((p - q).mean()).detach()
            ratio = sequence * torch.exp(p - p.detach())
            low, high = self.config["clip_low_threshold"], self.config["clip_high_threshold"]
            clipped = torch.clamp(ratio, low, high)
            return -torch.minimum(ratio * a, clipped * a).sum()
        ratio = torch.clamp(torch.exp(p - q), max=4.0).detach()
        kl_coeff = self.config.get("kl_coeff", 0.0)
        return -(ratio * p * a).sum() + 0.5 * kl_coeff * ((p - q) ** 2).sum()


def target_logprobs(model, datum):
    """p [N, K] of the datum's targets."""
    logits = model(torch.tensor([datum["tokens"]])).logits[0]
    targets = torch.tensor(datum["targets"]).view(len(datum["tokens"]), datum["num_targets"])
    return torch.log_softmax(logits, -1).gather(1, targets)


def make_data(model, loss, lengths, seed, vocab_size=768):
    """Datums of the given lengths; sampling logprobs are the model's own plus noise."""
    data = [loss.datum(seed * 100 + i, length, vocab_size) for i, length in enumerate(lengths)]
    for datum in data:
        if "noise" not in datum:
            continue
        noise = torch.tensor(datum.pop("noise"))
        with torch.no_grad():
            q = target_logprobs(model, datum).squeeze(1) + noise
        counts = datum.get("mask", datum["advantages"])
        q[torch.tensor(counts) == 0] = 0.0
        datum["logprobs"] = q.tolist()
    return data


def backward(model, loss, data, logprobs=None):
    """Adds the gradients of all datums to the model's factors; returns the total loss. Appends the
    logprobs of each datum's targets to `logprobs`."""
    total = 0.0
    for datum in data:
        p = target_logprobs(model, datum)
        if logprobs is not None:
            logprobs.append(p.detach().flatten())
        value = loss.total(datum, p) + loss.pull_to_reference(datum, p)
        value = value * loss.scale(datum, data)
        value.backward()
        total += value.item()
    return total


def relative(actual, expected):
    """Largest difference over the largest expected value."""
    largest = expected.abs().max().item()
    assert largest > 0
    return (actual - expected).abs().max().item() / largest
