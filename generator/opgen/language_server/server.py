"""The protocol of the language server: what editors send, and what they get."""

import asyncio
import gc
import os
from collections.abc import Sequence
from pathlib import Path

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from opgen import __version__
from opgen.folders import root_above
from opgen.language_server.completion import completions
from opgen.language_server.documents import Columns, Document, line_at, path_of
from opgen.language_server.hover import hover
from opgen.language_server.index import Span
from opgen.language_server.places import CannotRename, definitions, renamable, renamed, uses
from opgen.language_server.workspace import Workspace
from opgen.problem import Problem
from opgen.report import end_column

# Seconds between checks while the user types.
_PAUSE = 0.02
_WATCHED = ("spec/**/*.yaml", "spec/**/*.yml", "templates/**", "runtime/**")
_ITEM_KINDS = {
    "key": types.CompletionItemKind.Property,
    "value": types.CompletionItemKind.EnumMember,
    "function": types.CompletionItemKind.Function,
    "header": types.CompletionItemKind.File,
}


class SpecServer(LanguageServer):
    """The server of one project: that of the files in the editor, or of a folder that is passed."""

    def __init__(self, root: Path | None) -> None:
        super().__init__("opgen", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Incremental)
        self.given_root = root
        self.project: Workspace | None = None
        self._told: set[Path] = set()  # the files whose errors the editor shows
        self._pending: asyncio.TimerHandle | None = None

    def begin(self, path: Path) -> Workspace | None:
        """The project of a folder, or of a file, if there is none yet."""
        if self.project is None:
            # A link may lead to the project, or from outside to one of its files.
            root = self.given_root or root_above(path) or root_above(_real(path))
            if root is not None:
                self.project = Workspace(root.absolute())
        return self.project

    def file(self, uri: str) -> tuple[Workspace, Path] | None:
        """The file of the project that an editor means; None of any other document, such as an earlier revision."""
        path = path_of(uri)
        project = None if path is None else self.begin(path)
        if path is None or project is None:
            return None
        for root, file in ((project.root, path), (_real(project.root), _real(path))):
            if file.is_relative_to(root):
                return project, file.relative_to(root)
        return None

    @property
    def columns(self) -> Columns:
        """How the editor counts columns."""
        return Columns(str(self.workspace.position_encoding or types.PositionEncodingKind.Utf16.value))

    def soon(self) -> None:
        """Look for errors when nothing is typed for a moment."""
        if self._pending is not None:
            self._pending.cancel()
        self._pending = asyncio.get_running_loop().call_later(_PAUSE, self.publish)

    def now(self) -> Workspace | None:
        """The project with what was typed last."""
        if self._pending is not None:
            self.publish()
        return self.project

    def publish(self) -> None:
        """Check the project, and publish the errors of each file that has any, or had some."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        project = self.project
        if project is None:
            return
        is_first = not project.documents
        project.diagnose()
        if is_first:
            # What was read first stays: the garbage collector need not scan it again.
            gc.collect()
            gc.freeze()
        by_file: dict[Path, list[types.Diagnostic]] = {path: [] for path in self._told}
        for problem in project.problems:
            path = problem.location.path
            by_file.setdefault(path, []).append(self._diagnostic(problem, project.lines(path)))
        for path, diagnostics in by_file.items():
            for uri in project.uris(path):
                self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=diagnostics))
        self._told = {path for path, diagnostics in by_file.items() if diagnostics}

    def _diagnostic(self, problem: Problem, lines: Sequence[str]) -> types.Diagnostic:
        location = problem.location
        end = end_column(line_at(lines, location.line), location.column)
        where = self.columns.range(lines, location.line, location.column, end)
        return types.Diagnostic(where, problem.message, types.DiagnosticSeverity.Error, source="opgen")

    def location(self, project: Workspace, span: Span) -> types.Location:
        """Part of a line, as the editor has it."""
        where = self.columns.range(project.lines(span.path), span.line, span.start, span.end)
        return types.Location(project.uris(span.path)[0], where)


def _real(path: Path) -> Path:
    # Path.resolve raises an error where links lead in a circle.
    return Path(os.path.realpath(path))


def _at(
    server: SpecServer, document: types.TextDocumentIdentifier, position: types.Position
) -> tuple[Workspace, tuple[Path, int, int]] | None:
    """Return the project and the position of an editor's request."""
    file = server.file(document.uri)
    if file is None or server.now() is None:
        return None
    project, path = file
    line = position.line + 1
    text = line_at(project.lines(path), line)
    return project, (path, line, server.columns.from_units(text, position.character))


