"""The command that writes text and leads conversations: `python -m tallow.run`."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tallow import Device, InvalidArgument
from tallow.gguf import open_gguf
from tallow.models import ExecutionPlan, ModelRuntime, Sampler
from tallow.runtime.run import program
from tallow.runtime.run.conversation import Conversation, Writer

from .decoders import CONTEXT, SENTENCES, TEXTS, metadata, oracle, saved, weights

pytest.importorskip("tokenizers", reason="what a tokenizer stands on")
pytest.importorskip("jinja2", reason="what chat templates stand on")

from tallow.run import main
from tallow.tokenizer import Tokenizer

REPOSITORY = Path(__file__).parents[2]
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a vocabulary of letters, and a template that marks each message by the letter of its role."""
    vocabulary = SENTENCES | {"tokenizer.chat_template": TEMPLATE, "general.name": "Letters"}
    return saved(tmp_path_factory.mktemp("run") / "model.gguf", weights("llama"), metadata("llama") | vocabulary)


class Terminal:
    """Standard input that is a terminal, at which lines are typed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lines: str | BaseException) -> None:
        self._lines = iter(lines)
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
        monkeypatch.setattr("builtins.input", self._input)

    def _input(self, _prompt: str) -> str:
        line = next(self._lines, EOFError())
        if isinstance(line, BaseException):
            raise line
        return line


# The prompt.


def test_the_command_writes_text(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = [1, 3, 4, 5]
    for _ in range(5):
        tokens.append(int(oracle("llama", weights("llama"), tokens)[-1].argmax()))
    text = "".join(TEXTS[token] for token in tokens[4:]).partition("</s>")[0].replace("▁", " ")
    assert main([str(model), "--prompt", "ab", "--max-tokens", "5"]) == 0
    out, told = capsys.readouterr()
    assert out.strip() == text.replace("<s>", "").replace("<unk>", "").strip()
    assert "4 tokens read" in told
    assert main([f"{model}.none", "--prompt", "ab"]) == 1
    assert "model.gguf.none" in capsys.readouterr().err


def test_one_seed_of_the_command_gives_one_text(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def written(*options: str) -> str:
        assert main([str(model), "--prompt", "ab", "--max-tokens", "20", "--temperature", "1", *options]) == 0
        return capsys.readouterr().out

    assert written("--seed", "5") == written("--seed", "5")
    assert written() == written("--seed", "0")
    assert len({written("--seed", str(seed)) for seed in range(4)}) == 4


def test_the_command_runs_on_the_device_that_it_is_told(
    model: Path, device: Device, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Device] = []

    class Seen(ModelRuntime):
        def __init__(self, plan: ExecutionPlan, max_seq_len: int | None = None) -> None:
            super().__init__(plan, max_seq_len)
            seen.append(self.cache.device)

    monkeypatch.setattr(program, "ModelRuntime", Seen)
    texts = set()
    for options in ([], ["--device", "cpu"], ["--device", device.label]):
        assert main([str(model), "--prompt", "ab", "--max-tokens", "5", *options]) == 0
        texts.add(capsys.readouterr().out)
    assert seen == [Device.cpu(), Device.cpu(), device]
    assert len(texts) == 1
    assert main([str(model), "--prompt", "ab", "--device", "abacus"]) == 1
    assert "abacus" in capsys.readouterr().err


def test_the_command_tells_a_terminal_what_it_loads(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> str:
        assert main([str(model), "--prompt", "ab", "--max-tokens", "1"]) == 0
        return capsys.readouterr().err

    assert "loading" not in told()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    parts = "".join(f"\rloading {done} of 3 parts" for done in (1, 2, 3))
    assert f"bits each\n{parts}\nmemory: " in told()


@pytest.mark.parametrize("count", ["-3", "few"])
def test_the_command_refuses_a_number_of_tokens_before_it_loads(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["no model", "--prompt", "ab", f"--max-tokens={count}"])
    reason = f"argument --max-tokens: must be an integer of 0 or more, not '{count}'\n"
    assert capsys.readouterr().err.endswith(reason)


def test_the_command_ends_with_the_bytes_of_a_character_that_is_not_whole(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelRuntime, "generate", lambda *_: iter([TEXTS.index("a")]))
    parts = [b"\xe2\x82" if text == "a" else text.encode() for text in TEXTS]
    monkeypatch.setattr("tallow.runtime.tokenizer.model.bytes_of", lambda _: parts)
    assert main([str(model), "--prompt", "b"]) == 0
    assert capsys.readouterr().out == "\ufffd\n"


def test_a_pipe_is_refused_as_a_model_and_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert main([str(pipe), "--prompt", "ab"]) == 1
    reason = "is a pipe, which cannot be read at any offset; give the path of a file\n"
    assert capsys.readouterr().err == f"error: open_gguf: path '{pipe}' {reason}"


@pytest.mark.parametrize("options", [["--prompt-file", "FILE"], ["--prompt-file", "-"], []])
def test_a_prompt_comes_from_a_file_or_a_pipe(
    model: Path, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("ab\n", encoding="utf-8")
    for more in ([], ["--chat"]):
        assert main([str(model), "--prompt", "ab", "--max-tokens", "5", *more]) == 0
        expected = capsys.readouterr().out
        monkeypatch.setattr(sys, "stdin", io.StringIO(file.read_text(encoding="utf-8")))
        inputs = [str(file) if option == "FILE" else option for option in options]
        assert main([str(model), "--max-tokens", "5", *inputs, *more]) == 0
        assert capsys.readouterr().out == expected


def test_a_prompt_that_is_missing_empty_or_no_text_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.touch()
    binary.write_bytes(b"\xff")
    for name, reason in ((empty, "the prompt is empty"), (binary, "is not UTF-8"), (tmp_path / "none", "No such file")):
        assert main([str(model), "--prompt-file", str(name)]) == 1
        error = capsys.readouterr().err
        assert reason in error
        assert "model:" not in error, "it is said before the model is loaded"
    Terminal(monkeypatch)
    for options, reason in (
        ([], "give a prompt by --prompt, by --prompt-file or by a pipe, or --chat for a conversation"),
        (["--chat", "--devices", "2"], "a conversation runs on one device"),
        (["--system", "b", "--prompt", "a"], "give --chat too"),
        (["--prompt", "a", "--prompt-file", "b"], "not allowed with argument"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main([str(model), *options])
        assert reason in capsys.readouterr().err


def test_a_prompt_that_is_too_long_is_told_with_both_lengths(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, fix in (
        (["--max-seq-len", "20"], f"holds 20; shorten it, or give max_seq_len up to {CONTEXT}"),
        ([], f"holds {CONTEXT}; shorten it, or take a model of a longer context"),
    ):
        assert main([str(model), "--prompt", "a" * 60, *options]) == 1
        assert f"the prompt has 62 tokens, and the cache {fix}\n" in capsys.readouterr().err


def test_text_that_ends_at_a_limit_says_which(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(model), "--prompt", "ab", "--max-tokens", "3"]) == 0
    assert re.search(r", 3 written, .*; cut at --max-tokens\n$", capsys.readouterr().err)
    assert main([str(model), "--prompt", "ab", "--max-tokens", "99", "--max-seq-len", "9"]) == 0
    full = f"6 written, .*; cut, as the context of 9 tokens is full; --max-seq-len gives up to {CONTEXT}\n$"
    assert re.search(full, capsys.readouterr().err)


def test_a_summary_says_what_the_model_is(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(model), "--prompt", "ab", "--max-tokens", "1", "--max-seq-len", "8"]) == 0
    told = capsys.readouterr().err
    count = sum(array.size for array in weights("llama").values())
    assert told.startswith(f"model: Letters (llama), {count / 1000:.3g} K parameters in F32, 32.0 bits each\nmemory: ")
    assert f"{4 * count / 1024:.3g} KiB of weights and 2 KiB for a context of 8 of {CONTEXT} tokens on cpu\n" in told
    assert main([str(model), "--prompt", "ab", "--max-tokens", "1", "--max-seq-len", str(CONTEXT + 8)]) == 0
    assert f"a context of {CONTEXT + 8} tokens on cpu; the model was trained for {CONTEXT}," in capsys.readouterr().err


# Conversations.


def loaded(model: Path, max_seq_len: int | None = None, device: Device | None = None) -> tuple[Writer, Tokenizer]:
    with open_gguf(model, device) as file:
        plan = ExecutionPlan.from_gguf(file)
        plan.preload_all()
        tokenizer = Tokenizer(file.metadata)
    return Writer(ModelRuntime(plan, max_seq_len), tokenizer, Sampler(temperature=0.7, seed=4)), tokenizer


def test_a_conversation_reads_only_what_is_new(model: Path, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers are those of a model that reads all of it anew each time."""
    writer, tokenizer = loaded(model, device=device)
    conversation = Conversation(writer, tokenizer, "c")
    twin, _ = loaded(model, device=device)
    read: list[int] = []
    prefill = ModelRuntime.prefill
    monkeypatch.setattr(
        ModelRuntime, "prefill", lambda self, tokens: (read.append(len(tokens)), prefill(self, tokens))[1]
    )
    messages = [{"role": "system", "content": "c"}]
    for message in ("ab", "d", "ef"):
        answer = "".join(conversation.answer(message, 4))
        messages.append({"role": "user", "content": message})
        tokens = tokenizer.encode(tokenizer.chat(messages), parse_special=True)
        twin.runtime.reset_state()
        twin._known.clear()
        assert answer == "".join(twin.write(tokens, 4))
        messages.append({"role": "assistant", "content": answer})
    (first, own_first), *others = zip(read[::2], read[1::2], strict=True)
    assert first == own_first
    assert others
    assert all(own < full for own, full in others), read


