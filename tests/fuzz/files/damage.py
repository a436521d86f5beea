"""Ways to damage a file: its bytes, its members, and what stands in them.

What is done is drawn from a ``random.Random``; that of ``hypothesis.strategies.randoms`` shrinks.
"""

import copy
import functools
import hashlib
import json
import re
import struct
import warnings
import zipfile
from io import BytesIO

TOKEN = re.compile(r"%[\w.]+|@\w+|\"[^\"\n]*\"|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|\w+|[^\w\s]")
NUMBERS = [-1, 0, 1, 2, 3, 7, 64, 4096, 10**6, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, 2**63,
           -2**31, -2**63, 10**30, 0.5, -0.0, 1e300]
OTHERS = [None, True, False, "", "x", "w\x00", "torch", "é" * 3, [], [[]], {}, {"list": []},
          {"dict": []}, {"dict": [["a", 1]]}, {"ref": 0}, {"ref": 10**9}, {"tuple": [1]},
          {"torch": "float32"}, {"float": "nan"}, {"tensor": "fc.weight"}, float("nan")]
WORDS = ["true", "none", "nan", "inf", "-inf", "_", "dtype:i64", "[]", "[1, 2]", "@main", "%x",
         "f64", "i8", "bool", "\"x\"", "\"sum\"", "view", "relu", "aten", "loop", "\n", "}",
         "output"]


def _number(draw):
    return draw.choice([draw.choice(NUMBERS), draw.randint(-100, 10**5)])


# -- bytes -----------------------------------------------------------------------------------------

def damaged_bytes(draw, data: bytes) -> bytes:
    """The bytes with some of them changed, lost, put in or moved."""
    data = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(0, max(len(data) - 1, 0))
        length = draw.choice([1, 1, 2, 8, 64, 1000])
        kind = draw.choice(["flip", "cut", "lose", "insert", "fill", "move"])
        if kind == "flip" and data:
            data[at] ^= 1 << draw.randint(0, 7)
        elif kind == "cut":
            del data[at:]
        elif kind == "lose":
            del data[at:at + length]
        elif kind == "insert":
            data[at:at] = draw.randbytes(draw.randint(1, 8))
        elif kind == "fill":
            data[at:at + length] = draw.choice([b"\0", b"\xff"]) * length
        else:
            part = data[at:at + length]
            del data[at:at + length]
            data += part
    return bytes(data)


# -- JSON ------------------------------------------------------------------------------------------

def damaged_json(draw, value):
    """The value with one to three of its parts changed."""
    for _ in range(draw.choice([1, 1, 2, 3])):
        value = _one_json_change(draw, value)
    return value


def _another(draw):
    """One of OTHERS, as a copy: the next change may be within it."""
    return copy.deepcopy(draw.choice(OTHERS))


def _one_json_change(draw, value):
    places = list(_places(value))
    if not places:
        return _another(draw)
    holder, key = draw.choice(places)
    kind = draw.choice(["number", "number", "other", "other", "lose", "swap", "key", "repeat"])
    if kind == "number":
        holder[key] = _number(draw)
    elif kind == "other":
        holder[key] = _another(draw)
    elif kind == "lose":
        del holder[key]
    elif kind == "swap":
        other, other_key = draw.choice(places)
        holder[key], other[other_key] = json.loads(json.dumps([other[other_key], holder[key]]))
    elif kind == "key" and isinstance(holder, dict):
        holder[draw.choice(["x", "list", "object", "make", "ref", "tensor"])] = holder.pop(key)
    elif isinstance(holder, list):
        holder.append(json.loads(json.dumps(holder[key])))
    return value


def _places(value):
    """Every (holder, key) of a JSON value."""
    parts = value.items() if isinstance(value, dict) else \
        enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield value, key
        yield from _places(part)


# -- text ------------------------------------------------------------------------------------------

def damaged_text(draw, text: str) -> str:
    """IR text with one to three of its tokens or lines changed."""
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        text = _one_text_change(draw, text)
    return text


def _one_text_change(draw, text: str) -> str:
    lines = text.split("\n")
    at, other = (draw.randrange(len(lines)) for _ in range(2))
    change = draw.choice(["token"] * 18 + ["lose", "repeat", "swap"])
    if change == "lose":
        del lines[at]
    elif change == "repeat":
        lines.insert(other, lines[at])
    elif change == "swap":
        lines[at], lines[other] = lines[other], lines[at]
    elif tokens := list(TOKEN.finditer(lines[at])):
        token = draw.choice(tokens)
        another = _other_token(draw, token[0], lines[other])
        lines[at] = lines[at][:token.start()] + another + lines[at][token.end():]
    else:
        lines[at] = draw.choice(WORDS)
    return "\n".join(lines)


