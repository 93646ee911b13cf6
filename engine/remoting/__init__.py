"""Remoting layer that carries commands over connections and batches responses."""

from engine.remoting.dispatcher import Handler, Handlers, serves
from engine.remoting.peer import Peer
from engine.remoting.rpc_client import RpcClient
from engine.remoting.rpc_server import RpcServer

__all__ = ["Handler", "Handlers", "Peer", "RpcClient", "RpcServer", "serves"]
