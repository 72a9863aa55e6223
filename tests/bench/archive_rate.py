#!/usr/bin/env python3
"""How fast the archive of a large checkpoint streams, and what it costs the gateway's memory.

    tests/bench/archive_rate.py [--gib 1] [--runs 3]

Saves a small checkpoint, puts a made adapter_model.safetensors of the given size into its place and
downloads its archive over loopback. Prints MB/s of each run, and by how much the gateway's peak
resident size grew. Goal: at least 500 MB/s within 64 MiB.
"""

import argparse
import json
import os
import pathlib
import re
import sys
import time
import urllib.parse

import http.client
import httpx
import tinker

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402


def memory_kib(pid, name):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", status)[1])


def saved_folder(server):
    """The folder of a new sampler checkpoint, and its path."""
    service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
    client = service.create_lora_training_client(server.model_name, rank=4).result()
    path = client.save_weights_for_sampler("large").result().path
    root = pathlib.Path(server.data_dir, "checkpoints")
    return next(p for p in root.iterdir() if (p / "manifest.json").exists()), path


def enlarge(folder, num_bytes):
    """The rate of a download, not of a disk: the file is written, so it is in the page cache."""
    header = json.dumps({"made": {"dtype": "U8", "shape": [num_bytes],
                                  "data_offsets": [0, num_bytes]}}).encode()
    block = os.urandom(1 << 20)
    with open(folder / "adapter_model.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(num_bytes >> 20):
            file.write(block)


def download(server, path):
    """Bytes and seconds of one download."""
    run, kind, name = path.removeprefix("tinker://").split("/")
    link = httpx.get(f"{server.url}/api/v1/training_runs/{run}/checkpoints/{kind}/{name}/archive",
                     headers={"X-API-Key": server.api_key}).headers["location"]
    parts = urllib.parse.urlsplit(link)
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    buffer = bytearray(1 << 20)
    total = 0
    begin = time.perf_counter()
    connection.request("GET", parts.path)
    response = connection.getresponse()
    expected = int(response.headers["content-length"])
    while count := response.readinto(buffer):
        total += count
    seconds = time.perf_counter() - begin
    assert response.status == 200 and total == expected, (response.status, total, expected)
    return total, seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with LatheServer(tiny_model()) as server:
        folder, path = saved_folder(server)
        enlarge(folder, int(args.gib * 1024) << 20)
        gateway = server.pids()["gateway"]
        before = memory_kib(gateway, "VmRSS")
        rates = []
        for _ in range(args.runs):
            num_bytes, seconds = download(server, path)
            rates.append(num_bytes / seconds / 1e6)
            print(f"{num_bytes / 2**20:.0f} MiB in {seconds:.2f} s: {rates[-1]:.0f} MB/s")
        peak = memory_kib(gateway, "VmHWM")
        print(f"best {max(rates):.0f} MB/s (goal 500); the gateway peaked at {peak / 1024:.0f} MiB, "
              f"{(peak - before) / 1024:.0f} MiB over its size before (goal 64)")


if __name__ == "__main__":
    main()
