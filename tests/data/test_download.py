"""Downloads, against a server in this process that breaks off and refuses."""

import hashlib
import http.server
import re
import threading

import pytest

from small_files import CONTENT, visible
from wior.data import download, files
from wior.data.source import Source


class Server:
    """Serves CONTENT and notes the ranges asked for; can ignore ranges, break off or answer with an error."""

    def __init__(self, *, content=CONTENT, ranges=True, break_after=None, breaks=10**6, status=None):
        self.asked = []
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                nonlocal breaks
                asked = self.headers.get("Range")
                served.asked.append(asked)
                if status:
                    self.send_error(status)
                    return
                start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and ranges else 0
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                stop = len(content)
                if break_after is not None and breaks > 0:
                    breaks, stop = breaks - 1, start + break_after
                self.wfile.write(content[start:stop])

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def source(self, name="numbers.bin", content=CONTENT):
        url = f"http://127.0.0.1:{self.server.server_port}/{name}"
        return Source("set", (name,), f"sha256:{hashlib.sha256(content).hexdigest()}", url)


@pytest.mark.parametrize("progress", [False, True])
def test_a_file_is_downloaded_once_and_found_in_the_cache_afterwards(cache, progress):
    with Server() as server:
        for _ in range(2):
            path = files.find(server.source(), progress=progress)
            assert path == cache / "set" / "numbers.bin"
            assert path.read_bytes() == CONTENT
    assert server.asked == [None]
    assert visible(cache) == ["numbers.bin"]


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_goes_on_where_it_ended(cache, ranges):
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "numbers.bin.part").write_bytes(CONTENT[:1000])
    with Server(ranges=ranges) as server:
        assert files.find(server.source()).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]
    assert visible(cache) == ["numbers.bin"]


def test_a_part_that_lacks_nothing_becomes_the_file(cache):
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "numbers.bin.part").write_bytes(CONTENT)
    with Server() as server:
        assert files.find(server.source()).read_bytes() == CONTENT
    assert visible(cache) == ["numbers.bin"]


def test_a_part_of_another_file_is_thrown_away_and_all_is_fetched(cache):
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "numbers.bin.part").write_bytes(b"other" * 100)
    with Server() as server:
        assert files.find(server.source()).read_bytes() == CONTENT
    assert server.asked == ["bytes=500-", None]


def test_a_dropped_connection_is_taken_up_again(cache):
    with Server(break_after=200_000, breaks=2) as server:
        assert files.find(server.source()).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=200000-", "bytes=400000-"]


def test_a_truncated_download_is_an_error_and_kept_as_a_part_alone(cache):
    kept = r"ended after 1,000 of 512,000 bytes; they are kept"
    with Server(break_after=1000, ranges=False) as server, pytest.raises(FileNotFoundError, match=kept):
        files.find(server.source())
    assert visible(cache) == ["numbers.bin.part"]


def test_a_wrong_checksum_is_an_error_and_nothing_is_kept(cache):
    with (
        Server(content=CONTENT[::-1]) as server,
        pytest.raises(ValueError, match="does not have the published file") as error,
    ):
        files.find(server.source())
    assert hashlib.sha256(CONTENT).hexdigest() in str(error.value)
    assert visible(cache) == []


@pytest.mark.parametrize("absent", ["404", "refused"])
def test_without_a_network_the_error_says_what_to_do(cache, absent):
    with Server(status=404) as server:
        source = server.source()
        if absent == "404":
            with pytest.raises(FileNotFoundError, match="HTTP 404 Not Found") as error:
                files.find(source)
    if absent == "refused":
        with pytest.raises(FileNotFoundError, match="refused") as error:
            files.find(source)
    for needed in (source.url, source.checksum.split(":")[1], str(cache / "set"), "WIOR_DATA", "--data DIR"):
        assert needed in str(error.value)
    assert visible(cache) == []


def test_a_file_damaged_in_the_cache_is_replaced(cache):
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "numbers.bin").write_bytes(CONTENT[:-1])
    with Server() as server:
        assert files.find(server.source()).read_bytes() == CONTENT


def test_processes_that_want_the_same_file_do_not_disturb_each_other(cache):
    with Server() as server:
        source, folder, found = server.source(), cache / "set", []
        fetch = lambda: found.append(download.download(source, folder).read_bytes() == CONTENT)
        threads = [threading.Thread(target=fetch) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [True] * 4
    assert server.asked == [None]  # the others waited and found it