def _other_token(draw, token: str, line: str) -> str:
    if token.lstrip("-")[:1].isdigit() and draw.randint(0, 3):
        if "." not in token and "e" not in token and draw.getrandbits(1):
            whole = int(token)
            return str(draw.choice([whole + 1, whole - 1, whole * 2, whole + 64, whole - 64,
                                    -whole, whole // 2]))
        return str(_number(draw))
    like = [other for other in TOKEN.findall(line) if other[:1].isalpha() == token[:1].isalpha()]
    return draw.choice(like if like and draw.randint(0, 4) else ["", *WORDS])


# -- addresses of a plan ---------------------------------------------------------------------------

def moved(draw, text: str) -> str:
    """A planned program with other memory: it computes the same, where the plan is a right one."""
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        kind = draw.choice([_one_address, _one_address, _all_at_an_address, _scratch, _in_place,
                            _in_place])
        text = kind(draw, text)
    return text


@functools.lru_cache(32)
def _addresses(text: str) -> list[re.Match]:
    number = re.compile(r"\d+")
    return [match for found in re.finditer(r"(?<=addr=)(?:\d+|\[[\d, ]*\])", text)
            for match in number.finditer(text, *found.span())]


def _address(draw, old: int, known: list[re.Match]) -> str:
    end = max(int(match[0]) for match in known)
    near = [old - 64, old + 64, old + 4, old // 2, -old]
    beyond = end + (draw.randint(1, 4) << 20)
    return str(draw.choice([draw.choice(known)[0], draw.choice(near), beyond]))


def _put(text: str, tokens: list[re.Match], other: str) -> str:
    for token in reversed(tokens):
        text = text[:token.start()] + other + text[token.end():]
    return text


def _one_address(draw, text: str) -> str:
    known = _addresses(text)
    token = draw.choice(known)
    return _put(text, [token], _address(draw, int(token[0]), known))


def _all_at_an_address(draw, text: str) -> str:
    known = _addresses(text)
    old = draw.choice(known)[0]
    return _put(text, [match for match in known if match[0] == old],
                _address(draw, int(old), known))


def _scratch(draw, text: str) -> str:
    sizes = list(re.finditer(r"(?<=scratch_bytes=)-?\d+", text))
    if not sizes:
        return text
    other = draw.choice([0, 64, 4096, 1 << 20, 2**63 - 1, -64])
    return _put(text, [draw.choice(sizes)], str(other))


def _in_place(draw, text: str) -> str:
    """A result takes the memory of one of its operands."""
    lines = re.findall(r"^  %[\w.]+ = \w+ %.*?\baddr=\d+", text, re.M)
    line = draw.choice(lines)
    operands = re.findall(r"%[\w.]+", line.partition("{")[0].partition(" = ")[2])
    index = draw.randint(0, len(operands) - 1)
    there = re.search(rf"^  {re.escape(operands[index])} = .*?\baddr=(\d+)", text, re.M)
    if there is None:
        return text
    taken = re.sub(r"addr=\d+$", f"addr={there[1]}, inplace=[{index}]", line)
    start = text.index(line)
    rest = re.sub(r"^([^\n]*?), inplace=\[[-\d, ]*\]", r"\1", text[start + len(line):])
    return text[:start] + taken + rest


# -- tensors ---------------------------------------------------------------------------------------

def damaged_tensors(draw, data: bytes) -> bytes:
    """A safetensors file with another header, or another length of it."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    kind = draw.choice(["header", "header", "length", "names"])
    if kind == "length":
        wrong = draw.choice([0, 1, size - 1, size + 8, 2**31, 2**63, 2**64 - 1])
        return struct.pack("<Q", wrong) + data[8:]
    if kind == "header":
        header = damaged_json(draw, header)
    else:
        names = list(header)
        a, b = (draw.choice(names) for _ in range(2))
        header[a], header[b] = header[b], header[a]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size:]


def damaged_array(draw, data: bytes) -> bytes:
    """A ``.npy`` file with another header, other bytes or another length of the header."""
    size = struct.unpack("<H", data[8:10])[0]
    kind = draw.choice(["header", "header", "length", "bytes"])
    if kind == "bytes":
        return damaged_bytes(draw, data)
    if kind == "length":
        wrong = draw.choice([0, 1, size - 1, size + 64, 2**16 - 1])
        return data[:8] + struct.pack("<H", wrong) + data[10:]
    header = damaged_text(draw, data[10:10 + size].decode()).encode()
    return data[:8] + struct.pack("<H", len(header) % 2**16) + header + data[10 + size:]


# -- sizes -----------------------------------------------------------------------------------------

def bomb(draw, name: str, data: bytes) -> bytes:
    """A member that is small as it is packed, and large, deep or long as it is read."""
    count = draw.choice([10**3, 10**5, 10**6, 3 * 10**7])
    if name.endswith(".safetensors"):
        end = draw.choice([2**30, 2**40, 2**62, 2**63])
        header = json.dumps({"x": {"dtype": "F32", "shape": [end // 4], "data_offsets": [0, end]}})
        return draw.choice([
            lambda: struct.pack("<Q", len(header)) + header.encode(),
            lambda: data + bytes(count), lambda: struct.pack("<Q", count) + b" " * count])()
    if name.endswith(".ir"):
        line = draw.choice([b"\n", b" ", b"// x\n", b"graph x {\n", b"%0 = relu %0\n"])
        times = count // len(line)
        return draw.choice([lambda: data + line * times, lambda: line * times + data])()
    deep = min(count, 10**6)
    return draw.choice([
        lambda: data + b" " * count, lambda: b" " * count + data, lambda: b"[" * deep + b"]" * deep,
        lambda: b'{"list": [' * deep + b"]}" * deep, lambda: b"[" + b"[]," * deep + b"0]",
        lambda: b"9" * count, lambda: b'{"object": "builtins:bytes", "args": [%d]}' % count**2,
        lambda: b'{"make": "collections:Counter", "args": [{"bytes": "%s"}]}' % (b"AAAA" * deep),
        lambda: b'{"make": "torch:Size", "args": [{"list": [%s0]}]}' % (b"0," * deep)])()


def hidden_sizes(draw, data: bytes) -> bytes:
    """A zip whose directory, or whose headers, say other sizes than its members have."""
    data = bytearray(data)
    mark, at = draw.choice([(b"PK\x01\x02", 20), (b"PK\x01\x02", 24), (b"PK\x01\x02", 42),
                            (b"PK\x03\x04", 18), (b"PK\x03\x04", 22)])
    for found in re.finditer(re.escape(mark), bytes(data)):
        if draw.getrandbits(1) and found.start() + at + 4 <= len(data):
            wrong = draw.choice([0, 1, 100, 10**6, 2**31, 2**32 - 2, 2**32 - 1])
            data[found.start() + at:found.start() + at + 4] = struct.pack("<I", wrong)
    return bytes(data)


# -- members ---------------------------------------------------------------------------------------

def damaged_member(draw, name: str, data: bytes) -> bytes:
    """A member with a small change."""
    if draw.randint(0, 9) == 0:
        return damaged_bytes(draw, data)
    if name.endswith(".json"):
        return json.dumps(damaged_json(draw, json.loads(data))).encode()
    if name.endswith(".ir"):
        return damaged_text(draw, data.decode()).encode()
    return damaged_tensors(draw, data)


def damages(draw, data: bytes, others: dict[str, bytes]):
    """A file made of the file ``data``, and what was done to it.

    Returns:
        ``(bytes, what, is_signed)``: with ``is_signed`` its manifest fits again.
    """
    if draw.randint(0, 5) == 0:
        return damaged_bytes(draw, data), "bytes of the file", False
    members = unpacked(data)
    manifest = members["manifest.json"]
    kind = draw.choice(["content"] * 8 + ["bomb", "bomb", "sizes", "lose", "rename", "repeat",
                                          "swap", "foreign"])
    is_signed = draw.randint(0, 9) > 0
    names = sorted(members)
    large = [name for name in ("plan.ir", "interface.json", "model.json") if name in members]
    name = draw.choice(names + large)
    twice = []
    if kind == "content":
        members[name] = damaged_member(draw, name, members[name])
    elif kind == "bomb":
        members[name] = bomb(draw, name, members[name])
    elif kind == "sizes":
        return hidden_sizes(draw, data), "sizes of the zip", False
    elif kind == "lose":
        del members[name]
    elif kind == "rename":
        other = draw.choice([*names, "x", "x" * 300, "../x.json", "/x", "état.json", "a/b.json"])
        members[other] = members.pop(name)
    elif kind == "repeat":
        twice = [(name, draw.choice([members[name], b"", b"{}"]))]
    elif kind == "swap":
        other = draw.choice(names)
        members[name], members[other] = members[other], members[name]
    else:
        members[name] = others.get(name, b"")
    is_signed = is_signed and members.get("manifest.json") == manifest
    compression = draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    return packed(members, twice, is_signed, compression), f"{kind} of {name}", is_signed


def unpacked(data: bytes) -> dict[str, bytes]:
    """The members of a zip."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: dict[str, bytes], twice, is_signed: bool,
           compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip of members; those in ``twice`` occur a second time."""
    members = dict(members)
    if is_signed:
        manifest = json.loads(members["manifest.json"])
        manifest["members"] = {
            name: hashlib.sha256(data).hexdigest()
            for name, data in members.items() if name != "manifest.json"}
        members["manifest.json"] = json.dumps(manifest).encode()
    file = BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of names that come twice
        for name, data in [*members.items(), *twice]:
            archive.writestr(name, data)
    return file.getvalue()
