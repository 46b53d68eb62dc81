"""A server on loopback that speaks as much of the Hugging Face Hub's protocol as loading and publishing need.

Repositories, branches and commits, upload of small files within the commit and of weights by LFS, download with the
headers that clients check. Private repositories and writing need the token `TOKEN`.
"""

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_a_token_that_may_write"


@dataclass
class Repository:
    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)  # commit -> file -> content
    branches: dict[str, str] = field(default_factory=dict)  # branch -> commit

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        content = {**self.commits.get(self.branches.get(branch, ""), {}), **files}
        oid = hashlib.sha1(repr((len(self.commits), sorted(content))).encode()).hexdigest()
        self.commits[oid], self.branches[branch] = content, oid
        return oid

    def find(self, revision: str) -> str | None:
        return self.branches.get(revision, revision if revision in self.commits else None)


class FakeHub:
    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.lfs: dict[str, bytes] = {}
        self.requests: list[str] = []  # "METHOD path", in order
        self.sizes: dict[str, int] = {}  # to lie about a file's size
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                self.body = self.rfile.read(length)
                self.path = unquote(urlsplit(self.path).path)
                hub.requests.append(f"{self.command} {self.path}")
                hub.answer(self)

            do_GET = do_HEAD = do_POST = do_PUT = handle_any

            def log_message(self, *args) -> None:
                pass

            def send(self, content=b"", status=200, **headers) -> None:
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {"Content-Length": len(data), **headers}.items():
                    self.send_header(name.replace("_", "-"), str(value))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def refuse(self, status: int, code: str, message: str) -> None:
                self.send({"error": message}, status, X_Error_Code=code, X_Error_Message=message)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, to) -> None:
        token = (to.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token != TOKEN:
            return to.refuse(401, "", "Invalid credentials in Authorization header")
        writes = to.command in ("POST", "PUT") and not to.path.startswith("/api/validate-yaml")
        if writes and token != TOKEN and not to.path.startswith("/lfs/"):
            return to.refuse(403, "", "Forbidden: this token may not write")
        if to.path == "/api/validate-yaml":
            return to.send({"errors": [], "warnings": []})
        if to.path == "/api/repos/create":
            asked = json.loads(to.body)
            name = f"{asked['organization']}/{asked['name']}"
            if name in self.repositories:
                said = {"error": "You already created this model repo", "url": f"{self.address}/{name}", "id": name}
                return to.send(said, 409, X_Error_Message=said["error"])
            private = bool(asked.get("private")) or asked.get("visibility") == "private"
            self.repositories[name] = Repository(private)
            self.repositories[name].commit("main", {".gitattributes": b"*.safetensors filter=lfs\n"})
            return to.send({"url": f"{self.address}/{name}", "name": name, "id": name})
        if found := re.fullmatch(r"/lfs/(\w+)", to.path):
            assert hashlib.sha256(to.body).hexdigest() == found[1]
            self.lfs[found[1]] = to.body
            return to.send()
        found = re.match(r"(?:/api/models)?/([\w.-]+/[\w-][\w.-]*?)(?:\.git)?(/.*)?$", to.path)
        repository = self.repositories.get(found[1]) if found else None
        if repository is None or (repository.private and token != TOKEN):
            return to.refuse(404, "RepoNotFound", "Repository not found")
        return self.in_repository(to, found[1], repository, found[2] or "/revision/main")

    def in_repository(self, to, name: str, repository: Repository, path: str) -> None:
        _, what, *rest = path.split("/")
        if what == "info":  # /info/lfs/objects/batch
            objects = [
                {**of, "actions": {"upload": {"href": f"{self.address}/lfs/{of['oid']}"}}}
                for of in json.loads(to.body)["objects"]
            ]
            return to.send({"transfer": "basic", "objects": objects})
        if what == "branch":
            if rest[0] in repository.branches:
                return to.refuse(409, "", "Reference already exists")
            repository.branches[rest[0]] = repository.branches["main"]
            return to.send()
        if what == "preupload":
            files = json.loads(to.body)["files"]
            modes = {of["path"]: "lfs" if of["path"].endswith(".safetensors") else "regular" for of in files}
            return to.send(
                {"files": [{"path": of, "uploadMode": mode, "shouldIgnore": False} for of, mode in modes.items()]}
            )
        if what == "commit":
            files: dict[str, bytes] = {}
            for line in map(json.loads, to.body.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "lfsFile":
                    files[line["value"]["path"]] = self.lfs[line["value"]["oid"]]
            oid = repository.commit(rest[0], files)
            url = f"{self.address}/{name}/commit/{oid}"
            return to.send({"success": True, "commitOid": oid, "commitUrl": url, "pullRequestUrl": None})
        commit = repository.find(rest[0])
        if commit is None:
            return to.refuse(404, "RevisionNotFound", "Invalid rev id")
        files = repository.commits[commit]
        if what == "revision":
            siblings = [
                {"rfilename": file, "size": self.sizes.get(file, len(content)), "blobId": "0" * 40}
                for file, content in files.items()
            ]
            about = {"id": name, "modelId": name, "sha": commit, "private": repository.private, "siblings": siblings}
            return to.send({**about, "tags": [], "downloads": 0, "likes": 0})
        assert what == "resolve"
        content = files.get("/".join(rest[1:]))
        if content is None:
            return to.refuse(404, "EntryNotFound", "Entry not found")
        return to.send(content, ETag=f'"{hashlib.sha256(content).hexdigest()}"', X_Repo_Commit=commit)
