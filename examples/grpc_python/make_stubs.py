#!/usr/bin/env python3
"""Generates Python stubs of Lathe's public gRPC services with grpcio-tools.

    python examples/grpc_python/make_stubs.py --out stubs

Afterwards, with the folder on sys.path: `from protos.lathe.v1 import engine_pb2_grpc`.
"""

import argparse
import pathlib

import grpc_tools
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTOS = ("types", "engine", "streaming")


def make_stubs(out: pathlib.Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    # google/protobuf/timestamp.proto comes with grpcio-tools.
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{ROOT}", f"-I{well_known}", f"--python_out={out}",
                 f"--grpc_python_out={out}"]
    status = protoc.main(arguments + [f"protos/lathe/v1/{name}.proto" for name in PROTOS])
    if status != 0:
        raise SystemExit(f"protoc ended with {status}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("stubs"))
    make_stubs(parser.parse_args().out)