def make_server(root: Path | None = None) -> SpecServer:
    """A server, of the project below `root` or of the one that the editor opens."""
    server = SpecServer(root)

    @server.feature(types.INITIALIZED)
    def initialized(server: SpecServer, _: types.InitializedParams) -> None:
        folder = server.workspace.root_uri
        path = path_of(folder) if folder is not None else None
        if path is not None and server.begin(path) is not None:
            server.soon()
        workspace = server.client_capabilities.workspace
        watching = workspace and workspace.did_change_watched_files
        if watching and watching.dynamic_registration:
            watchers = [types.FileSystemWatcher(f"**/{pattern}") for pattern in _WATCHED]
            options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
            registration = types.Registration("opgen-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            server.client_register_capability(types.RegistrationParams([registration]))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(server: SpecServer, params: types.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        server.workspace.text_documents[document.uri] = Document(
            document.uri, document.text, document.version, position_codec=server.workspace.position_codec
        )
        _take_over(server, document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(server: SpecServer, params: types.DidChangeTextDocumentParams) -> None:
        _take_over(server, params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(server: SpecServer, params: types.DidSaveTextDocumentParams) -> None:
        file = server.file(params.text_document.uri)
        if file is not None and file[1].parts[0] != "spec":
            file[0].forget_sources()
        server.soon()

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(server: SpecServer, params: types.DidCloseTextDocumentParams) -> None:
        file = server.file(params.text_document.uri)
        if file is not None:
            file[0].close(file[1], params.text_document.uri)
        server.soon()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files_changed(server: SpecServer, _: types.DidChangeWatchedFilesParams) -> None:
        if server.project is not None:
            server.project.forget_sources()
            server.soon()

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[":", " ", ".", "["]))
    def complete(server: SpecServer, params: types.CompletionParams) -> types.CompletionList | None:
        cursor = _at(server, params.text_document, params.position)
        if cursor is None:
            return None
        project, (path, line, column) = cursor
        lines = project.lines(path)
        items = []
        for item in completions(project, path, line, column):
            edit = types.TextEdit(server.columns.range(lines, line, item.start, column), item.text)
            doc = types.MarkupContent(types.MarkupKind.Markdown, item.doc) if item.doc else None
            kind = _ITEM_KINDS.get(item.kind, types.CompletionItemKind.Reference)
            label = item.text.removesuffix(": ")
            items.append(types.CompletionItem(label, kind=kind, detail=item.detail, documentation=doc, text_edit=edit))
        return types.CompletionList(False, items)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def show(server: SpecServer, params: types.HoverParams) -> types.Hover | None:
        cursor = _at(server, params.text_document, params.position)
        text = "" if cursor is None else hover(cursor[0], *cursor[1])
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text)) if text else None

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def define(server: SpecServer, params: types.DefinitionParams) -> list[types.Location]:
        cursor = _at(server, params.text_document, params.position)
        return (
            [] if cursor is None else [server.location(cursor[0], span) for span in definitions(cursor[0], *cursor[1])]
        )

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    def refer(server: SpecServer, params: types.ReferenceParams) -> list[types.Location]:
        cursor = _at(server, params.text_document, params.position)
        return [] if cursor is None else [server.location(cursor[0], span) for span in uses(cursor[0], *cursor[1])]

    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    def prepare(server: SpecServer, params: types.PrepareRenameParams) -> types.Range | None:
        cursor = _at(server, params.text_document, params.position)
        if cursor is None:
            return None
        try:
            span = renamable(cursor[0], *cursor[1])
        except CannotRename as error:
            raise JsonRpcInvalidParams(str(error)) from None
        return server.location(cursor[0], span).range

    @server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    def rename(server: SpecServer, params: types.RenameParams) -> types.WorkspaceEdit | None:
        cursor = _at(server, params.text_document, params.position)
        if cursor is None:
            return None
        project, (path, line, column) = cursor
        try:
            spans = renamed(project, path, line, column, params.new_name)
        except CannotRename as error:
            raise JsonRpcInvalidParams(str(error)) from None
        edits = {
            project.uris(file)[0]: [
                types.TextEdit(server.location(project, span).range, params.new_name) for span in of_file
            ]
            for file, of_file in spans.items()
        }
        return types.WorkspaceEdit(edits)

    return server


def _take_over(server: SpecServer, uri: str) -> None:
    """Take over what the editor has of a file."""
    file = server.file(uri)
    if file is None:
        return
    project, path = file
    if path.parts[0] == "spec" and path.suffix in (".yaml", ".yml"):
        project.open(path, uri, server.workspace.get_text_document(uri).source)
        server.soon()
