"""An editor without a screen: it speaks the language server's protocol over standard input and output."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote


@dataclass
class Editor:
    """A language server, and the texts that it was told."""

    root: Path
    process: subprocess.Popen[bytes]
    texts: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    diagnostics: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    published: int = 0
    last: int = 0

    @classmethod
    def start(cls, root: Path) -> Editor:
        """Start a server, and tell it which folder is open."""
        command = [sys.executable, "-m", "opgen", "lsp"]
        process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        editor = cls(root, process)
        folder = root.as_uri()
        options = {"processId": None, "rootUri": folder, "capabilities": {"general": {"positionEncodings": ["utf-16"]}}}
        editor.capabilities = editor.ask("initialize", options)["capabilities"]
        editor.tell("initialized", {})
        return editor

    capabilities: dict[str, Any] = field(default_factory=dict)

    def close(self) -> None:
        """Shut the server down, which must end without an error."""
        self.ask("shutdown", None)
        self.tell("exit", None)
        assert self.process.wait(timeout=30) == 0
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def uri(self, file: str) -> str:
        return (self.root / file).as_uri()

    def _send(self, message: dict[str, Any]) -> None:
        content = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(content), content))
        self.process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        message: dict[str, Any] = json.loads(self.process.stdout.read(length))
        if message.get("method") == "textDocument/publishDiagnostics":
            self.diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
            self.published += 1
        return message

    def tell(self, method: str, params: object) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: object) -> Any:
        """The result of a request; a refusal is its message."""
        self.last += 1
        self._send({"id": self.last, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("id") == self.last and "method" not in message:
                return message.get("result") if "error" not in message else message["error"]["message"]

    def open(self, file: str) -> None:
        text = self.texts[file] = (self.root / file).read_text(encoding="utf-8")
        self.versions[file] = 1
        document = {"uri": self.uri(file), "languageId": "yaml", "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": document})

    def type(self, file: str, find: str, replace: str) -> None:
        """Put a text instead of another one."""
        text = self.texts[file]
        assert text.count(find) == 1, find
        start = text.index(find)
        edit = {
            "range": {"start": place(text, start), "end": place(text, start + len(find))},
            "text": replace,
        }
        self.texts[file] = text.replace(find, replace)
        self.versions[file] += 1
        document = {"uri": self.uri(file), "version": self.versions[file]}
        self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [edit]})

    def wait(self, file: str, expected: str | None = None) -> float:
        """Wait for diagnostics of a file: with a message that contains a text, or none; how long it took."""
        begun = time.perf_counter()
        while True:
            messages = [each["message"] for each in self.diagnostics.get(self.uri(file), [])]
            if any(expected in message for message in messages) if expected is not None else not messages:
                return time.perf_counter() - begun
            self._receive()

    def at(self, file: str, text: str, offset: int = 0) -> dict[str, Any]:
        """The parameters of a request about the one place where a text stands."""
        full = self.texts[file]
        assert full.count(text) == 1, text
        return {"textDocument": {"uri": self.uri(file)}, "position": place(full, full.index(text) + offset)}

    def lines(self, locations: Sequence[dict[str, Any]]) -> list[str]:
        """Return the text at each location, below the project: `file: line`."""
        results = []
        for location in locations:
            path = Path(unquote(location["uri"].removeprefix("file://"))).relative_to(self.root)
            text = self.texts.get(path.as_posix()) or (self.root / path).read_text(encoding="utf-8")
            results.append(f"{path.as_posix()}: {text.splitlines()[location['range']['start']['line']].strip()}")
        return results


def place(text: str, offset: int) -> dict[str, int]:
    """A place of the protocol: columns are units of UTF-16."""
    before = text[:offset]
    line = before[before.rfind("\n") + 1 :]
    return {"line": before.count("\n"), "character": len(line.encode("utf-16-le")) // 2}
