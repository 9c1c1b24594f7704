"""Stands between a client and a Milvus server, and can cut them off."""

import socket
import threading
from contextlib import suppress


class Proxy:
    """Passes bytes on to a server, until it is told to stall or to break."""

    def __init__(self, port):
        self.port = port
        self.flowing = threading.Event()
        self.flowing.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.sockets = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                return
            self.sockets += [near, far]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self.pump, args=pair, daemon=True).start()

    def pump(self, source, target):
        try:
            while data := source.recv(1 << 16):
                self.flowing.wait()
                target.sendall(data)
        except OSError:
            pass

    def break_off(self):
        for each in (self.listener, *self.sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # or a thread that waits for it would not wake
            each.close()

    def close(self):
        self.flowing.set()
        self.break_off()
