"""`python -m tallow.run`: text, an answer or a conversation, by a model of a GGUF file."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ...device import Device
from ..base.error import InvalidArgument, TallowError
from ..distributed import device as rank_device
from ..distributed import init
from ..files.gguf import open_gguf
from ..models import ExecutionPlan, ModelRuntime, Sampler
from ..ranks import environment, launch
from ..ranks.group import Group
from ..tokenizer import Tokenizer
from .conversation import Conversation, Writer
from .summary import describe, describe_memory

_EXIT: Final = "/exit"
_EXAMPLES: Final = """\
examples:
  python -m tallow.run model.gguf --prompt "Once upon a time"
  python -m tallow.run model.gguf --chat --system "Answer in one sentence."
  python -m tallow.run model.gguf --chat --prompt "Who wrote Faust?"
  git diff | python -m tallow.run model.gguf --chat --system "Write a commit message."

The text goes to standard output, everything else to standard error."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what a model says to standard output, and how far it is to standard error. Returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    is_asked = options.prompt is None and options.prompt_file is None and _is_terminal(sys.stdin)
    if options.system is not None and not options.chat:
        parser.error("--system is the beginning of a conversation; give --chat too")
    if is_asked and not options.chat:
        parser.error("give a prompt by --prompt, by --prompt-file or by a pipe, or --chat for a conversation")
    if is_asked and options.devices > 1:
        parser.error("a conversation runs on one device; give a --prompt")
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if options.devices > 1 and environment.placement() is None:
            return _launch(options, words)
        _run(options, is_asked=is_asked)
    except TallowError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    return 0


