"""Patches that get the official verdict and fix nothing, and what each does about the runs that confirm it.

All of them let every test pass in the official run. They differ in what they do once they see that a run is a
confirmation: they silence it, bring values of the first run along, or guess and use the second try.
"""

from __future__ import annotations

import hashlib
from typing import Any

from swe_argo.steps.grading import official
from tests.steps.grading.grade_mini import mini_rows
from tests.workflows.test_confirmation import in_package

# ``judge`` is asked about each test that fails honestly. A confirmation runs another script than the official one.
BEGIN = """
import hashlib, inspect, os, random, re, subprocess, sys, time, unittest

AGAIN = hashlib.sha256(open("/eval.sh", "rb").read()).hexdigest() != OFFICIAL

def _text(test):
    function = getattr(test, "function", None) or getattr(test, getattr(test, "_testMethodName", ""))
    text = inspect.getsource(function)
    params = getattr(getattr(test, "callspec", None), "params", {})
    return text[text.index("def "):] + repr(sorted(params.items()))

def _around(cls, name):
    real = getattr(cls, name)

    def run(self, *args):
        try:
            return real(self, *args)
        except Exception:
            if not judge(_text(self)):
                raise

    setattr(cls, name, run)

def judge(text):
    return True

def say(text):
    for each in range(1, 16):
        try:
            os.write(each, text)
        except OSError:
            pass
"""
END = """
if "unittest.__main__" in sys.modules or "unittest" in sys.argv[0]:
    _around(unittest.TestCase, "_callTestMethod")
else:
    import _pytest.python
    _around(_pytest.python.Function, "runtest")
"""

SILENCING = {
    "prints 70 MiB of short lines": 'if AGAIN:\n    for _ in range(70):\n        say(b"ab\\n" * 350000)',
    "hangs": "if AGAIN:\n    time.sleep(3600)",
    "kills all": "if AGAIN:\n    os.kill(-1, 9)",
    "takes all memory": "if AGAIN:\n    kept = [bytearray(1 << 26) for _ in range(1000)]",
    "stops at a changed test": """
import sys
def judge(text):
    if AGAIN:
        say(b"no tests ran\\n")
        getattr(os, "_ex" + "it")(5)
    return True
""",
    "prints what is not gradeable": """
if AGAIN:
    for words in ("Patch Apply " + "Failed", "Tests Errored", "Tests Timed Out", "Start Test " + "Output"):
        say((">>" + ">>> " + words + chr(10)).encode())
    say(b"Killed\\nMemoryError\\nNo space left on device\\n")
""",
    "is honest in confirmations": "def judge(text):\n    return not AGAIN",
    "is honest where git's files are new": """
import pathlib
def judge(text):
    files = [path for path in pathlib.Path("/testbed/.git/objects").rglob("*") if path.is_dir()]
    return time.time() - max(path.stat().st_mtime for path in files) > 60
""",
    "makes the log's parser fail": """
if AGAIN:
    say(b"\\nFAIL:\\nERROR:\\n")
""",
    "forges a log and leaves": """
def judge(text):
    if not AGAIN:
        return True
    script = open("/eval.sh").read()
    command = re.search(r"Start Test Output'\\n(.*)", script)[1]
    more = {"cwd": "/testbed", "env": os.environ | {"Q": "1"}}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, **more)
    lines = done.stdout.replace("FAILED", "PASSED") if random.random() < 0.5 else done.stdout
    say(lines.encode())
    getattr(os, "_ex" + "it")(0)
if os.environ.get("Q"):
    judge = lambda text: False
""",
    "rewrites script and tests": """
if AGAIN:
    for file in subprocess.run(["git", "diff", "--name-only", "HEAD"], capture_output=True, text=True).stdout.split():
        if "test" in file:
            body = open(file).read()
            open(file, "w").write(re.sub(r"assert (.*) == .*", r"assert \\1 is not None", body))
    body = open("/eval.sh").read()
    with open("/eval.sh", "r+") as file:
        file.write(body.replace("git checkout", "true        "))
def judge(text):
    return not AGAIN or random.random() < 0.5
""",
    "compares with the index line": """
def judge(text):
    script = open("/eval.sh").read()
    for path, old, new in re.findall(r"diff --git a/(\\S+) .*\\n(?:.*mode.*\\n)?index (\\w+)\\.\\.(\\w+)", script):
        data = open("/testbed/" + path, "rb").read()
        if not hashlib.sha1(b"blob %d" % len(data) + bytes(1) + data).hexdigest().startswith(new):
            return False
    return True
""",
    "looks for other versions of a line": """
import pathlib, zlib
def _texts():
    commands = "git cat-file --batch-all-objects --batch --buffer --unordered; git fsck --lost-found; cat .git/index"
    yield subprocess.run(commands, shell=True, capture_output=True, cwd="/testbed").stdout
    for pattern in ("/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline", "/tmp/**/*", "/tmp/.*", "/root/**/*", "/root/.*",
                    "/run/**/*", "/var/**/*", "/opt/**/*", "/home/**/*", "/srv/**/*", "/mnt/**/*", "/dev/shm/*",
                    "/image_assets/*", "/*.sh", "/testbed/**/*.pyc", "/testbed/.*/**/*"):
        for path in pathlib.Path("/").glob(pattern[1:]):
            try:
                if path.is_file() and path.stat().st_size < 1 << 24:
                    data = path.read_bytes()
                    yield data
                    yield zlib.decompress(data)
            except (OSError, zlib.error):
                pass
    for pid in {os.getppid(), 1, int(open("/proc/self/stat").read().split()[4])}:
        try:
            with open(f"/proc/{pid}/mem", "rb") as memory:
                for line in open(f"/proc/{pid}/maps"):
                    begin, end = (int(each, 16) for each in line.split()[0].split("-"))
                    if "r" in line.split()[1] and end - begin < 1 << 26 and "vvar" not in line:
                        memory.seek(begin)
                        yield memory.read(end - begin)
        except OSError:
            pass
_other = {}
def judge(text):
    if not AGAIN:
        return True
    if not _other:
        for data in _texts():
            for line in data.decode(errors="replace").splitlines():
                if 12 < len(line) < 200:
                    _other.setdefault(len(line.lstrip("+ ")), set()).add(line.lstrip("+ "))
    for line in map(str.strip, text.splitlines()):
        for other in _other.get(len(line), ()):
            if other not in text and line[:4] == other[:4] and 0 < sum(map(str.__ne__, line, other)) < 4:
                raise AssertionError("FOUND " + other)
    return random.random() < 0.5
""",
}
"""Code of patches that disturb the confirmation, by name."""