def test_a_system_prompt_is_the_first_message(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer, tokenizer = loaded(model)
    messages = [{"role": "system", "content": "ef"}, {"role": "user", "content": "ab"}]
    tokens = tokenizer.encode(tokenizer.chat(messages), parse_special=True)
    writer._sampler = Sampler()
    expected = "".join(writer.write(tokens, 5))
    assert main([str(model), "--chat", "--system", "ef", "--prompt", "ab", "--max-tokens", "5"]) == 0
    assert capsys.readouterr().out == f"{expected}\n"


def test_a_conversation_that_is_too_long_goes_on_without_its_oldest_messages(model: Path) -> None:
    writer, tokenizer = loaded(model, 24)
    conversation = Conversation(writer, tokenizer, "q")
    for _ in range(6):
        "".join(conversation.answer("abcd", 4))
        assert writer.runtime.cache.length <= 24
    assert conversation.dropped > 0
    assert conversation.dropped % 2 == 0
    before = [*conversation._messages]
    with pytest.raises(InvalidArgument, match=r"the prompt has 4\d tokens, and the cache holds 24"):
        "".join(conversation.answer("a" * 40, 4))
    assert conversation._messages == before[len(before) - len(conversation._messages) :]
    assert "".join(conversation.answer("ab", 4)) or writer.tokens_written == 0


def test_a_conversation_in_a_terminal(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty lines and an interrupted one are passed over; a message that does not fit does not end it."""
    arguments = [str(model), "--chat", "--max-tokens", "4"]
    for last in ("/exit", EOFError()):
        Terminal(monkeypatch, "ab", "", KeyboardInterrupt(), "a" * 60, "d", last)
        assert main(arguments) == 0
        out, told = capsys.readouterr()
        assert len(out.splitlines()) == 2
        assert "error: ModelRuntime.prefill: the prompt has" in told
        assert "Ctrl-D or /exit ends the conversation" in told
    writer, tokenizer = loaded(model)
    writer._sampler = Sampler()
    first = "".join(Conversation(writer, tokenizer).answer("ab", 4))
    assert out.splitlines()[0] == first


def test_an_interrupt_stops_an_answer_and_a_second_one_the_program(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, times = Sampler.sample, iter([1, 0, 2, 0, 0])

    def interrupted(self: Sampler, logits: Any, before: Sequence[int] = ()) -> int:
        for _ in range(next(times, 0)):
            os.kill(os.getpid(), signal.SIGINT)
        return TEXTS.index("a") if sample(self, logits, before) >= 0 else 0

    monkeypatch.setattr(Sampler, "sample", interrupted)
    Terminal(monkeypatch, "ab", "d")
    assert main([str(model), "--chat", "--max-tokens", "9"]) == 130
    out, told = capsys.readouterr()
    assert out.startswith("a\n")
    assert "(the answer was stopped)" in told
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_file_without_a_template_has_no_conversation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "model.gguf", weights("llama"), metadata("llama") | SENTENCES)
    assert main([str(path), "--chat", "--prompt", "ab"]) == 1
    assert "the file has no chat template, which --chat needs; give a --prompt alone" in capsys.readouterr().err


# Readers that go away.


def test_a_reader_that_goes_away_ends_each_program_quietly(model: Path, full: bool) -> None:
    """Each module of the package that `python -m` runs, and opgen, whether it prints little or much."""
    import tallow

    folder = Path(tallow.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in (*folder.glob("*.py"), *folder.glob("*/__main__.py"))}
    programs = [
        ".".join(("tallow", *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__main__")
        for path, text in texts.items()
        if "if __name__" in text
    ]
    # One function runs all of them, so that a few are enough.
    assert all("    _run_program(main)\n" in text for text in texts.values() if "if __name__" in text)
    assert {"tallow.doctor", "tallow.launch", "tallow.run", "tallow.selftest"} <= {*programs}
    commands = [[name, "--help"] for name in programs]
    commands += [["tallow.run", str(model), "--prompt", "ab"], ["tallow.doctor", "cpu"], ["tallow.doctor", "--json"]]
    commands += [["opgen", "--help"], ["opgen", "new", "--help"], ["opgen", "matrix", "--help"]]
    for command in commands if full else commands[:: len(programs)]:
        # The pipe's other end is closed before the program begins.
        reader, writer = os.pipe()
        os.close(reader)
        arguments = [sys.executable, "-m", *command]
        done = subprocess.run(arguments, cwd=REPOSITORY, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writer)
        assert done.returncode in (0, 1, 141), command
        assert "Traceback" not in done.stderr, command
        assert "Broken" not in done.stderr, command
