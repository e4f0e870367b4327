"""A program called ssh that forwards ports on this machine as ssh does to a host."""

from __future__ import annotations

import sys
from pathlib import Path

from sweep.cluster.route import READY

# For as long as its standard input is open.
SSH = """#!{python}
import re, socket, sys, threading
ports = re.findall(r"-L 127.0.0.1:(\\d+):127.0.0.1:(\\d+)", " ".join(sys.argv))
open({said!r}, "a").write("\\n".join(sys.argv[1:]) + "\\n")
servers = [(socket.create_server(("127.0.0.1", int(here))), int(there)) for here, there in ports]
print("Welcome to the lab\\n" + {ready!r}, flush=True)
def copy(one, other):
    while data := one.recv(65536):
        other.sendall(data)
    other.shutdown(socket.SHUT_WR)
def serve(server, there):
    while True:
        client, _ = server.accept()
        try:
            head = socket.create_connection(("127.0.0.1", there))
        except OSError:
            client.close()
            continue
        for pair in ((client, head), (head, client)):
            threading.Thread(target=copy, args=pair, daemon=True).start()
for pair in servers:
    threading.Thread(target=serve, args=pair, daemon=True).start()
sys.stdin.read()
"""


def stand_in(folder: Path) -> Path:
    """Put the program into ``folder/bin``; returns where it appends its arguments, one a line."""
    said = folder / "said"
    program = folder / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(SSH.format(python=sys.executable, said=str(said), ready=READY))
    program.chmod(0o755)
    return said