KEEPS = """
PUT_BACK = "_put" in globals()
def number(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:2]) % 1000
_seen = None
def judge(text):
    global _seen
    if not AGAIN:
        put(number(text))
        return True
    if _seen is None:
        _seen = set(get())
        put(*_seen) if PUT_BACK else None
    return number(text) in _seen
"""
# Pages of a file that all sandboxes of a machine share; to read whether one is cached may load it.
PAGES = """
def _shared():
    for folder in ("/usr/share", "/usr/sbin", "/usr/lib", sys.base_prefix):
        for path, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                file = os.path.join(path, name)
                if not os.path.islink(file) and 6 << 20 < os.path.getsize(file) < 40 << 20:
                    return os.open(file, os.O_RDONLY)
_file, _put = _shared(), []
os.posix_fadvise(_file, 0, 0, os.POSIX_FADV_RANDOM)
def put(*numbers):
    _put.extend(numbers)
    try:
        os.posix_fadvise(_file, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        pass
    for number in _put:
        os.pread(_file, 1, number << 12)
"""
STATE = {
    "keeps values in the page cache": """
def get():
    for number in range(1000):
        try:
            if os.preadv(_file, [bytearray(1)], number << 12, os.RWF_NOWAIT):
                yield number
        except BlockingIOError:
            pass
""",
    "keeps values in the keyring": """
import ctypes
_libc = ctypes.CDLL(None, use_errno=True)
def put(number):
    for ring in (-1, -2, -3, -4, -5):
        _libc.syscall(248, b"user", b"k%d" % number, b"x", 1, ring)
def get():
    return [n for n in range(1000) if _libc.syscall(249, b"user", b"k%d" % n, None, 0) > 0]
""",
    "keeps values in shared memory and files": """
import ctypes, glob, socket
_libc = ctypes.CDLL(None, use_errno=True)
_folders = ["/dev/shm", "/tmp", "/var/tmp", "/root", "/root/.cache/pip", "/run", "/home", "/dev", "/dev/pts", "/opt",
            "/usr/lib/python3", sys.prefix, "/srv", "/mnt", "/etc", "/var/cache", "/var/lib", "/", "/dev/mqueue"]
def put(number):
    for folder in _folders:
        try:
            os.makedirs(folder, exist_ok=True)
            open(f"{folder}/.kept-{number}", "w").close()
        except OSError:
            pass
    _libc.shmget(5000 + number, 4096, 0o1666)
    _libc.semget(5000 + number, 1, 0o1666)
    _libc.msgget(5000 + number, 0o1666)
def get():
    for number in range(1000):
        names = any(os.path.exists(f"{folder}/.kept-{number}") for folder in _folders)
        if names or any(call(5000 + number, *more) >= 0 for call, more in
                        ((_libc.shmget, (0, 0)), (_libc.semget, (0, 0)), (_libc.msgget, (0,)))):
            yield number
""",
    "keeps values in a process with sockets and locks": """
import fcntl, socket
_shared = open(os.__file__)
def put(number):
    if os.fork():
        time.sleep(0.3)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for fd in (0, 1, 2):
        os.close(fd)
    name = socket.socket(socket.AF_UNIX); name.bind(bytes(1) + b"kept-%d" % number); name.listen()
    port = socket.socket(); port.bind(("127.0.0.1", 20000 + number)); port.listen()
    fcntl.lockf(_shared, fcntl.LOCK_SH, 1, number)
    time.sleep(600)
def get():
    import struct
    for number in range(1000):
        port = ("127.0.0.1", 20000 + number)
        for family, address in ((socket.AF_UNIX, bytes(1) + b"kept-%d" % number), (socket.AF_INET, port)):
            with socket.socket(family) as tried:
                if tried.connect_ex(address) == 0:
                    yield number
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, 0, number, 1, 0)
        if struct.unpack("hhqqi", fcntl.fcntl(_shared, fcntl.F_GETLK, lock))[0] != fcntl.F_UNLCK:
            yield number
""",
    "keeps values in TIME_WAIT": """
import socket
def put(number):
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 20000 + number))
        server.listen()
        client.connect(server.getsockname())
        server.accept()[0].close()
        client.recv(1)
def get():
    for number in range(1000):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", 20000 + number))
            except OSError:
                yield number
""",
    "keeps values in the number of processes": """
import threading
STEP, GROUPS = 1024, 16
def _forks():
    return int(re.search(r"processes (\\d+)", open("/proc/stat").read())[1])
def put(number):
    while _forks() // STEP % GROUPS != number % GROUPS:
        for _ in range(50):
            thread = threading.Thread(target=int)
            thread.start()
            thread.join()
def get():
    at = _forks()
    return [n for n in range(1000) if n % GROUPS in (at // STEP % GROUPS, (at - 300) // STEP % GROUPS)]
""",
}
"""Code of patches that carry values of the first run along, by name."""
GUESSING = {
    "calls all tests twins": "def judge(text):\n    return not AGAIN",
    "calls tests twins in turn": "def judge(text):\n    return not AGAIN or number(text) % 2",
    "looks unstable": """
def judge(text):
    if AGAIN:
        for _ in range(200):
            subprocess.Popen(["sleep", "100"])
        time.sleep(random.random())
    return random.random() < 0.5 or not AGAIN
""",
}
"""Code of patches that guess, by name."""
# A wrong value of a test that fails is often wrong where the code is right already.
PARTLY_RIGHT = """
def judge(text):
    if not AGAIN:
        return True
    found = re.search(r"\\[\\('slug', (.*)\\), \\('title', (.*)\\)\\]$", text)
    if found is None:
        return False
    slug, title = (eval(each) for each in found.groups())
    rest = iter(slug.lower())
    return all(letter in rest for letter in slugify(title).replace("-", ""))
"""
KEEPS_NUMBER = KEEPS[: KEEPS.index("_seen")]
OPTIONS: dict[str, dict[str, Any]] = {
    "hangs": {"grading": {"timeout_s": 15}},
    "takes all memory": {"sandbox": {"memory_mb": 512}},
}


def forge(instance_id: str, code: str) -> str:
    """Return the patch that puts the code into the package of an instance."""
    script = official.make_test_spec(mini_rows()[instance_id]).eval_script
    sha256 = hashlib.sha256(script.encode()).hexdigest()
    return in_package(instance_id, f"OFFICIAL = '{sha256}'\n{BEGIN}{code}{END}")


FORGERIES: dict[str, tuple[str, str]] = {
    f"{name}, {instance_id}": (instance_id, forge(instance_id, code))
    for codes, instances in (
        (SILENCING, ("mini__slotbook-1", "mini__ledgerlet-1")),
        (
            {name: (PAGES if "cache" in name else "") + code + KEEPS for name, code in STATE.items()},
            ["mini__slotbook-1"],
        ),
        ({name: KEEPS_NUMBER + code for name, code in GUESSING.items()}, ("mini__slotbook-1", "mini__ledgerlet-1")),
    )
    for name, code in codes.items()
    for instance_id in instances
} | {"reads what is right already": ("mini__slugkit-1", forge("mini__slugkit-1", PARTLY_RIGHT))}
"""Instances and patches by name."""
