"""Recordings of Gemini's traffic, by this project and by others, read to exchanges. Pure.

Not for: answering from them (``_recorded_model``). Rules carried: WIRE-01, WIRE-02.
May import: ``_exchanges``, ``_gemini_requests``, ``_gemini_responses``, ``_lenient``, ``agentsession.protocol``.

Forms, told apart by what the file holds:

- this project's NDJSON (``_exchanges``);
- HTTP as Go's ``httprr`` records it (``httprr trace v1``), which ADK for Go tests with;
- lines of ``{"method": "generateContentStream", "response": [...]}``, which gemini-cli tests with: they say nothing of
  what was asked;
- one such object, or a list of them.

Anything else is one error that names the file, the place in it, and why.
"""

from __future__ import annotations

import gzip
import http.client
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from google.adk.models.llm_request import LlmRequest

from agentsession.adapters.adk._exchanges import FORMAT, ModelExchange, Recording, redacted_request
from agentsession.adapters.adk._gemini_requests import read_request, request_json
from agentsession.adapters.adk._gemini_responses import check_answer
from agentsession.adapters.adk._values import is_list, is_object
from agentsession.protocol import ConfigurationError, SchemaError

__all__ = ["asked_over_http", "load_recording", "read_recording"]

_HTTPRR: Final = b"httprr trace v1\n"
_CALL: Final = re.compile(r"/models/(?P<model>[^/:?]+):(?P<method>[A-Za-z]+)")
_STREAMS: Final = {"generateContent": False, "generateContentStream": True, "streamGenerateContent": True}
_FIX: Final = "pass a recording of RecordingLlm, an httprr file, or lines of {method, response}"