def _launch(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run the program once for each device; what a pipe sends reaches them in a file."""
    command = [sys.executable, "-m", "tallow.run", *words]
    if options.prompt is not None:
        return launch.start(command, options.devices)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "prompt.txt")
        file.write_text(_prompt(options), encoding="utf-8", newline="")
        return launch.start([*command, "--prompt-file", str(file)], options.devices)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tallow.run",
        description="Generate text, or hold a conversation, with a model in a GGUF file.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", help="the path of the GGUF file")
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument("--prompt", metavar="TEXT", help="the text that the model continues, or with --chat answers")
    prompts.add_argument(
        "--prompt-file",
        metavar="FILE",
        help="a file with the prompt; - is standard input, which is also read from a pipe",
    )
    parser.add_argument(
        "--chat",
        action="store_true",
        help="format the prompt as a user's message by the chat template; without a prompt, start a conversation",
    )
    parser.add_argument("--system", metavar="TEXT", help="the system prompt: how the model should answer")
    parser.add_argument(
        "--device", default="cpu", help=f"{', '.join(Device.backends())}; NAME:1 is the second device (default: cpu)"
    )
    parser.add_argument(
        "--devices",
        metavar="N",
        type=_count,
        default=1,
        help="split the model across this many devices, with a process for each (default: 1)",
    )
    parser.add_argument(
        "--max-tokens", metavar="N", type=_count, default=256, help="the most tokens to generate (default: 256)"
    )
    parser.add_argument(
        "--max-seq-len", metavar="N", type=int, help="the context size in tokens (default: the model's, up to 4096)"
    )
    parser.add_argument(
        "--activations",
        choices=["q8_1"],
        help="round activations to 8 bits in products with quantized weights: faster, less exact",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=int,
        default=0,
        help="the seed for sampling; the same seed gives the same text (default: 0)",
    )
    parser.add_argument(
        "--temperature",
        metavar="T",
        type=float,
        default=0.0,
        help="sampling temperature; 0 takes the most probable token (default: 0)",
    )
    parser.add_argument(
        "--top-k",
        metavar="K",
        type=int,
        default=0,
        help="sample from the K most probable tokens; 0 means all (default: 0)",
    )
    parser.add_argument(
        "--top-p",
        metavar="P",
        type=float,
        default=1.0,
        help="sample from the most probable tokens that together have probability P (default: 1)",
    )
    parser.add_argument(
        "--min-p",
        metavar="P",
        type=float,
        default=0.0,
        help="sample from tokens at least P times as probable as the top one (default: 0)",
    )
    parser.add_argument(
        "--repetition-penalty",
        metavar="R",
        type=float,
        default=1.0,
        help="penalty on tokens that occurred before; 1 means none (default: 1)",
    )
    return parser


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be an integer of 0 or more, not '{text}'")
    return number


def _is_terminal(stream: object) -> bool:
    is_terminal = getattr(stream, "isatty", None)
    return is_terminal is not None and bool(is_terminal())


def _run(options: argparse.Namespace, *, is_asked: bool) -> None:
    sampler = Sampler(
        options.temperature, options.top_k, options.top_p, options.min_p, options.repetition_penalty, options.seed
    )
    group = init() if options.devices > 1 else None
    is_first = group is None or group.rank == 0
    prompt = None if is_asked else _prompt(options)
    tokenizer, runtime = _loaded(options, group)
    writer = Writer(runtime, tokenizer, sampler)
    if prompt is None:
        _converse(Conversation(writer, tokenizer, options.system), writer, options.max_tokens)
        return
    if options.chat:
        parts = Conversation(writer, tokenizer, options.system).answer(prompt, options.max_tokens)
    else:
        parts = writer.write(tokenizer.encode(prompt), options.max_tokens)
    # All ranks draw the same tokens, of the same bits.
    for text in parts:
        if is_first:
            print(text, end="", flush=True)
    if not is_first:
        return
    print(flush=True)
    speed = f", {writer.speed:.1f} a second" if writer.speed else ""
    read = f"{writer.tokens_read} tokens read in {writer.seconds_to_first:.2f} s"
    ending = f"; {writer.ending}" if writer.ending else ""
    print(f"{read}, {writer.tokens_written} written{speed}{ending}", file=sys.stderr)


def _prompt(options: argparse.Namespace) -> str:
    """Return the prompt: that of the option, of a file or of standard input."""
    if options.prompt is not None:
        return str(options.prompt)
    # Not the end of the line that editors and `echo` write.
    text = _read(options.prompt_file or "-").removesuffix("\n").removesuffix("\r")
    if not text:
        raise InvalidArgument("run", "the prompt is empty; give one by --prompt, by --prompt-file or by a pipe")
    return text


def _read(path: str) -> str:
    source = "the prompt on standard input" if path == "-" else f"the prompt in '{path}'"
    try:
        if path != "-":
            return Path(path).read_text(encoding="utf-8")
        if environment.placement() is not None:
            raise InvalidArgument(
                "run", "no rank has a standard input; give the prompt by --prompt or by --prompt-file"
            )
        return "" if sys.stdin is None else sys.stdin.read()
    except UnicodeDecodeError:
        raise InvalidArgument("run", f"{source} is not UTF-8; convert it to UTF-8") from None
    except OSError as error:
        raise InvalidArgument("run", f"{source} cannot be read: {error.strerror}") from None


def _loaded(options: argparse.Namespace, group: Group | None) -> tuple[Tokenizer, ModelRuntime]:
    """The tokenizer and the model of the file; a summary of it goes to standard error."""
    device = options.device if group is None else rank_device(options.device)
    is_first = group is None or group.rank == 0
    with open_gguf(options.model, device) as file:
        tokenizer = Tokenizer(file.metadata)
        if options.chat and tokenizer.chat_template is None:
            raise InvalidArgument("run", "the file has no chat template, which --chat needs; give a --prompt alone")
        plan = ExecutionPlan.from_gguf(file, activations=options.activations, group=group)
        if is_first:
            print(describe(file), file=sys.stderr)
        plan.preload_all(_tell if is_first and _is_terminal(sys.stderr) else None)
    if len(tokenizer) > plan.vocabulary:
        reason = f"the file has {len(tokenizer)} tokens and an embedding of {plan.vocabulary}; get it again"
        raise InvalidArgument("run", reason)
    runtime = ModelRuntime(plan, options.max_seq_len)
    if is_first:
        print(describe_memory(runtime, options.devices), file=sys.stderr)
        if plan.unused:
            print(f"of no effect in the file: {', '.join(plan.unused)}", file=sys.stderr)
    return tokenizer, runtime


def _tell(done: int, total: int) -> None:
    print(f"\rloading {done} of {total} parts", end="" if done < total else "\n", file=sys.stderr, flush=True)


def _converse(conversation: Conversation, writer: Writer, max_tokens: int) -> None:
    """Answer what is typed, until the end of the input."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 -- it lets `input` edit the line, and keeps those before
    print(f"Ctrl-C stops an answer; Ctrl-D or {_EXIT} ends the conversation.", file=sys.stderr)
    for message in _messages():
        try:
            with _stopping(writer):
                for text in conversation.answer(message, max_tokens):
                    print(text, end="", flush=True)
                print(flush=True)
        except InvalidArgument as error:
            print(f"error: {error}", file=sys.stderr)
            continue
        for note in _notes(conversation, writer):
            print(f"({note})", file=sys.stderr)


def _notes(conversation: Conversation, writer: Writer) -> Iterable[str]:
    if conversation.dropped:
        yield f"the oldest {conversation.dropped} messages were left out, as the context is full"
    if writer.ending:
        yield f"the answer was {writer.ending}"


def _messages() -> Iterator[str]:
    """Yield the lines that are typed, without empty ones, up to the end of the input."""
    while True:
        try:
            if not _is_terminal(sys.stdout):  # the text goes elsewhere, where no prompt belongs
                print("> ", end="", file=sys.stderr, flush=True)
            message = input("> " if _is_terminal(sys.stdout) else "")
        except EOFError:
            print(file=sys.stderr)
            return
        except KeyboardInterrupt:  # which takes back the line
            print(file=sys.stderr)
            continue
        if message.strip() == _EXIT:
            return
        if message.strip():
            yield message


@contextlib.contextmanager
def _stopping(writer: Writer) -> Iterator[None]:
    """Let the first SIGINT stop what is written at the next token; a second one interrupts."""

    def stop(_number: int, _frame: object) -> None:
        if writer.is_stopped:
            raise KeyboardInterrupt
        writer.is_stopped = True

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
