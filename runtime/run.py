"""Text from a GGUF file: `python -m tallow.run model.gguf --prompt "Once upon a time"`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from time import perf_counter

from .base.error import InvalidArgument, TallowError
from .distributed import device as rank_device
from .distributed import init
from .files.gguf import open_gguf
from .models import ExecutionPlan, ModelRuntime, Sampler
from .ranks import environment, launch
from .tokenizer import Tokenizer


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what a model says to standard output, and how far it is to standard error. Returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.devices > 1 and environment.place() is None:
        given = sys.argv[1:] if arguments is None else arguments
        return launch.start([sys.executable, "-m", "tallow.run", *given], options.devices)
    try:
        _write(options)
    except TallowError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tallow.run", description="Write text with a model of a GGUF file.")
    parser.add_argument("model", help="the path of the file")
    parser.add_argument("--prompt", required=True, help="the text that the model goes on with, or answers with --chat")
    parser.add_argument("--chat", action="store_true", help="the prompt is a message of a user, by the file's template")
    parser.add_argument(
        "--device", default="cpu", help="a backend that is installed; NAME:1 is its second device (cpu)"
    )
    parser.add_argument(
        "--devices", type=_count, default=1, help="how many devices share the model, one process for each (1)"
    )
    parser.add_argument("--max-tokens", type=_count, default=256, help="how many tokens are written at most (256)")
    parser.add_argument("--max-seq-len", type=int, help="how many tokens there is room for (the model's, up to 4096)")
    parser.add_argument("--activations", choices=["q8_1"], help="round them for products with quants: quicker")
    parser.add_argument("--seed", type=int, default=0, help="one seed gives one text (0)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the most probable token (0)")
    parser.add_argument("--top-k", type=int, default=0, help="draw from so many tokens; 0 is all (0)")
    parser.add_argument("--top-p", type=float, default=1.0, help="draw from the tokens of this probability in all (1)")
    parser.add_argument("--min-p", type=float, default=0.0, help="draw from tokens of this part of the largest (0)")
    parser.add_argument("--repetition-penalty", type=float, default=1.0, help="divides logits of tokens before (1)")
    return parser


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be an integer of 0 or more, not '{text}'")
    return number


def _write(options: argparse.Namespace) -> None:
    sampler = Sampler(
        options.temperature, options.top_k, options.top_p, options.min_p, options.repetition_penalty, options.seed
    )
    group = init() if options.devices > 1 else None
    device = options.device if group is None else rank_device(options.device)
    is_first = group is None or group.rank == 0
    with open_gguf(options.model, device) as file:
        tokenizer = Tokenizer(file.metadata)
        plan = ExecutionPlan.from_gguf(file, activations=options.activations, group=group)
        plan.preload_all(_tell if sys.stderr.isatty() and is_first else None)
    if len(tokenizer) > plan.vocabulary:
        reason = f"the file has {len(tokenizer)} tokens and an embedding of {plan.vocabulary}; get it again"
        raise InvalidArgument("run", reason)
    if plan.unused and is_first:
        print(f"of no effect in the file: {', '.join(plan.unused)}", file=sys.stderr)
    runtime = ModelRuntime(plan, options.max_seq_len)
    if options.chat:
        text = tokenizer.chat([{"role": "user", "content": options.prompt}])
        prompt = tokenizer.encode(text, parse_special=True)
    else:
        prompt = tokenizer.encode(options.prompt)
    begin = perf_counter()
    stream, count, first = tokenizer.stream(prompt), 0, begin
    # All ranks draw the same tokens, of the same bits.
    for token in runtime.generate(prompt, options.max_tokens, sampler, tokenizer.ends):
        count += 1
        first = perf_counter() if count == 1 else first
        text = stream.push(token)
        if is_first:
            print(text, end="", flush=True)
    if not is_first:
        return
    print(stream.flush(), flush=True)
    speed = f", {(count - 1) / (perf_counter() - first):.1f} a second" if count > 1 else ""
    told = f"{len(prompt)} tokens read in {first - begin:.2f} s, {count} written{speed}"
    print(told, file=sys.stderr)


def _tell(done: int, total: int) -> None:
    print(f"\rloading {done} of {total} parts", end="" if done < total else "\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