def load_recording(path: str | Path) -> Recording:
    """The recording in a file.

    Raises:
        ConfigurationError: the file cannot be read (``no-file``).
        SchemaError: it is no recording (``not-a-recording``), or an exchange in it is not valid (``schema``).
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read", got=error.strerror or type(error).__name__, fix=_FIX, id="no-file"
        ) from error
    return read_recording(data, name=str(path))


def read_recording(data: str | bytes, *, name: str = "recording") -> Recording:
    """The recording in a text; ``name`` is what errors call it.

    Raises:
        SchemaError: as :func:`load_recording`.
    """
    raw = data.encode() if isinstance(data, str) else data
    left_out: list[str] = []
    found = _of_httprr(raw, name, left_out) if raw.startswith(_HTTPRR) else _of_json(raw, name, left_out)
    exchanges = tuple(found)
    if not exchanges:
        raise _refused(name, f"{name} holds no model call", left_out[0] if left_out else "nothing")
    return Recording(exchanges, name=name, left_out=tuple(left_out))


def asked_over_http(body: Any, model: str, *, name: str) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """A request's body in the one form that requests are compared in, and what of it was not read.

    Raises:
        SchemaError: it is no request.
    """
    read = read_request(body, name=name)
    request: LlmRequest = read.value
    request.model = model or request.model
    return redacted_request(request_json(request)), read.unread


# -- JSON -------------------------------------------------------------------------------------------------------------


def _of_json(raw: bytes, name: str, left_out: list[str]) -> Iterator[ModelExchange]:
    for where, value in _values(raw, name):
        if is_object(value) and value.get("format") == FORMAT:
            yield _own(value, where)
        elif is_object(value) and "format" in value:
            got = f"format {value['format']!r}"
            raise _refused(where, f"{where} is of a format that this release does not read", got, FORMAT)
        elif is_object(value) and isinstance(value.get("method"), str) and "response" in value:
            stream = _STREAMS.get(value["method"])
            if stream is None:
                left_out.append(f"{where}: {value['method']} is no model call")
                continue
            answer = value["response"]
            chunks = answer if is_list(answer) else [answer]
            yield ModelExchange(_checked(chunks, f"{where} /response"), stream=stream, where=where)
        else:
            names = ", ".join(sorted(value)[:5]) or "no keys" if is_object(value) else ""
            got = f"an object with {names}" if names else type(value).__name__
            raise _refused(where, f"{where} is no model call", got)


def _own(value: Mapping[str, Any], where: str) -> ModelExchange:
    request, responses = value.get("request"), value.get("responses")
    if not is_list(responses):
        raise _refused(where, f"{where} has no responses", type(responses).__name__, "a list", kind="schema")
    if request is not None and not is_object(request):
        raise _refused(where, f"{where} has no request", type(request).__name__, "an object", kind="schema")
    exchange = ModelExchange(_checked(responses, where), request, value.get("stream") is True, where)
    if "digest" in value and value["digest"] != exchange.digest:
        raise _refused(
            where,
            f"the request in {where} was changed after it was recorded",
            f"digest {value['digest']}",
            f"digest {exchange.digest}",
            kind="schema",
            fix="take the field digest out, if the change is meant",
        )
    return exchange


def _values(raw: bytes, name: str) -> Iterator[tuple[str, Any]]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(name, f"{name} is not UTF-8 text", f"byte {error.start}") from error
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield f"{name} line {number}", _json(line, f"{name} line {number}")
        return
    if is_list(whole):
        for index, item in enumerate(whole):
            yield f"{name} item {index}", item
    else:
        yield name, whole


def _json(text: str | bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise _refused(where, f"{where} is nested too deep", "deep nesting", "flatter JSON") from error
    except UnicodeDecodeError as error:
        raise _refused(where, f"{where} is not UTF-8 text", f"byte {error.start}") from error
    except json.JSONDecodeError as error:
        near = error.doc[max(0, error.pos - 10) : error.pos + 20].strip()
        what = error.msg.removeprefix("Expecting ")
        raise _refused(where, f"{where} is not JSON", near or "the end of the text", what, kind="bad-json") from error


def _checked(chunks: list[Any], where: str) -> tuple[Mapping[str, Any], ...]:
    for index, chunk in enumerate(chunks):
        check_answer(chunk, name=f"{where}, response {index}")
    return tuple(chunks)


# -- HTTP -------------------------------------------------------------------------------------------------------------


def _of_httprr(raw: bytes, name: str, left_out: list[str]) -> Iterator[ModelExchange]:
    """Pairs of a request and a response, before each a line with the length of both in bytes."""
    rest, number = raw[len(_HTTPRR) :], 0
    while rest:
        number += 1
        where = f"{name} pair {number}"
        head, newline, rest = rest.partition(b"\n")
        sizes = head.split()
        if not newline or len(sizes) != 2 or not all(size.isdigit() for size in sizes):
            raise _refused(where, f"{where} does not begin with two lengths", repr(head[:40]))
        asked, answered = (int(size) for size in sizes)
        if len(rest) < asked + answered:
            raise _refused(where, f"{where} is cut off", f"{len(rest)} bytes", f"{asked + answered} bytes")
        exchange = _pair(rest[:asked], rest[asked : asked + answered], where, left_out)
        rest = rest[asked + answered :]
        if exchange is not None:
            yield exchange


def _pair(request: bytes, response: bytes, where: str, left_out: list[str]) -> ModelExchange | None:
    line, _, body = _message(request, f"{where}, request")
    target = line.split(" ")[1] if line.count(" ") >= 2 else ""
    call = _CALL.search(target)
    stream = _STREAMS.get(call["method"]) if call is not None else None
    if call is None or stream is None:
        left_out.append(f"{where}: {line.split('?')[0][:120]} is no model call")
        return None
    asked, unread = asked_over_http(_json(body, f"{where}, request"), call["model"], name=f"{where}, request")
    status, headers, answer = _message(response, f"{where}, response")
    code = status.split(" ")[1] if " " in status else ""
    if not code.isdigit():
        raise _refused(where, f"{where}: the response has no status", repr(status[:40]))
    chunks = _chunks(int(code), headers.get("Content-Type", ""), answer, f"{where}, response")
    return ModelExchange(_checked(chunks, where), asked, stream, where, unread)


def _chunks(status: int, kind: str, body: bytes, where: str) -> list[Any]:
    if status >= 400:
        return [_http_error(status, body)]
    if "text/event-stream" in kind:
        return [_json(data, f"{where} event {index}") for index, data in enumerate(_events(body))]
    value = _json(body, where)
    return value if is_list(value) else [value]


def _events(body: bytes) -> Iterator[bytes]:
    """The data of server-sent events."""
    for block in re.split(rb"\r?\n\r?\n", body):
        lines = [line[5:].strip() for line in block.splitlines() if line.startswith(b"data:")]
        if lines:
            yield b"\n".join(lines)


def _http_error(status: int, body: bytes) -> dict[str, Any]:
    """The provider's error; of a body that is none, such as a proxy's page, the status alone."""
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if is_list(value) and len(value) == 1:
        value = value[0]
    if is_object(value) and is_object(value.get("error")):
        return value
    return {"error": {"code": status, "status": "UNKNOWN", "message": f"HTTP {status}"}}


def _message(raw: bytes, where: str) -> tuple[str, http.client.HTTPMessage, bytes]:
    """The first line, the headers and the decoded body of an HTTP message."""
    stream = io.BytesIO(raw)
    line = stream.readline().decode("latin-1").rstrip("\r\n")
    try:
        headers = http.client.parse_headers(stream)
        body = stream.read()
        if headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = _unchunked(body)
        if headers.get("Content-Encoding", "").lower() == "gzip":
            body = gzip.decompress(body)
    except (http.client.HTTPException, OSError, EOFError, ValueError, zlib.error) as error:
        raise _refused(where, f"{where} is no HTTP message", f"{type(error).__name__}: {error}"[:80]) from error
    return line, headers, body


def _unchunked(body: bytes) -> bytes:
    out: list[bytes] = []
    while True:
        size, found, body = body.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        if not found or len(body) < length:
            raise ValueError("a chunk is cut off")
        if length == 0:
            return b"".join(out)
        out.append(body[:length])
        body = body[length + 2 :]


def _refused(
    where: str,
    what: str,
    got: str,
    expected: str = "a recorded model call",
    *,
    kind: str = "not-a-recording",
    fix: str = _FIX,
) -> SchemaError:
    return SchemaError(what, where=where, got=got, expected=expected, fix=fix, id=kind)
